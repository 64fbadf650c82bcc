"""Computes the rollup rows of one minute with numpy, without the database.

As ``plant.minutes_of``, ``plant.state_minutes_of`` and ``plant.increase_minutes_of`` (schema/routines/rollups) make
them, to the bit. They are written by binary COPY (see ``copy_stream``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s, Int32s, Int64s
from core.copy_stream import HEADER, TRAILER
from core.samples import changes
from core.timestamps import MINUTE_US, POSTGRES_EPOCH_US

MINUTE_COLUMNS = (
    *("channel_id", "n", "bucket", "n_good", "sum", "area", "known", "holds"),
    *("min", "max", "first", "last", "first_time", "last_time"),
)
STATE_COLUMNS = ("channel_id", "bucket", "state", "n", "known")
INCREASE_COLUMNS = ("channel_id", "bucket", "increase")
_HOLD_US = 86_400_000_000  # plant.hold_limit()

Bools: TypeAlias = NDArray[np.bool_]
_Field: TypeAlias = tuple[str, Any]  # numpy type of a field, and its values; None: NULL


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Channels whose minutes have more than rows of rollup_1m, ascending."""

    discrete: Int32s
    counters: Int32s
    wraps_at: Float64s  # of the counters; NaN: they do not wrap

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Kinds:
        """``rows``: of section ``select_kinds`` of write.sql."""
        discrete, counters = ([row for row in rows if row["kind"] == kind] for kind in ("discrete", "counter"))
        return cls(
            np.array([row["id"] for row in discrete], np.int32),
            np.array([row["id"] for row in counters], np.int32),
            np.array([row["wraps_at"] for row in counters], np.float64),
        )

    def changed(self, other: Kinds) -> Int32s:
        """Channels of another kind, and counters that wrap elsewhere."""
        both, here, there = np.intersect1d(self.counters, other.counters, return_indices=True)
        before, now = self.wraps_at[here], other.wraps_at[there]
        others = np.setxor1d(self.discrete, other.discrete), np.setxor1d(self.counters, other.counters)
        return np.concatenate((*others, both[(before != now) & ~(np.isnan(before) & np.isnan(now))]))


