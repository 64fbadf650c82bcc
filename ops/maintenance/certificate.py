"""The job ``certificate``: a new certificate for the database's server."""

from __future__ import annotations

from datetime import datetime

from core.addresses import is_loopback
from core.config.https import TlsSettings
from core.config.snapshot import in_force
from ops.maintenance.job import Connection, JobContext, JobResult, JobSkipped
from ops.postgres.mounted import existing, is_mounted
from schema.queries import load


class Certificate:
    """Gives the present certificate to the own server, where it listens beyond loopback, for new sessions."""

    def __init__(self) -> None:
        self._used: datetime | None = None  # when the file was changed that the server is known to use

    async def renew(self, context: JobContext, connection: Connection) -> JobResult | JobSkipped:
        """The server reads the file also if another process has renewed it."""
        if not is_mounted():
            current = in_force(context.state.root, ())
            if current is None or is_loopback(current.plant.database.host):
                return JobSkipped("[database] host is loopback")
            TlsSettings.of(current.plant).ensure(context.state.root)
        cluster = existing(context.state.root)
        cluster.renew_certificate()
        if (changed_at := cluster.certificate_changed_at) == self._used:
            return JobResult()
        await connection.fetchval(load("maintenance")["reload_settings"])
        before, self._used = self._used, changed_at
        return JobResult(detail="" if before is None else "new certificate")
