"""A filled database for the tests of this folder, and the viewer's server on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dashboards.viewer.reader import ReaderPool
from tests.database import Database, prepared
from tests.integration.dashboards.viewer.sample_plant import fill
from tests.integration.dashboards.viewer.serving import reading, served


@pytest.fixture(scope="session")
def filled(server: str, template: str) -> Iterator[Database]:
    """One database for all whose questions name their times."""
    with prepared(server, template, "filled", fill) as database:
        yield database


@pytest.fixture
async def reader(filled: Database, tmp_path: Path) -> AsyncIterator[ReaderPool]:
    """The viewer's connections."""
    async with reading(filled.reader_dsn, tmp_path) as connections:
        yield connections


@pytest.fixture
async def page(reader: ReaderPool) -> AsyncIterator[str]:
    """Address of a viewer, on loopback without users."""
    async with served(reader) as address:
        yield address
