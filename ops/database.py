"""Which database the appliance uses: a server of its own, or the one that PLANTLOG_DSN names."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from ingest.errors import DatabaseError, OperationError
from ops import ports, presence
from ops.installation import check, mark
from ops.paths import State
from ops.postgres.binaries import find
from ops.postgres.bootstrap import create_database, until_it_answers
from ops.postgres.cluster import Cluster, provision
from schema.migrate import check_logins, create_logins, migrate
from schema.queries import load

_GIVEN = "given-database"  # marks a state folder whose database is not its own
_ROLES = ("ingest", "reader", "maintenance")
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Database:
    """The database of a state folder, whose DSNs are in ``secrets``."""

    state: State
    cluster: Cluster | None  # None: somebody else's server

    def dsn(self, role: str) -> str:
        """The DSN of ``owner``, ``ingest``, ``reader`` or ``maintenance``."""
        return self.state.dsn_file(role).read_text().strip()

    @property
    def where(self) -> str:
        """Host, port and database, without secrets."""
        return urlsplit(self.dsn("owner")).netloc.rpartition("@")[2] + urlsplit(self.dsn("owner")).path

    def settle_port(self, say: Callable[[str], None]) -> None:
        """Move to a free port where somebody else has taken ours while the server was down."""
        if self.cluster is None or ports.free("127.0.0.1", self.cluster.port):
            return
        taken = self.cluster.port
        self.cluster.move()
        say(f"port {taken} is in use{ports.holder(taken)}: the database now has {self.where}")

    async def prepare(self, take_over: bool = False, tell: Callable[[str], None] = print) -> str:
        """Schema and logins, once the server answers. Returns what was done, in words.

        Raises OperationError, with nothing changed, where the database is another installation's and not to be taken
        over. A server of our own in the state folder has no other.
        """
        owner = self.dsn("owner")
        try:
            if self.cluster is not None:
                await until_it_answers(owner.rpartition("/")[0] + "/postgres", _ANSWER_SECONDS)
                await create_database(owner)
            ours = await self._ours(take_over, tell)
            passwords = {role: _password(self.dsn(role)) for role in _ROLES}
            await check_logins(owner, passwords, ours)
            applied = await migrate(owner)
            renewed = await create_logins(owner, passwords, mark(self.state), ours)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            which = "PLANTLOG_DSN" if self.cluster is None else "this state folder"
            raise DatabaseError(f"the database of {which} ({self.where}): {type(error).__name__}: {error}") from error
        done = f"schema brought to version {applied[-1]}" if applied else "schema is up to date"
        return f"{done}; new passwords for {', '.join(renewed)}" if renewed else done

    async def missing(self) -> list[str]:
        """What should be different on this server, in words."""
        connection = await asyncpg.connect(self.dsn("owner"))
        try:
            return [row["said"] for row in await connection.fetch(load("status")["missing"])]
        finally:
            await connection.close()

    async def _ours(self, take_over: bool, tell: Callable[[str], None]) -> frozenset[str] | None:
        """The marks of logins that may be given another password; None: any."""
        connection = await asyncpg.connect(self.dsn("owner"))
        try:
            owned = await check(connection, self.state, take_over or self.cluster is not None)
            if self.cluster is None and not take_over:
                await presence.check(connection, self.state, tell)
        finally:
            await connection.close()
        if take_over or self.cluster is not None:
            return None
        # Logins from before they were marked are this installation's where the database is.
        return frozenset((mark(self.state), "")) if owned.ours else frozenset((mark(self.state),))


def provide(state: State, say: Callable[[str], None]) -> Database:
    """The database that PLANTLOG_DSN names, or the one of the last ``up``, or one of our own, made where missing."""
    given = os.environ.get("PLANTLOG_DSN")
    mark = state.run / _GIVEN
    if given:
        if (state.root / "postgres" / "cluster").exists():
            raise OperationError(
                f"PLANTLOG_DSN is set, and {state.root} has a database of its own: unset it, or set PLANTLOG_STATE "
                "to a new folder"
            )
        _remember(state, given)
        mark.touch()
        return Database(state, None)
    if mark.exists():
        _remember(state, state.dsn_file("owner").read_text().strip())  # an earlier plantlog knew fewer logins
        return Database(state, None)
    return Database(state, provision(state.root, say))


def _remember(state: State, given: str) -> None:
    parts = urlsplit(given)
    addressed = parts.netloc or "host=" in parts.query
    if parts.scheme not in ("postgresql", "postgres") or not addressed or not parts.path.strip("/"):
        raise OperationError("PLANTLOG_DSN is not like postgresql://user:password@host:5432/database")
    state.dsn_file("owner").parent.mkdir(mode=0o700, exist_ok=True)
    _write_secret(state.dsn_file("owner"), given)
    for role in _ROLES:
        path = state.dsn_file(role)
        password = _password(path.read_text().strip()) if path.exists() else secrets.token_urlsafe(24)
        login = f"plantlog_{role}:{quote(password, safe='')}@{parts.netloc.rpartition('@')[2]}"
        _write_secret(path, urlunsplit(parts._replace(netloc=login)))


def _write_secret(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    partial.write_text(text + "\n")
    partial.replace(path)


def _password(dsn: str) -> str:
    return urlsplit(dsn).password or ""


def psql_command(state: State) -> tuple[list[str], dict[str, str]]:
    """psql as the reader: the command, and the environment that holds the password. Raises OperationError."""
    path = state.dsn_file("reader")
    if not path.exists():
        raise OperationError(f"{state.root} has no database yet: run `plantlog up`")
    parts = urlsplit(path.read_text().strip())
    binaries = find(state.root)
    program = binaries.psql() if binaries is not None else [shutil.which("psql") or ""]
    if not program[0]:
        raise OperationError("psql is not installed: apt-get install postgresql-client")
    address = parts._replace(netloc=f"{parts.username}@{parts.netloc.rpartition('@')[2]}")
    environment = {**os.environ, "PGPASSWORD": parts.password or "", "PGAPPNAME": "plantlog psql"}
    return [*program, "--dbname", urlunsplit(address)], environment
