"""One filled database for all tests of this folder, and the viewer's server on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from dashboards.viewer.library import Library
from dashboards.viewer.reader import Reader
from dashboards.viewer.server import serve
from ingest.config.model import ViewerOptions
from ops.ports import free_ports
from ops.postgres.bootstrap import bootstrap, maintenance_dsn
from schema.queries import load
from tests.database import PASSWORDS, Database, logins_of
from tests.integration.viewer.filled import fill


@pytest.fixture(scope="session")
def filled(server: str) -> Iterator[Database]:
    """A migrated database with an hour of a plant in it."""
    owner = f"{server.rpartition('/')[0]}/filled"
    database = logins_of(owner)

    async def made() -> None:
        await bootstrap(owner, PASSWORDS)
        await fill(database)

    async def dropped() -> None:
        connection = await asyncpg.connect(maintenance_dsn(server))
        await connection.execute(await connection.fetchval(load("migrate")["drop_database"], "filled"))
        await connection.close()

    asyncio.run(made())
    yield database
    asyncio.run(dropped())


@pytest.fixture
async def reader(filled: Database, tmp_path: Path) -> AsyncIterator[Reader]:
    """The viewer's connections."""
    file = tmp_path / "reader.dsn"
    file.write_text(filled.reader_dsn)
    made = Reader(file)
    yield made
    await made.close()


@pytest.fixture
async def page(reader: Reader) -> AsyncIterator[str]:
    """Where a viewer answers, on loopback without a token."""
    async with serve(ViewerOptions(port=free_ports(1)), reader, Library()) as port:
        yield f"http://127.0.0.1:{port}"
