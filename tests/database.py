"""A migrated database for each test that asks for one: a copy of one that is migrated once."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import pytest

from ops.migration.migrate import create_logins, standard_logins
from ops.postgres.bootstrap import bootstrap, maintenance_dsn
from ops.postgres.server import Server

_logins: list[asyncpg.Record] = []  # as the last copy left them
_used: list[str] = []  # databases of tests that have ended: the next copy drops them, by its own connection
PASSWORDS = {"ingest": "ingest-of-tests", "reader": "reader-of-tests", "maintenance": "maintenance-of-tests"}
_MEMORY_BYTES = 8 * 1024**3  # free: for the servers of several workers
_numbers = itertools.count(1)

# A copy has the template's tables; privileges and settings of the database itself are the server's, and stay behind.
_CLOSE = "ALTER DATABASE {0} WITH ALLOW_CONNECTIONS false"
_LEAVE = "SELECT pg_terminate_backend(a.pid, 10000) FROM pg_stat_activity AS a WHERE a.datname = $1"
_COPY = "CREATE DATABASE {1} TEMPLATE {0} STRATEGY file_copy"  # half the CPU time of wal_log
_PRIVILEGES = """
UPDATE pg_database AS copy SET datacl = template.datacl
FROM pg_database AS template WHERE template.datname = $1 AND copy.datname = $2
"""
_SETTINGS = """
INSERT INTO pg_db_role_setting (setdatabase, setrole, setconfig)
SELECT copy.oid, s.setrole, s.setconfig
FROM pg_db_role_setting AS s
JOIN pg_database AS template ON template.oid = s.setdatabase
JOIN pg_database AS copy ON copy.datname = $2
WHERE template.datname = $1
"""
# Everything that create_logins makes: roles are the server's, and a test may alter them.
_LOGINS = """
SELECT
    r.rolname, r.rolcanlogin, r.rolpassword, r.rolconnlimit, r.rolvaliduntil, r.rolsuper, s.setconfig,
    shobj_description(r.oid, 'pg_authid') AS mark,
    (SELECT array_agg(m.roleid ORDER BY m.roleid) FROM pg_auth_members AS m WHERE m.member = r.oid) AS groups
FROM pg_authid AS r
LEFT JOIN pg_db_role_setting AS s ON s.setrole = r.oid AND s.setdatabase = 0
WHERE r.rolname ~ '^plantlog_'
ORDER BY r.rolname
"""


@dataclass(frozen=True, slots=True)
class Database:
    """DSNs of one migrated, empty database."""

    owner_dsn: str
    ingest_dsn: str
    reader_dsn: str
    maintenance_dsn: str

    def dsns(self, *roles: str) -> dict[str, str]:
        """DSNs of some roles, by role."""
        return {role: getattr(self, f"{role}_dsn") for role in roles}


def dsn_of(owner_dsn: str, role: str) -> str:
    """The same database as another role."""
    return f"postgresql://plantlog_{role}:{PASSWORDS[role]}@{owner_dsn.rpartition('@')[2]}"


def logins_of(owner_dsn: str) -> Database:
    """The same database with the logins of tests."""
    return Database(owner_dsn, *(dsn_of(owner_dsn, role) for role in ("ingest", "reader", "maintenance")))


_SOURCE = "INSERT INTO plant.source (id, name, kind, address) OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, '')"
_CHANNEL = """
INSERT INTO plant.channel (id, name, source_id, address, kind) OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, '', $4)
"""


async def add_sources(owner: asyncpg.Connection, *names: str, kind: str = "push") -> None:
    """Sources with the ids 1, 2, …"""
    await owner.executemany(_SOURCE, [(number, name, kind) for number, name in enumerate(names, 1)])


async def add_channels(
    owner: asyncpg.Connection, ids: Iterable[int], name: str = "c{}", source: int = 1, discrete: bool = False
) -> None:
    """Channels with these ids, named by them; with ``discrete`` even ones are of that kind, all others analog."""
    kinds = ("discrete" if discrete else "analog", "analog")
    await owner.executemany(_CHANNEL, [(i, name.format(i), source, kinds[i % 2]) for i in ids])


async def rename_channels(owner: asyncpg.Connection, since: datetime, names: Mapping[int, str]) -> None:
    """Give channels that never changed other names, also those of each other, as if it was done at a time."""
    ids = list(names)
    await owner.execute("UPDATE plant.channel SET name = 'renamed ' || id WHERE id = ANY ($1)", ids)
    await owner.execute("DELETE FROM plant.channel_version WHERE name LIKE 'renamed %'")
    await owner.executemany("UPDATE plant.channel SET name = $2 WHERE id = $1", list(names.items()))
    await owner.execute(
        "UPDATE plant.channel_version SET valid_from = CASE version WHEN 0 THEN valid_from ELSE $2 END,"
        " valid_to = CASE version WHEN 0 THEN $2 ELSE valid_to END WHERE channel_id = ANY ($1)",
        ids,
        since,
    )


async def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    """Rows that the reader sees."""
    async with connected(database.reader_dsn) as reader:
        return [tuple(row) for row in await reader.fetch(query)]


async def drop(server: str, *names: str) -> None:
    """Drop databases, whoever is connected to them."""
    async with connected(maintenance_dsn(server)) as connection:
        await _drop(connection, names)


async def _drop(connection: asyncpg.Connection, names: Iterable[str]) -> None:
    for name in names:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A superuser's DSN on a server: a private one, or the one that PLANTLOG_TEST_DSN names."""
    if dsn := os.environ.get("PLANTLOG_TEST_DSN"):
        yield dsn
        asyncio.run(drop(dsn, *_used))
        return
    # TimescaleDB's scheduler, a process per database, has no jobs here. Nothing has to survive the machine. Autovacuum
    # comes at any time: into figures of WAL, into plans.
    settings = (
        *("fsync=off", "max_wal_size=512MB", "min_wal_size=80MB", "autovacuum=off", "scram_iterations=1"),
        "shared_buffers=128MB",  # to make and drop a database reads all of it: with 4 GB, 33 ms more
        "timescaledb.max_background_workers=0",
    )
    options = [part for setting in settings for part in ("-c", setting)]
    memory = Path("/dev/shm")  # half the CPU time of a disk
    in_memory = memory.is_dir() and shutil.disk_usage(memory).free > _MEMORY_BYTES
    with (
        TemporaryDirectory(prefix="plantlog-test-", dir=memory if in_memory else None) as folder,
        Server(Path(folder), options) as private,
    ):
        yield private.owner_dsn


