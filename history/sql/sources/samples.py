"""Samples as DuckDB reads them: of a database and its archive, or of archives alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import date, datetime
from functools import partial
from itertools import chain, islice
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from core.samples import Samples, joined, slices
from core.timestamps import microseconds, utc
from history.archive.meanings import TEXT, Meanings
from history.codec.row_groups import TIME
from history.sql.kernels.columns import RHYTHM, as_arrow, by_portion
from history.sql.sources.cluster import Cluster
from history.sql.sources.execution import in_order
from history.sql.sources.held import HELD_US, Last, Unknown, WithoutUnknown, preceded
from history.sql.sources.portion import Day, Kernel, SamplePortion, compute, forget_footers, split_days
from history.sql.sources.scan import Hours, Scan, hours_within

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
_VALUES = ("value", "status")
_DAYS = 64  # whose place is looked up at a time
_SENT = 200_000  # samples of the database, 4 MB, that are sent to a cluster with what it reads in the archive
_HERE = 1_000_000  # samples of the database, 20 MB, that wait here for each thread, however many workers there are


class SampleSource(ABC):
    """Reads samples wherever they are, as rows or by kernels."""

    def __init__(self, executor: Executor, threads: Executor, at_a_time: int) -> None:
        """Reads so many portions at a time. ``executor``: computes kernels; ``threads``: of this process, for what is
        too little or too large to be sent.
        """
        self._executor = executor
        self._cluster = executor if isinstance(executor, Cluster) else None
        self._threads = threads
        self._at_a_time = at_a_time
        forget_footers()

    @abstractmethod
    def matching(self, patterns: Sequence[str]) -> list[int]:
        """Channels that have one of these names, in which ``*`` stands for any text."""

    @abstractmethod
    def shortest_interval(self, patterns: Sequence[str] | None) -> float | None:
        """The shortest one (s) in which a channel of such a name is expected to be read; None: there is none."""

    @abstractmethod
    def quarantined_channels(self, since: datetime, until: datetime) -> list[int]:
        """Channels of which samples were quarantined with since <= time < until."""

    @abstractmethod
    def have_sample_before(self, channels: Sequence[int | None], times: Sequence[datetime | None]) -> list[bool | None]:
        """Return whether each channel has a sample before its time. None: it is not known."""

    @abstractmethod
    def held_text(self, channel: int, before: datetime) -> str | None:
        """The last text of a channel before a time, if there is one in the month before."""

    @abstractmethod
    def _meanings(self) -> Callable[[date], Meanings]:
        """Meanings of channels by the day."""

    @abstractmethod
    def _days(self) -> dict[date, bool]:
        """Day → whether the database may have samples of it."""

    @abstractmethod
    def _placed(
        self,
        scan: Scan,
        meanings_of: Callable[[date], Meanings],
        hours: Sequence[Hours],
        in_database: Mapping[date, bool],
    ) -> Iterator[Day]:
        """Days with the places of their samples."""

    @abstractmethod
    def _others(self, day: Day, within: tuple[int, int]) -> Iterator[Samples]:
        """The samples of a day that are not read in the archive only, of a channel at a time."""

    @abstractmethod
    def _require_kept(self, dropped: Mapping[date, dict[int, list[int]]]) -> None:
        """Raise OperationError if more was dropped of the days since: it was read neither here nor there, perhaps."""

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
                results = in_order(
                    lambda portion: self._threads.submit(compute, kernel, portion), of_day, self._at_a_time
                )
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
        known_by: int | None = None,
    ) -> Iterator[Result]:
        """Results of a kernel, of the samples of channels (None: all) with since <= time < until: ``within``, in µs.

        By channel. The kernel gets the samples of some whole channels at a time, with ``in_parts`` also some samples of
        one channel, if it has many. ``names``: columns that it needs. Raises OperationError.

        ``known_by``: a time (µs). Channels that have few samples, and none until then, come last, each with the last
        sample of the month before, which it gets the time ``since``. So do those of ``channels`` without a sample, but
        for those that had many on the day of their last one: they have fallen silent.
        """
        if known_by is None:
            yield from self._results(channels, within, kernel, names, in_parts=in_parts)
            return
        chosen = None if channels is None else set(channels)
        unknown, seen = list[Samples](), set[int]()
        for result in self._results(chosen, within, WithoutUnknown(kernel, known_by), names):
            if isinstance(result, Unknown):
                unknown.append(result.samples)
                seen.update(result.seen.tolist())
            else:
                yield result
        held = [self._held({number for samples in unknown for number in samples.channel.tolist()}, within[0])]
        if chosen is not None:
            held.append(self._held(chosen - seen, within[0], RHYTHM))
        if len(samples := preceded(unknown, joined(held), within[0])):
            yield from kernel([samples])

    def _held(self, channels: set[int], before: int, most: int | None = None) -> Samples:
        """The last sample of each of some channels before a time (µs), if there is one in the month before.

        ``most``: samples on its day: of a channel that had more, it is left out.
        """
        held, rest = list[Samples](), set(channels)
        days = sorted(self._days(), reverse=True) if rest else ()
        for hours in hours_within(days, before - HELD_US, before):
            first, last = hours.within
            for of_day in self._results(frozenset(rest), (first, min(last, before)), by_portion(Last.of), _VALUES):
                held.append(of_day.samples if most is None else of_day.samples.part(of_day.n <= most))
                rest.difference_update(of_day.samples.channel.tolist())
            if not rest:
                break
        return joined(held)

    def _results(
        self,
        channels: Iterable[int] | None,
        within: tuple[int, int],
        kernel: Kernel[Result],
        names: Sequence[str],
        *,
        in_parts: bool = False,
    ) -> Iterator[Result]:
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

        at_a_time, enough = self._at_a_time, inf
        if self._cluster and not is_single and any(portion.stored for portion in first):
            at_a_time = max(at_a_time, self._cluster.at_a_time())
            enough = self._at_a_time * _HERE
        results = in_order(submit, chain(first, waiting), at_a_time, attrgetter("n_others"), enough)
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


def _finished(columns: dict[str, Any], scan: Scan, meanings: Meanings) -> Any:
    """The columns of a scan."""
    if scan.mentions("name", "unit"):
        time = columns["time"].view(pa.int64()).to_numpy()
        columns.update(meanings.columns(columns["channel_id"].to_numpy(), time))
    return pa.RecordBatch.from_arrays([columns[name] for name in scan.schema.names], schema=scan.schema)
