"""A migrated database for each test that asks for one."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from ops.postgres.bootstrap import bootstrap, maintenance_dsn
from ops.postgres.server import Server
from schema.queries import load

_CHECKOUT = Path(__file__).parents[1]
PASSWORDS = {"ingest": "ingest-of-tests", "reader": "reader-of-tests", "maintenance": "maintenance-of-tests"}
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Database:
    """DSNs of one migrated, empty database."""

    owner_dsn: str
    ingest_dsn: str
    reader_dsn: str
    maintenance_dsn: str


def dsn_of(owner_dsn: str, role: str) -> str:
    """The same database as another role."""
    return f"postgresql://plantlog_{role}:{PASSWORDS[role]}@{owner_dsn.rpartition('@')[2]}"


def logins_of(owner_dsn: str) -> Database:
    """The same database with the logins of tests."""
    return Database(owner_dsn, *(dsn_of(owner_dsn, role) for role in ("ingest", "reader", "maintenance")))


async def drop(server: str, name: str) -> None:
    """Without the database, whoever is connected to it."""
    connection = await asyncpg.connect(maintenance_dsn(server))
    await connection.execute(await connection.fetchval(load("migrate")["drop_database"], name))
    await connection.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A superuser's DSN on a server: a private one, or the one that PLANTLOG_TEST_DSN names."""
    given = os.environ.get("PLANTLOG_TEST_DSN")
    if given:
        yield given
        return
    os.environ.setdefault("PLANTLOG_ROOTFS", str(_CHECKOUT / ".state" / "postgres" / "rootfs"))
    with Server(tmp_path_factory.mktemp("server")) as private:
        yield private.owner_dsn


@pytest.fixture
async def empty_database(server: str) -> AsyncIterator[str]:
    """The owner's DSN of a database that does not exist yet; dropped afterwards."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    yield f"{server.rpartition('/')[0]}/{name}"
    await drop(server, name)


@pytest.fixture
async def database(empty_database: str) -> Database:
    """A migrated, empty database."""
    await bootstrap(empty_database, PASSWORDS)
    return logins_of(empty_database)
