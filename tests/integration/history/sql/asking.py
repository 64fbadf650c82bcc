"""Queries of ``plantlog sql`` about a plant whose days are archived: what tests of them share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from core.errors import OperationError
from core.paths import CHECKOUT, State
from core.samples import Samples
from core.timestamps import begin
from history.archive.day_files import DayFiles
from history.reading.day_samples import DaySamples
from history.sql.session import opened
from history.sql.sources.execution import Limits
from tests.integration.history.archive_maintenance import Key, Maintained
from tests.integration.history.sealed_plant import DAY
from tests.sample_tables import bits

LIMITS = Limits("1GiB", 2, 120)
NEXT = DAY + timedelta(days=1)
Rows = list[tuple[Any, ...]]


async def rows_of(plant: Maintained, *queries: str, limits: Limits = LIMITS, state: State | None = None) -> Rows:
    """The rows of the last query. ``state``: of another installation of the database."""
    return (await rows_of_each(plant, *queries, limits=limits, state=state))[-1]


async def rows_of_each(
    plant: Maintained, *queries: str, limits: Limits = LIMITS, state: State | None = None
) -> list[Rows]:
    """The rows of each, in one session."""

    def work() -> list[Rows]:
        found = list[Rows]()
        with opened(state or plant.site.plant.state, limits) as session:
            for query in queries:
                with session.rows(query) as (_, rows):
                    found.append(list(rows))
        return found

    return await asyncio.to_thread(work)


async def samples(plant: Maintained, condition: str = "true") -> dict[Key, tuple[int, int]]:
    """By channel and time; each is there once."""
    query = "SELECT channel_id, epoch_us(time), value, status & 4294967295 FROM samples WHERE "
    rows = await rows_of(plant, query + condition)
    found = {(row[0], row[1]): (bits(row[2]), row[3]) for row in rows}
    assert len(found) == len(rows)
    return found


async def both_days(plant: Maintained) -> dict[Key, tuple[int, int]]:
    """Samples in the database."""
    return {**await plant.stored(DAY), **await plant.stored(NEXT)}


async def archived_and_dropped(plant: Maintained) -> None:
    assert (await plant.job()).outcome == "ok"
    assert await plant.drop() == ["chunk"]
    assert await plant.stored() == {}


async def failure(plant: Maintained, *queries: str, limits: Limits = LIMITS) -> str:
    with pytest.raises(OperationError) as error:
        await rows_of(plant, *queries, limits=limits)
    return str(error.value)


def environment(plant: Maintained) -> dict[str, str]:
    return {**os.environ, "PLANTLOG_STATE": str(plant.site.plant.state.root), "PYTHONPATH": str(CHECKOUT)}


class Opened:
    """Recorder of the days and channels that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        self.live: list[tuple[Any, ...]] = []
        opened_file = DayFiles.opened

        def file(files: DayFiles, one: Any, *footers: Any) -> Any:
            if one.table == "samples":
                self.files.append(str(files.folder.day))
            return opened_file(files, one, *footers)

        live = self.live

        class Observed(DaySamples):
            async def read(self, channels: Sequence[int], hours: range) -> dict[int, Samples]:
                if self.files is None and channels:
                    live.append((list(channels), begin(self.day, hours.start), begin(self.day, hours.stop)))
                return await super().read(channels, hours)

        monkeypatch.setattr(DayFiles, "opened", file)
        monkeypatch.setattr("history.sql.sources.database.DaySamples", Observed)
