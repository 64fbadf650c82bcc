"""The database of the appliance: a server in the state folder, or the one of PLANTLOG_DSN."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from core.config.model import Plant
from core.database import FAILURES, connect, connected, is_away
from core.errors import DatabaseAway, DatabaseError, OperationError
from core.files import write_atomically
from core.paths import State
from ops import ports
from ops.migration.migrate import DatabaseLogin, check_logins, create_logins, lock_logins, migrate
from ops.postgres import verified
from ops.postgres.binaries import find, remember_cache
from ops.postgres.bootstrap import create_database, maintenance_dsn, wait_until_ready
from ops.postgres.cluster import Cluster, provision
from ops.postgres.listening import Listening
from ops.postgres.membership import check_appliance
from ops.registration import heartbeat, pair
from ops.registration.installation import find_other, installation_id, login_mark
from schema.queries import load

_ROLES = ("ingest", "reader", "maintenance")
_ANSWER_SECONDS = 60.0
_HINT_SECONDS = 3.0  # for what a command only hints at
_HARMLESS = re.compile("LANG|LC_[A-Z]+|PATH|PGCLIENTENCODING|PGTZ|TERM|COLUMNS|LINES")  # variables, to psql


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

    def ensure_free_port(self, progress: Callable[[str], None], others: Collection[int]) -> None:
        """Choose another port if another program took ours while the server was down, or if ``others`` has it."""
        if self.cluster is None:
            return
        while (port := self.cluster.port) in others or not ports.is_free("127.0.0.1", port):
            self.cluster.move()
            use = "is that of another process" if port in others else f"is in use{ports.holder(port)}"
            progress(f"port {port} {use}; the database moves to {self.where}")

    async def prepare(
        self, take_over: str | None = None, progress: Callable[[str], None] = print, plant: Plant | None = None
    ) -> str:
        """Create or upgrade schema and logins once the server responds. Returns what was done, as text.

        ``take_over``: another installation, whose logins are locked. Raises OperationError, with nothing changed, if it
        is running, or if a copy of this state folder is; or if it is not the member of a redundant pair that ``plant``
        says. Raises DatabaseAway, with nothing changed, if a server that is not our own does not respond.
        """
        owner = self.state.dsn("owner")
        try:
            if self.cluster is not None:
                await wait_until_ready(maintenance_dsn(owner), _ANSWER_SECONDS)
                await create_database(owner)
            else:
                await self._check_answer(owner)
            mark = login_mark(installation_id(self.state))
            await self._check_presence(take_over, mark, progress, plant)
            logins = await self._choose_logins(mark)
            applied = await migrate(owner)
            renewed = await create_logins(owner, logins, mark)
        except FAILURES as error:
            raise DatabaseError(self._failure(error)) from error
        result = f"schema version {applied[-1]}" if applied else "schema is up to date"
        return f"{result}; new passwords for {', '.join(renewed)}" if renewed else result

    async def _check_answer(self, owner: str) -> None:
        try:
            connection = await connect(owner, "plantlog up")
        except FAILURES as error:
            if is_away(error):
                raise DatabaseAway(self._failure(error)) from error
            raise
        await connection.close()

    def _failure(self, error: BaseException) -> str:
        database_name = "PLANTLOG_DSN" if self.cluster is None else "this state folder"
        reason = ": ".join(filter(None, (type(error).__name__, str(error))))
        return f"database of {database_name} ({self.where}): {reason}"

    async def setting_problems(self) -> list[str]:
        """Server settings that should be different, as text."""
        async with connected(self.state.dsn("owner"), "plantlog up") as connection:
            return [row["problem"] for row in await connection.fetch(load("status")["select_problems"])]

    async def _check_presence(
        self, take_over: str | None, mark: str, progress: Callable[[str], None], plant: Plant | None
    ) -> None:
        async with connected(self.state.dsn("owner"), "plantlog up") as connection:
            if take_over is not None:
                other = await find_other(connection, self.state, take_over)
                await heartbeat.check_gone(connection, other, progress)
                await lock_logins(connection, login_mark(other.id), mark)
                return
            is_pair = plant is not None and await pair.check(connection, self.state, plant, progress)
            if self.cluster is None and not is_pair:
                await heartbeat.check(connection, self.state, progress)

    async def _choose_logins(self, mark: str) -> dict[str, DatabaseLogin]:
        """The logins by role. Where another installation has a login of that name, ours gets a name of its own."""
        logins = {role: DatabaseLogin.of_dsn(self.state.dsn(role)) for role in _ROLES}
        marks, rejected = await check_logins(self.state.dsn("owner"), logins.values())
        for role, login in logins.items():
            if login.name in rejected and marks[login.name] != mark:
                own_login = DatabaseLogin(_login_name(role, str(installation_id(self.state))[:8]), login.password)
                dsn = own_login.dsn(self.state.dsn("owner"))
                with suppress(OSError):  # a secret that is mounted read-only: create_logins refuses the login
                    write_atomically(self.state.dsn_file(role), f"{dsn}\n", 0o600)
                    logins[role] = own_login
        return logins


def provide(state: State, progress: Callable[[str], None], plant: Plant | None = None) -> Database:
    """The database of PLANTLOG_DSN, that of the last ``up``, or an own server, created if missing.

    ``plant``: says where an own server listens.
    """
    listens = None if plant is None else Listening.of_plant(plant, state.root)
    if listens is not None and state.has_external_database:
        raise OperationError(f"[database] host: found {listens.host!r}; legal: no [database] with PLANTLOG_DSN")
    check_appliance(state)
    marker = state.external_database_marker
    if external_dsn := _external_dsn(state):
        _store_dsns(state, external_dsn)
        marker.touch()
        return Database(state, None)
    if marker.exists():
        _store_dsns(state, state.dsn("owner"))  # an earlier plantlog knew fewer logins
        if hosts := verified.unverified_hosts(state.dsn("owner")):  # no reason to end the collection
            progress(f"the connection to the database at {', '.join(hosts)} is not verified: its DSN lacks verify-full")
        return Database(state, None)
    remember_cache(state.root)
    cluster = provision(state.root, progress)
    if plant is not None:
        cluster.listening = listens
    return Database(state, cluster)


def next_dsn(state: State) -> str | None:
    """The owner's DSN that the next :func:`provide` uses; None: it makes a server. Raises OperationError."""
    return _external_dsn(state) or (state.dsn("owner") if state.dsn_file("owner").exists() else None)


