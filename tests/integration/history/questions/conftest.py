"""An empty plant for each test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.database import Database
from tests.integration.history.questions.recording import Recording


@pytest.fixture
async def recorded(database: Database, tmp_path: Path) -> AsyncIterator[Recording]:
    """A migrated database without channels."""
    async with Recording(database, tmp_path / "recorded") as plant:
        yield plant
