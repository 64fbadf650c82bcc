"""A plant of two days, whose maintenance archives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.database import Database
from tests.integration.history.evidence.archive_maintenance import Maintained, maintained_plant


@pytest.fixture
async def plant(database: Database, tmp_path: Path) -> AsyncIterator[Maintained]:
    async with maintained_plant(database, tmp_path) as made:
        yield made
