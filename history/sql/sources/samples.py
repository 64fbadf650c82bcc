"""The samples of archive and database together, each once, as DuckDB reads them.

Those of a channel and day come from the archive if all that is stored of them is there, by the rule by which retention
may drop them; from the database if the day is not archived; else from both, as ``plantlog evidence verify`` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import date, datetime
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import asyncpg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from core.errors import OperationError
from core.paths import State
from core.samples import Samples
from core.timestamps import begin, microseconds, utc
from history.archive.archived_days import ArchivedDays
from history.archive.channel_table import places_of
from history.archive.meanings import TEXT, Meanings
from history.codec.row_groups import TIME
from history.reading.day_samples import DaySamples
from history.reading.reader import slices
from history.sql.kernels.columns import as_arrow, by_portion
from history.sql.sources.cluster import Cluster
from history.sql.sources.execution import THREADS, in_order
from history.sql.sources.portion import ArchivedDay, Day, Kernel, SamplePortion, compute, forget_footers, split_days
from history.sql.sources.reader import ReaderConnection
from history.sql.sources.scan import Hours, Scan, hours_within
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
Result = TypeVar("Result")
_TABLES = ("samples_raw", "samples_packed")
_VALUES = ("value", "status")
_DAYS = 64  # whose place is looked up at a time
_SENT = 200_000  # samples of the database, 4 MB, that are sent to a cluster with what it reads in the archive


class SampleSource:
    """Reads samples of archive and database, as rows or by kernels."""

    def __init__(
        self, reader: ReaderConnection, state: State, executor: Executor, threads: Executor, at_a_time: int
    ) -> None:
        """``executor``: computes kernels, of so many portions at a time; ``threads``: of this process, for what is too
        little or too large to be sent.
        """
        self._reader = reader
        self._use(executor, threads, at_a_time)
        self.days = ArchivedDays(state.root)

    def _use(self, executor: Executor, threads: Executor, at_a_time: int) -> None:
        self._executor = executor
        self._cluster = executor if isinstance(executor, Cluster) else None
        self._threads = threads
        self._at_a_time = max(at_a_time, THREADS)
        forget_footers()

    def read(self, scan: Scan) -> Iterator[Any]:
        """Batches with the columns of a scan. Raises OperationError."""
        meanings_of = self._meanings() if scan.mentions("name", "unit") else lambda _: Meanings([])
        names = [name for name in _VALUES if scan.mentions(name)]
        kernel = by_portion(partial(as_arrow, names))
        in_database = self._days()
        for group in slices(list(scan.hours(in_database, "time")), _DAYS):
            dropped = dict[date, dict[int, list[int]]]()
            for day in self._placed(scan, meanings_of, group, in_database):
                of_day = self._portions([day], day.hours.within, names, in_parts=True)
                results = in_order(lambda portion: self._threads.submit(compute, kernel, portion), of_day)
                for columns in chain.from_iterable(chain.from_iterable(results)):
                    yield _finished(columns, scan, meanings_of(day.hours.day))
                dropped[day.hours.day] = day.dropped
            self._require_kept(dropped)

    def results(
        self,
        channels: Iterable[int] | None,
        within: tuple[int, int],
        kernel: Kernel[Result],
        names: Sequence[str] = _VALUES,
        *,
        in_parts: bool = False,
    ) -> Iterator[Result]:
        """Results of a kernel, of the samples of channels (None: all) with since <= time < until: ``within``, in µs.

        By channel. The kernel gets the samples of some whole channels at a time, with ``in_parts`` also some samples of
        one channel, if it has many. ``names``: columns that it needs. Raises OperationError.
        """
        scan = Scan(SAMPLES, None, None if channels is None else frozenset(channels))
        in_database = self._days()
        hours = hours_within(in_database, *within)
        days = list(self._placed(scan, lambda _: Meanings([]), hours, in_database))
        waiting = self._portions(days, within, names, in_parts=in_parts)
        first = list(islice(waiting, 2))
        is_single = len(first) == 1  # it takes longer to be sent

        def submit(portion: SamplePortion) -> Future[list[Result]]:
            is_here = is_single or not portion.stored or (self._cluster and portion.n_others > _SENT)
            return (self._threads if is_here else self._executor).submit(compute, kernel, portion)

        at_a_time = self._at_a_time
        if self._cluster and not is_single and any(portion.stored for portion in first):
            at_a_time = max(at_a_time, self._cluster.at_a_time())
        results = in_order(submit, chain(first, waiting), at_a_time)
        yield from chain.from_iterable(results)
        self._require_kept({day.hours.day: day.dropped for day in days})

    def _portions(
        self, days: Sequence[Day], within: tuple[int, int], names: Sequence[str], *, in_parts: bool
    ) -> Iterator[SamplePortion]:
        for group in split_days(days, in_parts=in_parts):
            stored = [archived for day in group for archived in day.stored(within)]
            others = [samples for day in group for samples in self._others(day, within)]
            yield SamplePortion(stored, others, names, in_parts)

    def first(self, channel: int, since: datetime, until: datetime) -> datetime | None:
        """The time of a channel's first sample with since <= time < until."""
        bounds = [pa.scalar(microseconds(bound), pa.int64()).cast(TIME) for bound in (since, until)]
        within = (ds.field("time") >= bounds[0]) & (ds.field("time") < bounds[1])
        columns = pa.schema([SAMPLES.field(name) for name in ("channel_id", "time")])
        earliest = None
        for batch in self.read(Scan(columns, within, frozenset({channel}))):
            times = batch.filter(within).column("time")
            if len(times):
                time = utc(pc.min(times.cast(pa.int64())).as_py())
                if earliest is not None and time.date() > earliest.date():
                    break
                earliest = time if earliest is None else min(earliest, time)
        return earliest

    def _dropped_before(self, channel: int, before: datetime) -> bool:
        """Return whether an archived day of which samples were dropped has one of a channel before a time."""
        for dropped in self._reader.fetch_once(load("sql")["select_dropped_days"], before):
            for row in self._archived([dropped["day"]])[dropped["day"]]:
                if channel in places_of(self.days.places(self.days.files(row, dropped["day"])), [channel]) and (
                    begin(dropped["day"], 24) <= before
                    or self.first(channel, begin(dropped["day"]), before) is not None
                ):
                    return True
        return False

    def matching(self, patterns: Sequence[str]) -> list[int]:
        """Channels that have one of these names, in which ``*`` stands for any text."""
        ids: list[int] = self._value("select_matching_channels", patterns)
        return ids

    def shortest_interval(self, patterns: Sequence[str] | None) -> float | None:
        """The shortest one (s) in which a channel of such a name is expected to be read; None: there is none."""
        shortest: float | None = self._value("select_shortest_interval", patterns)
        return shortest

    def quarantined_channels(self, since: datetime, until: datetime) -> list[int]:
        """Channels of which samples were quarantined with since <= time < until."""
        return self._value("select_quarantined_channels", since, until) or []

    def have_sample_before(self, channels: Sequence[int | None], times: Sequence[datetime | None]) -> list[bool | None]:
        """Return whether each channel has a sample before its time: 1 ms each. None: it is not known."""
        rows = self._reader.fetch(load("sql")["select_have_sample_before"], channels, times)
        return [
            stored or (self._dropped_before(channel, time) if channel and time else None)
            for channel, time, (stored,) in zip(channels, times, rows, strict=True)
        ]

    def _value(self, section: str, *arguments: Any) -> Any:
        """Value of the only row of a query."""
        [row] = self._reader.fetch_once(load("sql")[section], *arguments)
        return row[0]

    def _meanings(self) -> Callable[[date], Meanings]:
        """Meanings of channels by the day."""
        meanings = Meanings([tuple(row) for row in self._reader.fetch(load("sql")["select_meanings"])])
        return lambda _: meanings

    def _days(self) -> dict[date, bool]:
        """Day → whether the database may have samples of it."""
        rows = self._reader.fetch(load("sql")["select_days"], _TABLES)
        return {row["day"]: row["in_database"] for row in rows}

    def _placed(
        self,
        scan: Scan,
        meanings_of: Callable[[date], Meanings],
        hours: Sequence[Hours],
        in_database: Mapping[date, bool],
    ) -> Iterator[Day]:
        """Days, of which the next one is looked at when it is needed; what is archived is looked up for all at once."""
        archived = self._archived([hours_of_day.day for hours_of_day in hours])
        for hours_of_day in hours:
            day = hours_of_day.day
            yield self._day(scan, meanings_of(day), hours_of_day, archived[day], in_database[day])

    def _day(
        self, scan: Scan, meanings: Meanings, hours: Hours, archived: Sequence[asyncpg.Record], in_database: bool
    ) -> Day:
        rows = self._reader.fetch(load("evidence")["select_channels"], *hours.bounds) if in_database else []
        stored = set(scan.channels((row["channel_id"] for row in rows), meanings.of_channel))
        parts = [self._parts(scan, meanings, hours.day, row, stored) for row in archived]
        archived_channels = {number for part in parts for number in (*part.archived, *part.merged)}
        return Day(hours, parts, frozenset(stored - archived_channels), _dropped(archived))

    def _others(self, day: Day, within: tuple[int, int]) -> Iterator[Samples]:
        """The samples of a day that are not read in the archive only, of a channel at a time."""
        live = DaySamples(self._reader.connection, day.hours.day), day.live
        sources = [live, *((part.samples, part.merged) for part in day.parts)]
        for samples, channels in sources:
            if samples is None or not channels:
                continue
            portions = samples.portions(sorted(channels), day.hours.hours)
            for of_channel in chain.from_iterable(
                samples_by_channel.values() for samples_by_channel in self._reader.iterate(portions)
            ):
                first, last = np.searchsorted(of_channel.time, within).tolist()
                if first < last:
                    yield of_channel.part(slice(first, last))

    def _require_kept(self, dropped: Mapping[date, dict[int, list[int]]]) -> None:
        """Raise OperationError if more was dropped of the days since: it was read neither here nor there, perhaps."""
        for day, rows in self._archived(list(dropped)).items():
            if _dropped(rows) != dropped[day]:
                raise OperationError(f"samples of {day} were dropped while they were read: run the query again")

    def _archived(self, days: Sequence[date]) -> dict[date, list[asyncpg.Record]]:
        rows: dict[date, list[asyncpg.Record]] = {day: [] for day in days}
        for row in self._reader.fetch(load("sql")["select_archived"], days):
            rows[row["day"]].append(row)
        return rows

    def _parts(self, scan: Scan, meanings: Meanings, day: date, row: asyncpg.Record, stored: set[int]) -> ArchivedDay:
        files, whole_channels = self.days.files(row, day), frozenset(row["whole"])
        table = self.days.places(files)
        channels = scan.channels({*table["channel_id"].to_pylist(), *whole_channels}, meanings.of_channel)
        places = places_of(table, channels)
        same_rows = self._reader.fetch(load("sql")["select_in_archive"], day, row["number"], channels) if stored else []
        same_channels = {same["channel_id"] for same in same_rows}
        merged = {
            number
            for number in channels
            if number not in same_channels and (number in whole_channels or number in stored)
        }
        archived = {number: places[number] for number in channels if number in places and number not in merged}
        samples = DaySamples(self._reader.connection, day, files, whole_channels)
        return ArchivedDay.of_files(archived, frozenset(merged), files, samples)


def _dropped(rows: Sequence[asyncpg.Record]) -> dict[int, list[int]]:
    """Samples that retention dropped of a day: by installation, the channels that the database still has whole."""
    return {row["number"]: row["whole"] for row in rows if row["dropped"]}


def _finished(columns: dict[str, Any], scan: Scan, meanings: Meanings) -> Any:
    """The columns of a scan."""
    if scan.mentions("name", "unit"):
        time = columns["time"].view(pa.int64()).to_numpy()
        columns.update(meanings.columns(columns["channel_id"].to_numpy(), time))
    return pa.RecordBatch.from_arrays([columns[name] for name in scan.schema.names], schema=scan.schema)
