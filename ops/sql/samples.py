"""The samples of archive and database together, each once, as DuckDB reads them.

Those of a channel and day come from the archive if all that is stored of them is there, by the rule by which retention
may drop them; from the database if the day is not archived; else from both, as ``plantlog verify`` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from functools import partial
from itertools import chain, islice, tee
from typing import Any

import asyncpg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ingest.errors import OperationError
from ingest.timestamps import microseconds, utc
from ops.archive.archived_days import ArchivedDays
from ops.archive.archived_samples import ArchivedSamples
from ops.archive.meanings import TEXT, Meanings
from ops.archive.sample_file import TIME
from ops.evidence.reader import Series, begin, portions, slices
from ops.paths import State
from ops.sql.ahead import ahead
from ops.sql.bins import Bins
from ops.sql.columns import Columns, as_arrow, as_batches, columns_in, columns_of, finished, in_order
from ops.sql.day_parts import Day, Parts, Task, tasks_of
from ops.sql.reader import Reader
from ops.sql.runs import Runs
from ops.sql.scan import Hours, Scan, hours_within
from ops.sql.steps import Steps
from schema.queries import load

SAMPLES = pa.schema(
    [
        pa.field("channel_id", pa.int32(), nullable=False),
        pa.field("time", TIME, nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("status", pa.int32(), nullable=False),
        pa.field("name", TEXT),
        pa.field("unit", TEXT),
    ]
)
IN_ORDER = pa.schema([SAMPLES.field(name) for name in ("channel_id", "time", "value", "status")])
_TABLES = ("samples_raw", "samples_packed")
_CHANNELS = 64  # of which a day is in memory where two places are compared
_CHANNEL_DAYS = 128  # in memory where several days are put in order
_samples = partial(as_batches, Scan(IN_ORDER, None))


class Samples:
    """Reads them."""

    def __init__(self, reader: Reader, state: State) -> None:
        self._reader = reader
        self.days = ArchivedDays(state.root)

    def read(self, scan: Scan) -> Iterator[Any]:
        """Batches with the columns of a scan. Raises OperationError."""
        needs_names = scan.mentions("name", "unit")
        rows = self._reader.fetch(load("sql")["select_meanings"]) if needs_names else []
        meanings = Meanings([tuple(row) for row in rows])
        for hours in scan.hours(self._days(), "time"):
            day = self._day(scan, meanings, hours)
            archived = chain.from_iterable(ahead(tasks_of(scan, day)))
            for columns in as_arrow(chain(archived, self._others(day))):
                yield finished(columns, scan, meanings)
            self._require_kept(day)

    def between(self, channels: frozenset[int], since: int, until: int) -> Iterator[Any]:
        """Batches of the samples of channels with since <= time < until (µs); a channel's are together, and by time."""
        within = since, until
        return self._in_order(self._within(Scan(IN_ORDER, None, channels), within), within, _samples)

    def read_runs(self, scan: Scan) -> Iterator[Any]:
        """Runs of equal values. Raises OperationError."""
        for batch in self.runs(scan, Runs.wanted(scan)):
            yield batch.select(scan.schema.names)

    def runs(self, scan: Scan, runs: Runs) -> Iterator[Any]:
        """Those of the channels of a scan, with all columns."""
        within = runs.since, runs.until
        days = self._within(scan, within)
        if any(day.is_amended for day in days):
            return runs.joined(runs.of(columns_in(batch)) for batch in self._in_order(days, within, _samples))
        return runs.joined(self._in_order(days, within, lambda found: [runs.of(found)]))

    def read_steps(self, scan: Scan) -> Iterator[Any]:
        """Far and seldom steps. Raises OperationError."""
        steps = Steps.wanted(scan)
        within = steps.since, steps.until
        days = self._within(scan, within)
        made = _samples if any(day.is_amended for day in days) else lambda found: _samples(steps.needed(found))
        for batch in steps.of(self._in_order(days, within, made)):
            yield batch.select(scan.schema.names)

    def _within(self, scan: Scan, within: tuple[int, int]) -> list[Day]:
        meanings = Meanings([])
        return [self._day(scan, meanings, one) for one in hours_within(self._days(), *within)]

    def _in_order(
        self, days: Sequence[Day], within: tuple[int, int], made: Callable[[Columns], list[Any]]
    ) -> Iterator[Any]:
        """What is made of the samples of days: batches, those of a channel together, and by time.

        ``within`` (µs): of those with such times. ``made``: makes some of samples that follow each other; between them,
        there are only those of amendments.
        """
        as_stored = len(days) < 2 and not any(day.is_amended for day in days)

        def read_and_made(task: Task) -> list[Any]:
            return [batch for found in task() for batch in made(found)]

        channels = sorted({number for day in days for number in day.channels()})
        size = max(1, len(channels) if as_stored else _CHANNEL_DAYS // len(days))
        own_days = ([day.of(frozenset(some)) for day in days] for some in slices(channels, size))
        part = Scan(IN_ORDER, None)
        read, told = tee((own, [task for day in own for task in tasks_of(part, day, within)]) for own in own_days)
        # Also of the channels that follow.
        archived = ahead((partial(read_and_made, task) for _, tasks in told for task in tasks))
        for own, tasks in read:
            others = (made(found) for day in own for found in self._others(day, within))
            found = chain.from_iterable(chain(islice(archived, len(tasks)), others))
            yield from found if as_stored else in_order(found)
        for day in days:
            self._require_kept(day)

    def read_bins(self, scan: Scan) -> Iterator[Any]:
        """Samples in bins. Raises OperationError."""
        bins = Bins.wanted(scan)
        days = self._within(scan, bins.bounds)
        columns = pa.schema([SAMPLES.field(name) for name in ("channel_id", "time", *bins.columns)])

        def binned(task: Task, alone: bool) -> list[Any]:
            return [bins.of(one, alone=alone) for one in task()]

        tasks = (
            partial(binned, task, not day.is_amended)
            for day in days
            for task in tasks_of(Scan(columns, None), day, bins.bounds)
        )
        yield from chain.from_iterable(ahead(tasks))
        for day in days:
            yield from (bins.of(found, alone=True) for found in self._others(day, bins.bounds))
            self._require_kept(day)

    def first(self, channel: int, since: datetime, until: datetime) -> datetime | None:
        """The time of a channel's first sample with since <= time < until."""
        bounds = [pa.scalar(microseconds(one), pa.int64()).cast(TIME) for one in (since, until)]
        within = (ds.field("time") >= bounds[0]) & (ds.field("time") < bounds[1])
        columns = pa.schema([SAMPLES.field(name) for name in ("channel_id", "time")])
        found = None
        for batch in self.read(Scan(columns, within, frozenset({channel}))):
            times = batch.filter(within).column("time")
            if len(times):
                one = utc(pc.min(times.cast(pa.int64())).as_py())
                if found is not None and one.date() > found.date():
                    break
                found = one if found is None else min(found, one)
        return found

    def dropped_before(self, channel: int, before: datetime) -> bool:
        """Whether an archived day of which samples were dropped has one of a channel before a time."""
        for one in self._reader.fetch(load("sql")["select_dropped_days"], before):
            for row in self._archived(one["day"]):
                if channel in self.days.places(self.days.files(row, one["day"])) and (
                    begin(one["day"], 24) <= before or self.first(channel, begin(one["day"]), before) is not None
                ):
                    return True
        return False

    def _days(self) -> list[date]:
        return [row["day"] for row in self._reader.fetch(load("sql")["select_days"], _TABLES)]

    def _day(self, scan: Scan, meanings: Meanings, hours: Hours) -> Day:
        archived = self._archived(hours.day)
        rows = self._reader.fetch(load("evidence")["select_channels"], *hours.bounds)
        stored = set(scan.channels((row["channel_id"] for row in rows), meanings.of))
        parts = [self._parts(scan, meanings, hours.day, row, stored) for row in archived]
        there = {number for one in parts for number in (*one.archived, *one.merged)}
        return Day(hours, parts, sorted(stored - there), _dropped(archived))

    def _others(self, day: Day, within: tuple[int, int] | None = None) -> Iterator[Columns]:
        """The samples of a day that are not read in the archive only, of a channel at a time.

        ``within`` (µs): no others than with such times.
        """
        merged = (
            self._merged(parts, some, day.hours) for parts in day.parts for some in slices(parts.merged, _CHANNELS)
        )
        live = self._reader.each(portions(self._reader.connection, day.live, *day.hours.bounds))
        for found in map(columns_of, chain.from_iterable(chain(merged, live))):
            if within is None:
                yield found
            elif (inside := slice(*np.searchsorted(found["time"], within).tolist())).start < inside.stop:
                yield {name: column[inside] for name, column in found.items()}

    def _require_kept(self, day: Day) -> None:
        if day.dropped != _dropped(self._archived(day.hours.day)):
            raise OperationError(f"samples of {day.hours.day} were dropped while they were read: run the query again")

    def _merged(self, parts: Parts, channels: Sequence[int], hours: Hours) -> list[Series]:
        return self._reader.run(lambda _: parts.samples.read(channels, hours.hours))

    def _archived(self, day: date) -> list[asyncpg.Record]:
        return self._reader.fetch(load("sql")["select_archived"], day)

    def _parts(self, scan: Scan, meanings: Meanings, day: date, row: asyncpg.Record, stored: set[int]) -> Parts:
        files, whole = self.days.files(row, day), frozenset(row["whole"])
        places = self.days.places(files)
        own = scan.channels(places.keys() | whole, meanings.of)
        found = self._reader.fetch(load("sql")["select_in_archive"], day, row["number"], own) if stored else []
        same = {one["channel_id"] for one in found}
        merged = {number for number in own if number not in same and (number in whole or number in stored)}
        archived = {number: places[number] for number in own if number in places and number not in merged}
        samples = ArchivedSamples(self._reader.connection, day, files, whole)
        return Parts(archived, sorted(merged), samples)


def _dropped(rows: Sequence[asyncpg.Record]) -> dict[int, list[int]]:
    """What retention has dropped of a day: for each installation, the channels that the database still has all of."""
    return {row["number"]: row["whole"] for row in rows if row["dropped"]}
