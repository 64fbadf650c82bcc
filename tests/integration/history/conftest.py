"""A plant with three days of two channels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from core.timestamps import begin
from tests.database import Database
from tests.integration.history.archive_site import Site, archive_site
from tests.integration.history.sealed_plant import DAY, SealedPlant, minute


@pytest.fixture
async def plant(database: Database, tmp_path: Path) -> AsyncIterator[SealedPlant]:
    """Hours 5 and 6 of three days; an event and a gap on the first."""
    async with SealedPlant(database, tmp_path / "state") as sealed:
        for day in range(3):
            for hour in (5, 6):
                await sealed.samples("unit/pressure", minute(day, [40.0 + i / 100 for i in range(120)], hour))
                await sealed.samples("unit/flow", minute(day, [float(i % 7) for i in range(120)], hour))
        await sealed.event(begin(DAY, 5) + timedelta(seconds=3), "text", "valve opened")
        await sealed.owner.execute(
            "INSERT INTO plant.gap (source_id, from_time, to_time, reason) VALUES ($1, $2, $3, 'disconnected')",
            sealed.source,
            begin(DAY, 7),
            begin(DAY, 8),
        )
        yield sealed


@pytest.fixture
async def site(database: Database, tmp_path: Path) -> AsyncIterator[Site]:
    """An archive and its plant."""
    async with archive_site(database, tmp_path) as archive:
        yield archive


@pytest.fixture
async def database_plant(database: Database, tmp_path: Path) -> AsyncIterator[SealedPlant]:
    """A registered installation with three days of a channel."""
    async with SealedPlant(database, tmp_path / "state", "mill") as sealed:
        for day in range(3):
            await sealed.samples("unit/pressure", minute(day, [40.0 + i / 100 for i in range(120)], 5))
        yield sealed
