"""A filled database for the tests of this folder, and the viewer's server on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dashboards.viewer.library import Library
from dashboards.viewer.reader import Reader
from dashboards.viewer.server import serve
from ingest.config.model import ViewerOptions
from ops.ports import free_ports
from tests.database import Database
from tests.integration.viewer.filled import NOW, filled_until


@pytest.fixture(scope="session")
def filled(server: str) -> Iterator[Database]:
    """One database for all whose questions name their times."""
    with filled_until(server, "filled", NOW) as database:
        yield database


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
