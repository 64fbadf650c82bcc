"""Kernels that judge all channels of a unit together, as functions that DuckDB calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from core.timestamps import HOUR_US
from history.sql.kernels.columns import ChannelFields, Channels, KernelSource, by_channels, spans
from history.sql.kernels.comparison import DIFFERENCES, Comparison
from history.sql.kernels.departures import DEPARTURES, Departures
from history.sql.kernels.episodes import EPISODES, Episodes
from history.sql.kernels.relations import RELATIONS, Relations
from history.sql.kernels.resampled import Grid
from history.sql.kernels.unit_means import Means, UnitKernel, by_unit


class UnitFunctions:
    """Functions of two intervals: each returns a list in an array of Arrow.

    ``channels``: a list of CHANNEL; ``units``: that of each channel; ``before``: a reference or an earlier run, from
    when to when. All times in µs.
    """

    def __init__(self, source: KernelSource) -> None:
        self._source = source

    def departures_of(
        self,
        channels: list[ChannelFields],
        units: list[int],
        before: list[int],
        since: int,
        until: int,
        step: int,
        alarm_every: int,
    ) -> Any:
        """Departures of units from since on (kernels/departures.py)."""
        kernel = Departures(since, before[0], step, alarm_every)
        return self._by_unit(DEPARTURES, kernel, channels, units, before, (since, until), step)

    def differences_of(
        self,
        channels: list[ChannelFields],
        units: list[int],
        before: list[int],
        since: int,
        until: int,
        step: int,
        warp: int,
    ) -> Any:
        """Differences from another run (kernels/comparison.py). ``warp``: µs."""
        kernel = Comparison(since, before[0], step, min(max(warp, 0) // step, 500))
        apart = max(since - before[1], before[0] - until) > HOUR_US  # else what is silent in both is the same
        return self._by_unit(DIFFERENCES, kernel, channels, units, before, (since, until), step, with_silent=apart)

    def relations_of(
        self,
        channels: list[ChannelFields],
        units: list[int],
        before: list[int],
        since: int,
        until: int,
        step: int,
        alarm_every: int,
        least_correlation: float,
        machines: list[int],
        sisters: list[int],
    ) -> Any:
        """Broken relations from since on (kernels/relations.py). ``machines``, ``sisters``: those of each channel."""
        ids = [channel["channel_id"] for channel in channels]
        machine_of, sisters_of = (dict(zip(ids, some, strict=True)) for some in (machines, sisters))
        discrete = {channel["channel_id"] for channel in channels if channel["kind"] == "discrete"}
        kernel = Relations(since, step, alarm_every, least_correlation, machine_of, sisters_of, discrete)
        return self._by_unit(RELATIONS, kernel, channels, units, before, (since, until), step)

    def episodes_of(
        self,
        channels: list[ChannelFields],
        units: list[int],
        before: list[int],
        since: int,
        until: int,
        step: int,
        alarm_every: int,
    ) -> Any:
        """Episodes of channels from since on (kernels/episodes.py)."""
        kernel = Episodes(since, step, alarm_every, spans(channels))
        return self._by_unit(EPISODES, kernel, channels, units, before, (since, until), step)

    def _by_unit(
        self,
        kind: Any,
        kernel: UnitKernel,
        channels: list[ChannelFields],
        units: list[int],
        before: Sequence[int],
        now: Sequence[int],
        step: int,
        *,
        with_silent: bool = False,
    ) -> Any:
        """Rows of a kernel of two intervals, a list of structs as the only element of an array of Arrow.

        ``with_silent``: also of set points and the like that nobody changed in an interval.
        """
        unit_of = {channel["channel_id"]: unit for channel, unit in zip(channels, units, strict=True)}
        means = by_unit(unit_of, *(self._means(channels, interval, step, with_silent) for interval in (before, now)))
        rows = [row for unit in means for row in kernel.of_unit(unit)]
        return pa.array([rows], pa.list_(kind))

    def _means(self, channels: list[ChannelFields], within: Sequence[int], step: int, with_silent: bool) -> Means:
        """Number of whole buckets of an interval, and their means. What was known an hour before it holds.

        A part of a bucket at the end has another mean, of a part of a cycle. Only an interval that is shorter than a
        bucket has one of its own length.
        """
        since, until = within
        grid = Grid(Channels.of_fields({**one, "ends": min(one["ends"], until)} for one in channels), since, step)
        n, bounds = max((until - since) // step, 1), (since - HOUR_US, until)
        ids, known_by = [one["channel_id"] for one in channels], since if with_silent else None
        return n, self._source.results(ids, bounds, by_channels(grid.numbers, n), known_by=known_by)
