"""An empty plant for each test that asks for one, and two that share an archive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.database import Database
from tests.integration.history.questions.company import Company, company_in
from tests.integration.history.questions.recording import Recording


@pytest.fixture
async def recorded(database: Database, tmp_path: Path) -> AsyncIterator[Recording]:
    """A migrated database without channels."""
    async with Recording(database, tmp_path / "recorded") as plant:
        yield plant


@pytest.fixture(scope="module")
def company(server: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """The same samples in two plants, with the same ids of channels."""
    with company_in(tmp_path_factory.mktemp("company"), server, template) as two:
        yield two
