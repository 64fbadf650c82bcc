"""Samples that only an archive has: given to a chart so that it need not show minutes.

``plant.series_width`` says by a notice which samples are missing. They are handed to the transaction, where
``plant.archived_samples`` returns them, and the query is run once more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import numpy as np

from core.errors import OperationError
from core.samples import NO_SAMPLES, Samples, joined
from core.timestamps import begin, days_between, microseconds
from history.archive.archived_days import ArchivedDays
from history.archive.location import in_background
from history.reading.day_samples import union
from history.reading.reader import read
from schema.queries import load

MAX_SAMPLES = 150_000  # a panel; as many as plant.series_width lets a chart read
_Returned = TypeVar("_Returned")


@dataclass(frozen=True, slots=True)
class _Interval:
    """Interval of a channel of which a chart has no samples."""

    channel: int
    since: datetime
    until: datetime

    @classmethod
    def of_detail(cls, detail: str) -> _Interval:
        """Parse the detail of a notice (JSON)."""
        fields = json.loads(detail)
        return cls(
            fields["channel"],
            datetime.fromisoformat(fields["from"]),
            datetime.fromisoformat(fields["to"]),
        )


class ArchiveReader:
    """Reader of archived samples that never waits long for the storage."""

    def __init__(self, state: Path, seconds: float) -> None:
        """``seconds``: for the archive's storage, a panel."""
        self._seconds = seconds
        self._days = ArchivedDays(state)
        self._reading: dict[asyncio.Future[Any], float] = {}  # → when it should have ended

    async def load_samples(self, connection: Any, details: Collection[str]) -> bool:
        """Hand samples to the transaction, if the archive has any of them.

        ``connection``: also one of a pool; ``details``: of the notices, at least one. Raises OperationError if the
        archive cannot be read, or not in time.
        """
        intervals = [_Interval.of_detail(detail) for detail in details]
        since, until = min(interval.since for interval in intervals), max(interval.until for interval in intervals)
        ends_at = asyncio.get_running_loop().time() + self._seconds
        parts_by_channel: dict[int, list[tuple[datetime, datetime, Samples]]] = {}
        left = MAX_SAMPLES
        for day in days_between(since, until):
            bounds = max(since, begin(day)), min(until, begin(day, 24))
            channels = {interval.channel for interval in intervals}
            for channel, samples in (await self._day(connection, day, channels, bounds, left, ends_at)).items():
                parts_by_channel.setdefault(channel, []).append((*bounds, samples))
                left -= len(samples)
        for channel, parts in parts_by_channel.items():
            await connection.execute(
                load("viewer")["set_archived_samples"], channel, await asyncio.to_thread(_setting, parts)
            )
        return bool(parts_by_channel)

    async def _day(
        self,
        connection: asyncpg.Connection[Any],
        day: date,
        channels: set[int],
        bounds: tuple[datetime, datetime],
        most: int,
        ends_at: float,
    ) -> dict[int, Samples]:
        """All samples of a day, of the channels with samples that are only in the archive."""
        rows = await connection.fetch(load("sql")["select_archived"], [day])
        if not any(row["dropped"] for row in rows):
            return {}
        archived = await self._in_time(ends_at, self._archived, rows, day, channels, bounds, most)
        stored = await read(connection, sorted(archived), *bounds)
        if rows != await connection.fetch(load("sql")["select_archived"], [day]):
            raise OperationError(f"samples of {day} were dropped while they were read: refresh the page")
        return {channel: union(samples, stored.get(channel, NO_SAMPLES)) for channel, samples in archived.items()}

    def _archived(
        self,
        rows: Sequence[asyncpg.Record],
        day: date,
        channels: set[int],
        bounds: tuple[datetime, datetime],
        most: int,
    ) -> dict[int, Samples]:
        samples: dict[int, Samples] = {}
        for row in (row for row in rows if row["dropped"]):
            lacking = channels.difference(row["whole"])
            for channel, samples_of_channel in self._days.files(row, day).between(lacking, *map(microseconds, bounds)):
                samples[channel] = samples_of_channel
                most -= len(samples_of_channel)
                if most < 0:
                    raise OperationError(f"there are more than {MAX_SAMPLES:,} samples: choose a shorter time range")
        return samples

    async def _in_time(self, ends_at: float, work: Callable[..., _Returned], *arguments: Any) -> _Returned:
        """Return the result of ``work``, but do not wait for it too long: storage may not answer at all (NFS)."""
        now = asyncio.get_running_loop().time()
        if any(ended < now for ended in self._reading.values()):
            raise OperationError("the archive does not answer: an earlier access still waits")
        task = in_background(work, *arguments)
        self._reading[task] = ends_at
        task.add_done_callback(self._reading.pop)
        await asyncio.wait([task], timeout=max(0.0, ends_at - now))
        if not task.done():
            raise OperationError(
                f"it took longer than {self._seconds:g} s to read the archive: refresh, or choose a shorter time range"
            )
        return task.result()


def _setting(parts: Sequence[tuple[datetime, datetime, Samples]]) -> str:
    """Samples of a channel as the text that ``plant.archived_samples`` reads."""
    ranges = ",".join(f"[{since.isoformat()},{until.isoformat()})" for since, until, _ in parts)
    samples = joined(samples_of_day for _, _, samples_of_day in parts)
    columns: list[list[Any]] = [
        column.tolist() for column in (samples.time, samples.value, samples.status.view(np.int32))
    ]
    return ";".join([f"{{{ranges}}}", *("{" + ",".join(map(repr, column)) + "}" for column in columns)])