class SampleCourse(NamedTuple):
    """Samples and starts of gaps by channel and time, each with its predecessor, as columns of equal length."""

    channel: Int32s
    time: Int64s
    value: Float64s
    good: Bools  # not Bad, not NaN, not a gap
    holds: Bools  # good, and not too large to be summed
    time_before: Int64s  # far in the past: no predecessor
    before: Float64s
    before_holds: Bools

    def part(self, chosen: Bools | NDArray[np.intp]) -> SampleCourse:
        """The samples at indices, or where a mask is true."""
        return SampleCourse._make(column[chosen] for column in self)

    def held_time(self, begin: int) -> Int64s:
        """µs since ``begin`` during which the previous value was valid, (n,)."""
        until = np.minimum(self.time, self.time_before + _HOLD_US)
        return np.where(self.before_holds, np.maximum(until - np.maximum(self.time_before, begin), 0), 0)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of rollup_1m of one minute by channel, as columns of equal length; min to last_time are undefined without
    ``n_good``."""

    channel_id: Int32s
    n: Int32s
    min: Float64s
    max: Float64s
    sum: Float64s
    area: Float64s
    first: Float64s
    last: Float64s
    known: Int64s  # µs
    first_time: Int64s  # µs
    last_time: Int64s  # µs
    n_good: Int32s
    holds: Bools
    carried_time: Int64s  # time of the last sample before the minute, µs
    carried: Float64s
    carries: Bools  # whether it has a value; if not, nothing is known until the first sample of the minute

    def __len__(self) -> int:
        return len(self.channel_id)

    def part(self, chosen: Bools) -> Rows:
        """The rows where a mask is true."""
        return Rows(*(getattr(self, name)[chosen] for name in self.__slots__))


def rows(begin: int, channel: Int32s, columns: dict[str, NDArray[Any]]) -> Rows:
    """The rows of the minute starting at ``begin`` (µs) from what was accumulated."""
    n, n_good, last, holds = columns["n"], columns["n_good"], columns["last"], columns["holds"]
    left_over = np.where(holds, begin + MINUTE_US - columns["last_time"], 0)
    behind = np.where(holds, weight(last) * (left_over / 1e6), 0.0)
    most = np.where(n_good > 0, weight(np.minimum(np.maximum(-columns["min"], columns["max"]), 1e280)), 0.0)
    sums = {
        "sum": rounded_sum(columns["sum"], n, most),
        "area": rounded_sum(columns["area"] + behind, n + 1, most * 60),
        "known": columns["known"] + left_over,
    }
    return Rows(channel, **{**columns, **sums})


class States(NamedTuple):
    """Rows of rollup_states_1m of one minute by channel and state."""

    channel_id: Int32s
    state: Float64s
    entered: Int64s
    known: Int64s  # µs

    def part(self, chosen: Bools) -> States:
        """The states where a mask is true."""
        return States._make(column[chosen] for column in self)


_NO_INT64S = np.zeros(0, np.int64)
NO_STATES = States(_NO_INT64S.astype(np.int32), _NO_INT64S.astype(np.float64), _NO_INT64S, _NO_INT64S)


def states(courses: Sequence[SampleCourse], channels: Int32s, begin: int) -> States:
    """States of ``channels`` in the minute starting at ``begin`` (µs), as by ``plant.state_minutes_of``."""
    courses = [course.part(np.isin(course.channel, channels)) for course in courses]
    if not sum(len(course.channel) for course in courses):
        return NO_STATES
    course = SampleCourse._make(np.concatenate(column) for column in zip(*courses, strict=True))
    order = np.lexsort((course.time, course.channel))
    course = course.part(order)
    last = np.roll(changes(course.channel), -1)
    stays = course.before_holds & (course.before == course.value) & (course.time_before + _HOLD_US >= course.time)
    behind = np.where(last, begin + MINUTE_US - course.time, 0)
    held_time = course.held_time(begin)
    before, holds = course.before_holds, course.holds
    channel = np.concatenate((course.channel[before], course.channel[holds]))
    state = np.concatenate((course.before[before], course.value[holds])) + 0.0  # no -0
    entered = np.concatenate((np.zeros(int(before.sum()), np.int64), (~stays[holds]).astype(np.int64)))
    known_time = np.concatenate((held_time[before], behind[holds]))
    if not len(channel):
        return NO_STATES
    order = np.lexsort((state, channel))
    channel, state = channel[order], state[order]
    first = np.flatnonzero(changes(channel) | changes(state))
    entered, known_time = np.add.reduceat(entered[order], first), np.add.reduceat(known_time[order], first)
    has_state = (entered > 0) | (known_time > 0)
    return States(channel[first][has_state], state[first][has_state], entered[has_state], known_time[has_state])


class Increases(NamedTuple):
    """Rows of rollup_increases_1m of one minute by channel."""

    channel_id: Int32s
    increase: Float64s

    def part(self, chosen: Bools) -> Increases:
        """The rows where a mask is true."""
        return Increases._make(column[chosen] for column in self)


def weight(value: Float64s) -> Float64s:
    """Weight of values in sums, as by ``plant.rollup_weight``."""
    size = np.abs(value)
    return np.where((size >= 1e-280) & (size <= 1e280), value, 0.0)


def summable(value: Float64s) -> Bools:
    """Mask of values that ``plant.rollup_weight`` gives a weight; NaN and infinities have none."""
    mask: Bools = np.abs(value) <= 1e280
    return mask


def rounded_sum(total: Float64s, terms: Int32s, most: Float64s) -> Float64s:
    """Sums rounded to what their terms determine, as by ``plant.round_sum``."""
    with np.errstate(over="ignore"):
        near = np.rint(total * 1e6) / 1e6
    off = 2.3e-16 * terms
    is_near = (np.abs(total) < 9e9) & (np.abs(near - total) <= off * np.abs(total) + off * most)
    return np.where(is_near, near + 0.0, total)


def minute_stream(rows: Rows, begin: int) -> memoryview:
    """``MINUTE_COLUMNS`` of the minute that starts at ``begin`` (µs); rows without a good sample come last."""
    good = rows.n_good > 0
    return _stream(_minutes(rows.part(good), begin, True), _minutes(rows.part(~good), begin, False))


def _minutes(rows: Rows, begin: int, good: bool) -> NDArray[np.uint8]:
    numbers: list[_Field] = [
        (">f8", column if good else None) for column in (rows.min, rows.max, rows.first, rows.last)
    ]
    times: list[_Field] = [
        (">i8", column - POSTGRES_EPOCH_US if good else None) for column in (rows.first_time, rows.last_time)
    ]
    fields: list[_Field] = [
        (">i4", rows.channel_id),
        (">i4", rows.n),
        (">i8", begin - POSTGRES_EPOCH_US),
        (">i4", rows.n_good),
        (">f8", rows.sum),
        (">f8", rows.area),
        (">i8", rows.known),
        ("u1", rows.holds),
    ]
    return _tuples(len(rows), [*fields, *numbers, *times])


def state_stream(states: States, begin: int) -> memoryview:
    """``STATE_COLUMNS`` of the minute that starts at ``begin`` (µs)."""
    fields: list[_Field] = [
        (">i4", states.channel_id),
        (">i8", begin - POSTGRES_EPOCH_US),
        (">f8", states.state),
        (">i4", states.entered),
        (">i8", states.known),
    ]
    return _stream(_tuples(len(states.channel_id), fields))


def increase_stream(increases: Increases, begin: int) -> memoryview:
    """``INCREASE_COLUMNS`` of the minute that starts at ``begin`` (µs)."""
    fields: list[_Field] = [
        (">i4", increases.channel_id),
        (">i8", begin - POSTGRES_EPOCH_US),
        (">f8", increases.increase),
    ]
    return _stream(_tuples(len(increases.channel_id), fields))


def _tuples(n: int, fields: Sequence[_Field]) -> NDArray[np.uint8]:
    """The bytes of ``n`` tuples: number of fields, then length (-1: NULL) and value of each."""
    dtype: list[tuple[str, str]] = [("fields", ">i2")]
    for index, (kind, values) in enumerate(fields):
        dtype += [(f"length{index}", ">i4"), *([(f"value{index}", kind)] if values is not None else [])]
    rows = np.empty(n, np.dtype(dtype))
    rows["fields"] = len(fields)
    for index, (kind, values) in enumerate(fields):
        rows[f"length{index}"] = -1 if values is None else np.dtype(kind).itemsize
        if values is not None:
            rows[f"value{index}"] = values
    return rows.view(np.uint8)


def _stream(*tuples: NDArray[np.uint8]) -> memoryview:
    header, trailer = np.frombuffer(HEADER, np.uint8), np.frombuffer(TRAILER, np.uint8)
    return np.concatenate((header, *tuples, trailer)).data