@pytest.fixture
async def empty_database(server: str) -> AsyncIterator[str]:
    """The owner's DSN of a database that does not exist yet; dropped before a later test."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    yield f"{server.rpartition('/')[0]}/{name}"
    _used.append(name)


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    """The name of a migrated, empty database to which nobody can connect."""
    name = f"template_{os.getpid()}"

    async def made() -> None:
        await bootstrap(f"{server.rpartition('/')[0]}/{name}", PASSWORDS)
        async with connected(maintenance_dsn(server)) as connection:
            await connection.execute(_CLOSE.format(name))
            await connection.fetch(_LEAVE, name)  # TimescaleDB's scheduler

    asyncio.run(made())
    yield name
    asyncio.run(drop(server, name))


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A session that ends with the block."""
    connection: asyncpg.Connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def owner(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """The owner's session in the test's database."""
    async with connected(database.owner_dsn) as connection:
        yield connection


@pytest.fixture
async def ingest(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """A session of the login that writes."""
    async with connected(database.ingest_dsn) as connection:
        yield connection


@pytest.fixture
async def reader(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """A session of the login that reads."""
    async with connected(database.reader_dsn) as connection:
        yield connection


@pytest.fixture
async def maintenance(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """A session of the login for maintenance."""
    async with connected(database.maintenance_dsn) as connection:
        yield connection


@pytest.fixture
async def database(server: str, template: str, empty_database: str) -> Database:
    """A migrated, empty database."""
    return await _copied(server, template, empty_database.rpartition("/")[2])


@asynccontextmanager
async def backup_of(database: Database) -> AsyncIterator[Database]:
    """A copy of a database that nobody is connected to."""
    server, _, name = database.owner_dsn.rpartition("/")
    copy = f"{name}_backup"
    try:
        yield await _copied(database.owner_dsn, name, copy)
    finally:
        await drop(server + "/" + name, copy)


@contextmanager
def prepared(
    server: str, template: str, name: str, fill: Callable[[Database], Coroutine[Any, Any, None]]
) -> Iterator[Database]:
    """A migrated database for several tests, with what ``fill`` puts into it."""

    async def made() -> Database:
        database = await _copied(server, template, name)
        await fill(database)
        return database

    try:
        yield asyncio.run(made())
    finally:
        asyncio.run(drop(server, name))


async def _copied(server: str, template: str, name: str) -> Database:
    owner_dsn = f"{server.rpartition('/')[0]}/{name}"
    async with connected(maintenance_dsn(server)) as connection:
        await _drop(connection, _used)
        _used.clear()
        await connection.execute(_COPY.format(template, name))
        await connection.execute(_PRIVILEGES, template, name)
        await connection.execute(_SETTINGS, template, name)
        if await connection.fetch(_LOGINS) != _logins:
            await create_logins(owner_dsn, standard_logins(PASSWORDS))
            _logins[:] = await connection.fetch(_LOGINS)
    return logins_of(owner_dsn)
