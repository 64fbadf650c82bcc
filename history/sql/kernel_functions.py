"""Kernels as functions that DuckDB calls: of all samples of some channels, which several processes read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from itertools import chain
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from core.samples import NO_SAMPLES, Samples
from core.timestamps import HOUR_US
from history.codec.row_groups import TIME
from history.sql.kernels import runs, weighted_statistics
from history.sql.kernels.aggregates import AGGREGATES, Aggregates, require_intervals
from history.sql.kernels.changes import CHANGES, Changes
from history.sql.kernels.columns import (
    CHANNEL,
    ChannelFields,
    Channels,
    Columns,
    KernelSource,
    by_channels,
    by_portion,
    listed,
    spans,
)
from history.sql.kernels.comparison import DIFFERENCES
from history.sql.kernels.correlations import CORRELATIONS, Correlations
from history.sql.kernels.courses import CONFIGURATION, HOLD, Configuration, Courses, neighbours
from history.sql.kernels.departures import DEPARTURES
from history.sql.kernels.episodes import EPISODES
from history.sql.kernels.excursions import FAR_OFF, Excursions
from history.sql.kernels.interpolated import VALUES, Values
from history.sql.kernels.intervals import INTERVALS, PAUSES, SampleIntervals, pauses
from history.sql.kernels.movers import MOVES, Movers
from history.sql.kernels.oscillations import OSCILLATIONS, Oscillations
from history.sql.kernels.reference import WIDTHS, reach
from history.sql.kernels.relations import RELATIONS
from history.sql.kernels.replays import PAIRS, Replays
from history.sql.kernels.resampled import MEANS, Grid, require_length
from history.sql.kernels.runs import RUNS, USUAL_LENGTHS, Runs
from history.sql.kernels.set_points import HELD_VALUES, HeldValues
from history.sql.kernels.steps import DECREASES, STEPS, Decreases, Steps
from history.sql.kernels.unit_means import dense
from history.sql.kernels.weighted_statistics import STATISTICS, WeightedInterval
from history.sql.unit_functions import UnitFunctions

_SQL_TYPES = {
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.string(): "VARCHAR",
    TIME: "TIMESTAMP WITH TIME ZONE",
}
Result = TypeVar("Result")
Noted = Callable[[Callable[..., Any]], Callable[..., Any]]


class KernelFunctions:
    """Functions that :meth:`register` names. Each returns a list in an array of Arrow."""

    def __init__(self, source: KernelSource) -> None:
        self._source = source
        self._units = UnitFunctions(source)

    def register(self, connection: Any, noted: Noted, is_needed: Callable[[str], bool]) -> None:
        """Let queries call those that are needed, by name. ``noted``: has the errors of a function remembered."""
        ids, names, number = duckdb.list_type("INTEGER"), duckdb.list_type("VARCHAR"), "BIGINT"
        channels, configuration = _sql_type(pa.list_(CHANNEL)), _sql_type(CONFIGURATION)
        unit_arguments = [channels, ids, duckdb.list_type(number), *[number] * 3]
        for function, arguments, kind in (
            (self.sample_intervals, [ids, *[number] * 3], INTERVALS),
            (self.value_runs, [ids, *[number] * 3], RUNS),
            (self.held_values, [ids, "BOOLEAN", *[number] * 5], HELD_VALUES),
            (self.value_steps, [ids, duckdb.list_type(number), *[number] * 3, "DOUBLE"], STEPS),
            (self.longest_runs, [channels, *[number] * 3, "DOUBLE"], USUAL_LENGTHS),
            (self.pauses, [ids, *[number] * 2], PAUSES),
            (self.weighted_statistics_of, [_sql_type(pa.list_(weighted_statistics.INTERVAL))], STATISTICS),
            (self.replays, [ids, *[number] * 3, "INTEGER"], PAIRS),
            (self.resampled_means, [channels, *[number] * 4], MEANS),
            (self.first_moves, [channels, duckdb.list_type(number), *[number] * 3, "DOUBLE", "DOUBLE"], MOVES),
            (self.lagged_correlations, [channels, channels, *[number] * 3, "INTEGER"], CORRELATIONS),
            (self.far_samples, [channels, duckdb.list_type(number), *[number] * 4, "DOUBLE"], FAR_OFF),
            (self.changes_of, [channels, duckdb.list_type(number), *[number] * 3, "DOUBLE"], CHANGES),
            (self.oscillations_of, [channels, *[number] * 3, "DOUBLE"], OSCILLATIONS),
            (self.counter_decreases_of, [channels, *[number] * 2], DECREASES),
            (self.aggregates_of, [channels, *[number] * 3, names, "DOUBLE", "DOUBLE", configuration], AGGREGATES),
            (self.values_at, [channels, *[number] * 3, duckdb.list_type(number), configuration], VALUES),
            (self._units.differences_of, [*unit_arguments, number], DIFFERENCES),
            (self._units.relations_of, [*unit_arguments, number, "DOUBLE", ids, ids], RELATIONS),
            (self._units.episodes_of, [*unit_arguments, number], EPISODES),
            (self._units.departures_of, [*unit_arguments, number], DEPARTURES),
        ):
            if not is_needed(name := function.__name__):
                continue
            call = noted(_by_row(function))
            # Else DuckDB makes constants of the rows, one by one, when it plans a query.
            options = {"type": "arrow", "null_handling": "special", "side_effects": True}
            connection.create_function(name, call, arguments, _sql_type(pa.list_(kind)), **options)

    def sample_intervals(self, channels: list[int] | None, since: int, until: int, pause: int) -> Any:
        """Samples up to each pause, counted (kernels/intervals.py). ``channels``: None: all."""
        kernel = SampleIntervals(pause)
        intervals = self._source.results(
            channels, (since, until), by_portion(kernel.compute), ("status",), in_parts=True
        )
        return listed(INTERVALS, intervals)

    def value_runs(self, channels: list[int] | None, since: int, until: int, least: int) -> Any:
        """Runs of equal values (kernels/runs.py). ``channels``: None: all."""
        kernel = Runs(least)
        parts = self._source.results(channels, (since, until), kernel.compute_parts, in_parts=True)
        return listed(RUNS, kernel.joined(parts))

    def held_values(
        self, channels: list[int], has_ramps: bool, first: int, since: int, until: int, settle: int, hold: int
    ) -> Any:
        """Values that channels hold (kernels/set_points.py), of samples with first <= time < until (µs).

        Those that report only changes are known by ``since``.
        """
        kernel = HeldValues(has_ramps, settle, hold, until)
        values = self._source.results(channels, (first, until), by_portion(kernel.compute), known_by=since)
        return listed(HELD_VALUES, values)

    def value_steps(
        self, channels: list[int] | None, before: list[int], since: int, until: int, few: int, false_alarms: float
    ) -> Any:
        """Large and rare steps (kernels/steps.py). ``channels``: None: all; ``before``: a reference."""
        begin, end = before
        kernel = Steps(few, (begin, end), false_alarms)
        within = min(begin, since), max(end, until)
        return listed(STEPS, self._source.results(channels, within, by_portion(kernel.compute), known_by=since))

    def pauses(self, channels: list[int], since: int, until: int) -> Any:
        """Pauses that are longer than usual (kernels/intervals.py), of samples with since <= time < until (µs)."""
        return listed(PAUSES, self._source.results(channels, (since, until), by_portion(pauses), names=()))

    def weighted_statistics_of(self, intervals: list[dict[str, Any]]) -> Any:
        """The mean and the spread of the values of channels in intervals (kernels/weighted_statistics.py)."""
        kernels = weighted_statistics.overlapping(map(WeightedInterval.of_fields, intervals))
        results = [
            self._source.results(
                kernel.intervals[0].channels.channels.tolist(),
                kernel.samples,
                by_portion(kernel.compute),
                known_by=min(interval.since for interval in kernel.intervals),
            )
            for kernel in kernels
        ]
        return listed(STATISTICS, chain.from_iterable(results))

    def replays(self, channels: list[int], first: int, since: int, until: int, samples: int) -> Any:
        """Pairs of history/sql/kernels/replays.py of channels, of samples with first <= time < until (µs).

        ``samples``: 0: as many as chance requires.
        """
        kernel = by_portion(Replays(since, samples or None).compute)
        return listed(PAIRS, self._source.results(channels, (first, until), kernel))

    # ``channels`` and ``target`` are lists of CHANNEL. Values hold from ``first`` (µs) on, or from an hour before.

    def longest_runs(
        self, channels: list[ChannelFields], first: int, until: int, hold: int, false_alarms: float
    ) -> Any:
        """Time that a value is rarely kept for longer, by these samples (kernels/runs.py)."""
        every = Channels.of_fields(channels)
        kernel = partial(runs.longest, channels=every, false_alarms=false_alarms, hold=hold)
        return listed(USUAL_LENGTHS, self._results(channels, (first, until), by_portion(kernel)))

    def resampled_means(self, channels: list[ChannelFields], first: int, since: int, until: int, step: int) -> Any:
        """The means of buckets from since on (kernels/resampled.py)."""
        grid = Grid(Channels.of_fields(channels), since, step)
        kernel = by_channels(grid.compute, (until - since) // step)
        return listed(MEANS, self._results(channels, (first, until), kernel))

    def first_moves(
        self,
        channels: list[ChannelFields],
        before: list[int],
        since: int,
        until: int,
        step: int,
        false_alarms: float,
        sigmas: float,
    ) -> Any:
        """The first moves from since on, beyond what was usual in a reference, ``before`` (kernels/movers.py).

        ``false_alarms``: the mean time between those of a channel. All in µs.
        """
        require_length("step", step)
        begin, end = before
        first = since - step * max(-(-(since - begin) // step), 2 * reach(WIDTHS[-1]))
        grid = Grid(Channels.of_fields(channels), first, step)
        states = {channel["channel_id"] for channel in channels if channel["kind"] == "discrete"}
        movers = Movers(grid, spans(channels), (begin, end), since, false_alarms, states, sigmas)
        within = first - HOUR_US, max(until, end)
        kernel = by_channels(movers.compute, (within[1] - first) // step)
        return listed(MOVES, self._results(channels, within, kernel, min(begin, since)))

    def lagged_correlations(
        self,
        channels: list[ChannelFields],
        target: list[ChannelFields],
        since: int,
        until: int,
        step: int,
        most: int,
    ) -> Any:
        """The correlations with a target (kernels/correlations.py), by whole buckets."""
        buckets = (until - since) // step
        within = since - HOUR_US, since + buckets * step
        of_target = self._results(target, within, by_portion(Grid(Channels.of_fields(target), since, step).numbers))
        [values] = dense(np.array([one["channel_id"] for one in target], np.int32), buckets, of_target)
        kernel = Correlations(Grid(Channels.of_fields(channels), since, step), values, most)
        return listed(CORRELATIONS, self._results(channels, within, by_channels(kernel.compute, buckets)))

    def far_samples(
        self,
        channels: list[ChannelFields],
        before: list[int],
        since: int,
        until: int,
        short: int,
        long: int,
        false_alarms: float,
    ) -> Any:
        """Samples and means that are farther off than in a reference, ``before`` (kernels/excursions.py)."""
        begin, end = before
        intervals = (begin, end), (since, until)
        kernel = Excursions(Channels.of_fields(channels), spans(channels), *intervals, short, long, false_alarms)
        within = min(begin, since), max(end, until)
        return listed(FAR_OFF, self._results(channels, within, by_portion(kernel.compute)))

    def changes_of(
        self, channels: list[ChannelFields], before: list[int], since: int, until: int, step: int, least_score: float
    ) -> Any:
        """Changes of level, slope or spread from since on that are larger than usual (kernels/changes.py).

        ``before``: a reference.
        """
        require_length("step", step)
        begin, end = before
        first = since - step * -(-max(since - begin, 0) // step)
        grid = Grid(Channels.of_fields(channels), first, step)
        changes = Changes(grid, spans(channels), (begin, end), (since, until), least_score)
        within = min(begin, since) - HOUR_US, max(end, until)
        kernel = by_channels(changes.compute, (within[1] - first) // step)
        return listed(CHANGES, self._results(channels, within, kernel, min(begin, since)))

    def oscillations_of(
        self, channels: list[ChannelFields], since: int, until: int, step: int, least_regularity: float
    ) -> Any:
        """Oscillations of channels from since on (kernels/oscillations.py)."""
        grid = Grid(Channels.of_fields(channels), since, step)
        buckets = (until - since) // step
        kernel = by_channels(Oscillations(grid, buckets, least_regularity).compute, buckets)
        return listed(OSCILLATIONS, self._results(channels, (since - HOUR_US, until), kernel))

    def counter_decreases_of(self, channels: list[ChannelFields], since: int, until: int) -> Any:
        """Decreases of counters (kernels/steps.py)."""
        kernel = Decreases(Channels.of_fields(channels))
        return listed(DECREASES, self._results(channels, (since, until), by_portion(kernel.compute)))

    # ``channels``: with their gaps and ends from 24 hours before the first time until 24 hours after the last one.

    def aggregates_of(
        self,
        channels: list[ChannelFields],
        since: int,
        until: int,
        step: int,
        names: list[str],
        state: float,
        fraction: float,
        configuration: dict[str, Any],
    ) -> Any:
        """Aggregates of intervals from since until the end (kernels/aggregates.py)."""
        courses = self._courses(channels, (since, until), configuration)
        return listed(AGGREGATES, self._of_courses(courses, Aggregates(courses, step, names, state, fraction)))

    def values_at(
        self,
        channels: list[ChannelFields],
        since: int,
        until: int,
        step: int,
        times: list[int] | None,
        configuration: dict[str, Any],
    ) -> Any:
        """Values at times (µs), ascending (kernels/interpolated.py). Without times: from since on every step."""
        require_intervals(since, until, step)
        at_times = np.arange(since, until, step) if times is None else np.array(times, np.int64)
        values = list[Columns]()
        for near_times in np.split(
            at_times, np.flatnonzero(np.diff(at_times) > HOLD) + 1
        ):  # nothing is read between them
            if len(near_times):
                courses = self._courses(channels, (int(near_times[0]), int(near_times[-1]) + 1), configuration)
                values += self._of_courses(courses, Values(courses, near_times))
        return listed(VALUES, values)

    def _courses(
        self, channels: list[ChannelFields], window: tuple[int, int], configuration: dict[str, Any]
    ) -> Courses:
        chosen = Configuration(**configuration)
        around = neighbours(self._read, [channel["channel_id"] for channel in channels], window, chosen)
        return Courses.of_fields(channels, window, around, chosen)

    def _of_courses(self, courses: Courses, kernel: Aggregates | Values) -> Iterator[Columns]:
        """The columns of a kernel, also of channels without samples in the window."""
        ids, results = courses.channels.channels, list[Columns]()
        for columns in self._read(ids.tolist(), courses.window, kernel.compute):
            results.append(columns)
            yield columns
        with_samples = np.concatenate([NO_SAMPLES.channel, *(columns["channel_id"] for columns in results)])
        if others := np.setdiff1d(ids, with_samples).tolist():
            yield kernel.of_channels(others, NO_SAMPLES)

    def _read(
        self, ids: Iterable[int], within: tuple[int, int], compute: Callable[[Samples], Result]
    ) -> Iterator[Result]:
        return self._source.results(ids, within, by_portion(compute))

    def _results(
        self,
        channels: Iterable[ChannelFields],
        within: tuple[int, int],
        kernel: Callable[[Iterable[Samples]], Iterable[Columns]],
        known_by: int | None = None,
    ) -> Iterator[Columns]:
        ids = (channel["channel_id"] for channel in channels)
        return self._source.results(ids, within, kernel, known_by=known_by)


def _by_row(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function of columns, by one of the elements of a row."""

    @wraps(call)  # DuckDB counts its parameters
    def columnar(*columns: Any) -> Any:
        return pa.concat_arrays([call(*(value.as_py() for value in row)) for row in zip(*columns, strict=True)])

    return columnar


def _sql_type(kind: Any) -> str:
    """DuckDB's name of a type of Arrow."""
    if pa.types.is_list(kind):
        return f"{_sql_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{field.name} {_sql_type(field.type)}' for field in kind)})"
    return _SQL_TYPES[kind]
