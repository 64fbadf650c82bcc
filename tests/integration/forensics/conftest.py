"""An empty plant for each test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.database import Database
from tests.integration.forensics.recording import Recording


@pytest.fixture
async def recorded(database: Database) -> AsyncIterator[Recording]:
    """A migrated database without channels."""
    async with Recording(database) as plant:
        yield plant
