"""A sealed plant in which something happens that each question finds: setup for tests of questions over an archive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.database import Database
from tests.integration.history.archive_maintenance import Maintained, maintained
from tests.integration.history.archive_site import Site
from tests.integration.history.questions.recording import BAD, Recording
from tests.integration.history.sealed_plant import SealedPlant


@pytest.fixture
async def plant(database: Database, tmp_path: Path) -> AsyncIterator[tuple[Maintained, Recording]]:
    """Sealed plant that is not archived yet."""
    async with recorded_plant(database, tmp_path) as opened:
        yield opened


@asynccontextmanager
async def recorded_plant(
    database: Database, folder: Path, archive: Path | None = None
) -> AsyncIterator[tuple[Maintained, Recording]]:
    """Sealed plant that is not archived yet. ``folder``: gets its state folder, ``state``; ``archive``: the folder of
    its archive (None: an empty one)."""
    if archive is None:
        archive = folder / "archive"
        archive.mkdir()
    async with (
        SealedPlant(database, folder / "state", "north") as sealed,
        Recording(database, folder / "recording") as recording,
    ):
        await _record(recording)
        await sealed.seal()
        yield await maintained(Site(sealed, archive), folder), recording


async def _record(plant: Recording) -> None:
    """Record an hour and twenty minutes in which something happens at 4200 s."""
    seconds = np.arange(0.0, 4800.0)
    late = seconds >= 4200
    random = np.random.default_rng(1)

    def noise(middle: float = 50.0) -> np.ndarray:
        return random.normal(middle, 0.5, len(seconds))

    await plant.channel("boiler/stuck", unit="bar", interval=1.0, configured=-100)
    await plant.samples("boiler/stuck", seconds, np.where(late, 51.5, noise()))
    await plant.samples("boiler/silent", seconds[~late], noise()[~late])
    await plant.samples("boiler/moving", seconds, noise())
    await plant.samples("boiler/spiking", seconds, np.where(late & (seconds % 30 == 0), 95.0, noise()))
    await plant.samples("boiler/drifting", seconds, noise() + 0.05 * np.maximum(0, seconds - 4200))
    replayed = noise()
    replayed[4300:4500] = replayed[1000:1200]
    await plant.samples("pump/replayed", seconds, replayed)
    await plant.samples("boiler/frozen", seconds[~late], noise()[~late])
    await plant.standing("boiler/frozen", 4199, [(4201, 1), (4202, 2), (4204, 4)], kept=51.5)
    await plant.samples("boiler/missing", seconds[~late], noise()[~late])
    await plant.gap("boiler/missing", 4199, None)
    # Values that end at a gap: of several in an hour, of another hour than the value, and of a counter.
    await plant.samples("boiler/gapped", seconds[::60], np.where(late, 80.0, noise())[::60])
    for begin in (2500, 2505, 2580, 3700, 4300, 4310, 4790):
        await plant.gap("boiler/gapped", begin, begin + 20)
    await plant.samples("boiler/slow", [100.0, 3650.0, 4000.0, 4700.0], [1.0, 2.0, 3.0, 9.0])
    for begin in (3300, 3660, 4100, 4400):
        await plant.gap("boiler/slow", begin, begin + 1)
    await plant.channel("boiler/energy", kind="counter")
    await plant.samples("boiler/energy", seconds[::30], np.cumsum(np.where(late, 7.0, 1.0))[::30])
    for begin in (2705, 2715, 4215):
        await plant.gap("boiler/energy", begin, begin + 10)
    await plant.channel("boiler/sp", unit="°C")
    await plant.samples("boiler/sp", seconds, np.where(late, 46.0, 40.0))
    await plant.new_unit("boiler/sp", "K", 4500)
    await plant.quarantined("boiler/silent", [4300, 4310])
    for name, offset in (("a/boiler1/oxygen", 2.0), ("b/boiler1/oxygen", 0.0)):
        await plant.samples(name, seconds[::5], (noise() + late * offset)[::5])
    await plant.channel("boiler/mode", kind="text")
    for second, text in ((3500, "off"), (4200, "on"), (4600, "auto")):
        await plant.event(second, "text", text, "boiler/mode")
    await plant.event(4300, "rounded", "", "boiler/sp")
    # What they held before is of the same day, but hours before any question.
    await plant.samples("boiler/level_sp", [-10_000.0, 4200.0], [40.0, 46.0])
    await plant.channel("boiler/recipe", kind="text")
    for second, text in ((-10_000, "A"), (4200, "B")):
        await plant.event(second, "text", text, "boiler/recipe")
    for _ in range(2):
        await plant.event(4250, "source_state", "disconnected", detail='{"reason": "test", "at": 1773050400000000}')
    await plant.samples("boiler/moving", [4800.0, 4801.0], [1.0, 2.0], BAD)
    swinging = noise() + 5 * np.sin(2 * np.pi * seconds / 60)
    await plant.samples("boiler/swinging", seconds, swinging)
    await plant.samples("boiler/sister", seconds, swinging + noise(0) + 20 * late)
    for name in ("flow", "level"):  # each is its own unit of the plant
        await plant.samples(name, seconds, noise())
