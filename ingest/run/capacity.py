"""Resources that run out: disk space, and the validity of certificates."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ingest import metrics
from ingest.appender import Appender
from ingest.batch import Event, EventBatch
from ingest.config.sources import OpcuaSource
from ingest.errors import SourceError, SpoolError
from ingest.opcua.certificate import expires_at
from ingest.opcua.trust import certificates_in
from ingest.timestamps import now_us

log = logging.getLogger(__name__)

_WARN_DAYS = 30.0


def measure_disk(folder: str, path: Path) -> None:
    """Set the gauges of the disk that ``path`` is on; a folder that is not there yet has none."""
    with suppress(OSError):
        usage = shutil.disk_usage(path)
        metrics.disk_free_bytes.labels(folder=folder).set(usage.free)
        metrics.disk_bytes.labels(folder=folder).set(usage.total)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Expiry of our own or a trusted certificate."""

    path: Path
    ends: datetime

    @property
    def days(self) -> float:
        """Days that are left; less than 0: it has ended."""
        return (self.ends - datetime.now(UTC)).total_seconds() / 86400

    def __str__(self) -> str:
        when = f"expires in {self.days:.0f} days" if self.days > 0 else "has expired"
        what = "our OPC UA certificate" if self.path.name == "own.der" else "the certificate"
        renew = ": run `plantlog certificate renew` and trust the new certificate on each server" * (
            self.path.name == "own.der"
        )
        return f"{what} {self.path} {when} ({self.ends:%Y-%m-%d %H:%M}Z){renew}"


def measure_certificates(pki: Path, sources: Sequence[OpcuaSource]) -> list[Certificate]:
    """Set the expiry gauges of our own, trusted and users' certificates; return those that expire within 30 days.

    Unreadable certificates are skipped.
    """
    options = [path for source in sources for path in (source.server_certificate, source.user_certificate_file)]
    named = dict.fromkeys(path for path in options if path is not None)
    found = []
    for place in (pki / "own.der", pki / "trusted", *named):
        with suppress(SourceError):
            found += [Certificate(path, expires_at(certificate)) for path, certificate in certificates_in(place)]
    metrics.certificate_expiry.clear()  # one that was removed ends no more
    for one in found:
        metrics.certificate_expiry.labels(certificate=one.path.name).set(one.ends.timestamp())
    return [one for one in found if one.days < _WARN_DAYS]


async def watch_certificates(pki: Path, sources: Mapping[int, OpcuaSource], spool: Appender) -> None:
    """Report certificates that expire soon once a day, in the log and as events of the first source, until cancelled.

    ``sources``: those that are read now, by id.
    """
    while True:
        now = now_us()
        events = []
        for one in await asyncio.to_thread(measure_certificates, pki, list(sources.values())):
            log.warning("%s", one)
            detail = {"certificate": str(one.path), "ends": one.ends.isoformat(), "days": round(one.days, 1)}
            events.append(Event("certificate_expiry", now, text=str(one), detail=detail))
        with suppress(SpoolError):  # the log has it, and it is said again tomorrow
            if events and sources:
                await spool.append(EventBatch(min(sources), now, events))
        await asyncio.sleep(86400)