def _external_dsn(state: State) -> str | None:
    """PLANTLOG_DSN; None: it is not set. Raises OperationError if it can't be used."""
    external_dsn = os.environ.get("PLANTLOG_DSN")
    if not external_dsn:
        return None
    if (state.root / "postgres" / "cluster").exists():
        raise OperationError(
            f"PLANTLOG_DSN is set, but {state.root} has its own database: unset it, or set PLANTLOG_STATE "
            "to a new folder"
        )
    verified.check(dsn := _checked(external_dsn), "PLANTLOG_DSN")
    return dsn


def _store_dsns(state: State, external_dsn: str) -> None:
    external_dsn = _checked(external_dsn)
    state.dsn_file("owner").parent.mkdir(mode=0o700, exist_ok=True)
    write_atomically(state.dsn_file("owner"), f"{external_dsn}\n", 0o600)
    for role in _ROLES:
        path = state.dsn_file(role)
        login = DatabaseLogin(_login_name(role), secrets.token_urlsafe(24))
        if path.exists():
            login = DatabaseLogin.of_dsn(state.dsn(role))
        write_atomically(path, f"{login.dsn(external_dsn)}\n", 0o600)


def _checked(dsn: str) -> str:
    """A DSN; one of several hosts asks for the primary, also in psql."""
    parts = urlsplit(dsn)
    options = parse_qs(parts.query)
    addressed = parts.netloc or "host" in options
    if parts.scheme not in ("postgresql", "postgres") or not addressed or not parts.path.strip("/"):
        raise OperationError(
            "PLANTLOG_DSN is invalid; legal: postgresql://user:password@host:5432/database, or of a primary and its "
            "standbys: postgresql://user:password@host1:5432,host2:5432/database"
        )
    if "," in "".join(options.get("host", [])):
        raise OperationError("PLANTLOG_DSN: several hosts stand before the path: //user:password@host1,host2/database")
    attributes = "".join(options.pop("target_session_attrs", ["primary"]))
    if attributes not in ("primary", "read-write"):
        raise OperationError(
            f"PLANTLOG_DSN: target_session_attrs={attributes}: plantlog needs the primary; legal: read-write, primary"
        )
    if "," not in parts.netloc:
        return dsn
    # Sessions of the reader are read-only on any server: read-write would exclude all.
    options["target_session_attrs"] = ["primary"]
    return urlunsplit(parts._replace(query=urlencode(options, doseq=True, safe="/")))


def _login_name(*parts: str) -> str:
    return "_".join(("plantlog", *parts))


def psql_command(state: State, statements: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """psql as the reader: the command, and the environment that holds the password. Raises OperationError.

    ``statements``: SQL that it only passes on to the server; it runs no other program, and reads no file.
    """
    parts = urlsplit(state.dsn("reader"))
    binaries = find(state.root)
    program = str(binaries.path("psql")) if binaries is not None else shutil.which("psql")
    if not program:
        raise OperationError("psql is not installed: apt-get install postgresql-client")
    address = parts._replace(netloc=f"{parts.username}@{parts.netloc.rpartition('@')[2]}")
    variables = {name: text for name, text in os.environ.items() if not statements or _HARMLESS.fullmatch(name)}
    environment = {**variables, "PGPASSWORD": parts.password or "", "PGAPPNAME": "plantlog psql"}
    options = (
        ["--no-psqlrc", "--pset=pager=off", *(f"--command={statement}" for statement in statements)]
        if statements
        else []
    )
    return [program, "--dbname", urlunsplit(address), *options], environment


def archived_until(state: State) -> date | None:
    """The newest day of which samples are only in the archive; None: there is none, or the database does not say."""

    async def fetched() -> date | None:
        async with connected(state.dsn("reader"), "plantlog psql", seconds=_HINT_SECONDS) as connection:
            day: date | None = await connection.fetchval(load("sql")["select_archived_until"])
            return day

    try:
        return asyncio.run(fetched())
    except FAILURES:
        return None
