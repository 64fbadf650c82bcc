"""A registered plant with two sealed days, and an archive of it: setup for tests of the archive."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from core.timestamps import begin
from history.archive.day_files import DayFiles
from history.archive.location import Location
from history.archive.manifest import DayFolder, Manifest, claim
from history.archive_days.day import archive_day, own_installation
from history.archive_days.verify import verify_files
from history.notebook.archive import Archive
from tests.database import Database
from tests.integration.history.sealed_plant import DAY, SealedPlant, minute
from tests.sample_tables import Sample

SPECIAL = (0x7FF8000000000ABC, 0xFFF8DEADBEEF0001, 0x7FF0000000000001, 0x8000000000000000, 0, 1, 0x7FF0000000000000)
ODD: list[Sample] = [(i * 1_000_003, SPECIAL[i % len(SPECIAL)], 0x80050000 if i % 3 else 0) for i in range(200)]


@dataclass
class Site:
    """A registered plant and an archive of it."""

    plant: SealedPlant
    folder: Path

    async def archive(self, day: Any = DAY) -> Manifest:
        """Write a day."""
        location = Location.at(str(self.folder))
        claim(location, has_days=False)
        own = await own_installation(self.plant.owner, self.plant.state)
        return await archive_day(self.plant.owner, own, location, day, self.plant.state)

    @property
    def opened(self) -> Archive:
        """For reading."""
        return Archive.open(str(self.folder))

    def file(self, table: str) -> Path:
        """The file of a table."""
        [path] = self.folder.glob(f"{table}/*/*/*.parquet")
        return path

    def files(self) -> dict[str, bytes]:
        """Everything that is there."""
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}


def problems_of(archive: Archive, day: date = DAY, anchors: Sequence[str] | None = None) -> list[str]:
    """Differences of an archived day from its seal."""
    files = DayFiles(archive.location, DayFolder(archive.installation, day), archive.manifest(day))
    return verify_files(files, anchors)[0]


@contextmanager
def tmpfs(folder: Path, mib: int) -> Iterator[None]:
    """A small disk."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "plantlog-test", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def remount(folder: Path, option: str) -> None:
    """Make it read-only (ro) or writable (rw)."""
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)


@asynccontextmanager
async def archive_site(database: Database, folder: Path) -> AsyncIterator[Site]:
    """Hours 5 and 6 of two days, with odd values, an event and a gap on the first."""
    async with SealedPlant(database, folder / "state", "north") as plant:
        for day in range(2):
            for hour in (5, 6):
                await plant.samples("unit/pressure", minute(day, [40.0 + i / 100 for i in range(120)], hour))
                await plant.samples("other/flow", minute(day, [float(np.float32(i / 10)) for i in range(120)], hour))
        await plant.samples("unit/odd", ODD)
        await plant.event(begin(DAY, 5) + timedelta(seconds=3), "text", "valve opened")
        await plant.owner.execute(
            "INSERT INTO plant.gap (source_id, from_time, to_time, reason) VALUES ($1, $2, $3, 'disconnected')",
            *(plant.source, begin(DAY, 7), begin(DAY, 8)),
        )
        await plant.seal()
        (folder / "archive").mkdir()
        yield Site(plant, folder / "archive")
