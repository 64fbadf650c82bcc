"""The database of the appliance: a server in the state folder, or the one of PLANTLOG_DSN."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, urlsplit, urlunsplit

from ingest.database import FAILURES, connect
from ingest.errors import DatabaseError, OperationError
from ingest.files import write_atomically
from ops import ports
from ops.migration.migrate import check_logins, create_logins, migrate
from ops.paths import State
from ops.postgres.binaries import find
from ops.postgres.bootstrap import create_database, wait_until_ready
from ops.postgres.cluster import Cluster, provision
from ops.registration import heartbeat
from ops.registration.installation import check_ownership, login_mark
from schema.queries import load

_EXTERNAL_MARKER = "given-database"  # marks a state folder whose database is not its own
_ROLES = ("ingest", "reader", "maintenance")
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Database:
    """The database of a state folder, whose DSNs are in ``secrets``."""

    state: State
    cluster: Cluster | None  # None: somebody else's server

    @property
    def where(self) -> str:
        """Host, port and database, without secrets."""
        parts = urlsplit(self.state.dsn("owner"))
        return parts.netloc.rpartition("@")[2] + parts.path

    def ensure_free_port(self, progress: Callable[[str], None]) -> None:
        """Choose another port if another program took ours while the server was down."""
        if self.cluster is None or ports.is_free("127.0.0.1", self.cluster.port):
            return
        old_port = self.cluster.port
        self.cluster.move()
        progress(f"port {old_port} is in use{ports.holder(old_port)}; the database moves to {self.where}")

    async def prepare(self, take_over: bool = False, progress: Callable[[str], None] = print) -> str:
        """Create or upgrade schema and logins once the server responds. Returns what was done, as text.

        Raises OperationError, with nothing changed, if the database belongs to another installation and is not to be
        taken over. The state folder's own server has no other installation.
        """
        owner = self.state.dsn("owner")
        try:
            if self.cluster is not None:
                await wait_until_ready(owner.rpartition("/")[0] + "/postgres", _ANSWER_SECONDS)
                await create_database(owner)
            login_marks = await self._own_login_marks(take_over, progress)
            passwords = {role: _password(self.state.dsn(role)) for role in _ROLES}
            await check_logins(owner, passwords, login_marks)
            applied = await migrate(owner)
            renewed = await create_logins(owner, passwords, login_mark(self.state), login_marks)
        except FAILURES as error:
            database_name = "PLANTLOG_DSN" if self.cluster is None else "this state folder"
            raise DatabaseError(
                f"database of {database_name} ({self.where}): {type(error).__name__}: {error}"
            ) from error
        result = f"schema version {applied[-1]}" if applied else "schema is up to date"
        return f"{result}; new passwords for {', '.join(renewed)}" if renewed else result

    async def setting_problems(self) -> list[str]:
        """Server settings that should be different, as text."""
        connection = await connect(self.state.dsn("owner"), "plantlog up")
        try:
            return [row["problem"] for row in await connection.fetch(load("status")["select_problems"])]
        finally:
            await connection.close()

    async def _own_login_marks(self, take_over: bool, progress: Callable[[str], None]) -> frozenset[str] | None:
        """The marks of logins that may be given another password; None: any."""
        connection = await connect(self.state.dsn("owner"), "plantlog up")
        try:
            ownership = await check_ownership(connection, self.state, take_over or self.cluster is not None)
            if self.cluster is None and not take_over:
                await heartbeat.check(connection, self.state, progress)
        finally:
            await connection.close()
        if take_over or self.cluster is not None:
            return None
        # Logins from before they were marked are this installation's where the database is.
        return frozenset((login_mark(self.state), "")) if ownership.ours else frozenset((login_mark(self.state),))


def provide(state: State, progress: Callable[[str], None]) -> Database:
    """The database of PLANTLOG_DSN, that of the last ``up``, or an own server, created if missing."""
    external_dsn = os.environ.get("PLANTLOG_DSN")
    marker = state.run / _EXTERNAL_MARKER
    if external_dsn:
        if (state.root / "postgres" / "cluster").exists():
            raise OperationError(
                f"PLANTLOG_DSN is set, but {state.root} has its own database: unset it, or set PLANTLOG_STATE "
                "to a new folder"
            )
        _store_dsns(state, external_dsn)
        marker.touch()
        return Database(state, None)
    if marker.exists():
        _store_dsns(state, state.dsn("owner"))  # an earlier plantlog knew fewer logins
        return Database(state, None)
    return Database(state, provision(state.root, progress))


def _store_dsns(state: State, external_dsn: str) -> None:
    parts = urlsplit(external_dsn)
    addressed = parts.netloc or "host=" in parts.query
    if parts.scheme not in ("postgresql", "postgres") or not addressed or not parts.path.strip("/"):
        raise OperationError("PLANTLOG_DSN is invalid; legal: postgresql://user:password@host:5432/database")
    state.dsn_file("owner").parent.mkdir(mode=0o700, exist_ok=True)
    write_atomically(state.dsn_file("owner"), f"{external_dsn}\n", 0o600)
    for role in _ROLES:
        path = state.dsn_file(role)
        password = _password(state.dsn(role)) if path.exists() else secrets.token_urlsafe(24)
        login = f"plantlog_{role}:{quote(password, safe='')}@{parts.netloc.rpartition('@')[2]}"
        write_atomically(path, f"{urlunsplit(parts._replace(netloc=login))}\n", 0o600)


def _password(dsn: str) -> str:
    return urlsplit(dsn).password or ""


def psql_command(state: State) -> tuple[list[str], dict[str, str]]:
    """psql as the reader: the command, and the environment that holds the password. Raises OperationError."""
    parts = urlsplit(state.dsn("reader"))
    binaries = find(state.root)
    program = binaries.psql() if binaries is not None else [shutil.which("psql") or ""]
    if not program[0]:
        raise OperationError("psql is not installed: apt-get install postgresql-client")
    address = parts._replace(netloc=f"{parts.username}@{parts.netloc.rpartition('@')[2]}")
    environment = {**os.environ, "PGPASSWORD": parts.password or "", "PGAPPNAME": "plantlog psql"}
    return [*program, "--dbname", urlunsplit(address)], environment
