"""The course of a channel's value between its samples, which aggregates are computed from (OPC 10000-13).

The points are the samples, and the start of each recorded gap, 1 µs after it, as a Bad one. A value holds at most 24
hours, never beyond now or the channel's retirement; samples further apart are not connected.

Simple bounds (3.1.9): what follows a Bad point has no value. A line that would end in a Bad point is constant, and
Uncertain. Interpolated bounds (3.1.8): Bad points are skipped, and what was drawn across one is Uncertain; so is the
value after the last sample. If Uncertain samples are treated as Bad, they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from core.errors import OperationError
from core.samples import Samples, joined, segments
from history.sql.kernels.columns import ChannelFields, Channels

HOLD = 24 * 3_600_000_000  # µs that a value holds at most
EARLY, LATE = -(2**56), 2**56  # before and after all times (µs)
GOOD, UNCERTAIN, BAD, GAP = range(4)  # qualities of points
CONFIGURATION = pa.struct(
    [
        ("stepped", pa.bool_()),
        ("simple_bounds", pa.bool_()),
        ("treat_uncertain_as_bad", pa.bool_()),
        ("percent_data_bad", pa.int32()),
        ("percent_data_good", pa.int32()),
        ("use_sloped_extrapolation", pa.bool_()),
    ]
)
_HUGE, _TINY = 1e280, 1e-200  # sums of values above, and products of those below, would be out of range
# What a function makes of samples of channels (ids) within bounds (µs): it is given those of some channels at a time.
Read: TypeAlias = Callable[[Collection[int], tuple[int, int], Callable[[Samples], Samples]], Iterable[Samples]]
_SEARCH_SPANS = (60_000_000, 3_600_000_000)  # µs: most channels have samples nearby
_BLOCK_ROWS = 65_536  # rows: arrays of twice as many no longer fit into caches


@dataclass(frozen=True, slots=True)
class Configuration:
    """AggregateConfiguration of OPC 10000-13 (4.2.1.2), and how values are bounded."""

    stepped: bool | None = None  # a value holds until the next one, else a line joins them; None: but for analog ones
    simple_bounds: bool = False
    treat_uncertain_as_bad: bool = True
    percent_data_bad: int = 100
    percent_data_good: int = 100
    use_sloped_extrapolation: bool = False

    def __post_init__(self) -> None:
        """Check the percentages. Raises OperationError."""
        bad, good = self.percent_data_bad, self.percent_data_good
        if not (0 <= bad <= 100 and 0 <= good <= 100 and bad + good >= 100):
            raise OperationError(
                f"--percent-data-bad: found {bad}, --percent-data-good: found {good}; "
                "legal: 0 to 100 each, and 100 or more together"
            )

    @property
    def worst(self) -> int:
        """Quality of the worst samples whose values count."""
        return GOOD if self.treat_uncertain_as_bad else UNCERTAIN


def qualities(samples: Samples) -> NDArray[np.int8]:
    """GOOD, UNCERTAIN or BAD for each sample. NaN, infinities and huge values are Bad."""
    value, status = samples.value, samples.status.view(np.int32)
    with np.errstate(invalid="ignore"):
        bad = (status < 0) | ~(np.abs(value) <= _HUGE)
    return np.where(bad, BAD, status >= 1 << 30).astype(np.int8)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Samples and starts of gaps of some channels, by channel and time; (n,) each, of p channels."""

    position: Int64s  # of the channel among these
    time: Int64s  # µs
    value: Float64s
    quality: NDArray[np.int8]
    status: NDArray[np.int32]  # of samples
    known_until: Int64s  # (p,) µs, until when the last value may hold
    stepped: NDArray[np.bool_]  # (p,) whether a value holds until the next one

    def ranges(self, window: tuple[int, int]) -> tuple[Int64s, Int64s]:
        """Begin and end of the data of each channel (µs), (p,) each.

        They begin at the first sample from the window on, unless there is one in the 24 hours before. They end where
        the last value no longer holds, or a gap begins, unless there is a sample in the 24 hours after the window.
        """
        since, until = window
        n = len(self.known_until)
        begins, ends = np.full(n, LATE), np.full(n, EARLY)
        for rows in segments(self.position):
            position, gap = int(self.position[rows.start]), self.quality[rows] == GAP
            time = self.time[rows][~gap]
            oldest, first, beyond, last = np.searchsorted(time, (since - HOLD, since, until, until + HOLD)).tolist()
            begins[position] = EARLY if first > oldest else time[first] if first < len(time) else LATE
            if last > beyond:
                ends[position] = LATE
            elif beyond:
                newest = time[beyond - 1]
                gaps = self.time[rows][gap]
                gaps = gaps[gaps > newest]
                ends[position] = gaps[0] if len(gaps) else min(newest + HOLD, self.known_until[position])
        return begins, ends


@dataclass(frozen=True, slots=True, eq=False)
class Courses:
    """Channels in a window, with samples around it."""

    channels: Channels
    analog: NDArray[np.bool_]  # (channels,)
    window: tuple[int, int]  # µs
    around: Samples  # samples before and after the window that values in it depend on: of :func:`neighbours`
    configuration: Configuration

    @classmethod
    def of_fields(
        cls,
        channels: list[ChannelFields],
        window: tuple[int, int],
        around: Samples,
        configuration: Configuration,
    ) -> Courses:
        """``channels``: with gaps and ends from 24 hours before until 24 hours after the window."""
        chosen = Channels.of_fields(channels)
        kinds = {channel["channel_id"]: channel["kind"] for channel in channels}
        analog = np.array([kinds[number] == "analog" for number in chosen.channels.tolist()], np.bool_)
        return cls(chosen, analog, window, around, configuration)

    def points(self, ids: Sequence[int], inside: Samples) -> Points:
        """The points of some channels, ascending. ``inside``: their samples in the window, by channel and time."""
        samples = self._with_neighbours(ids, inside)
        channel, time = samples.channel, samples.time
        value, quality = samples.value, qualities(samples)
        with np.errstate(invalid="ignore"):
            value = np.where(np.abs(value) < _TINY, 0.0, value)
        status, position = samples.status.view(np.int32), np.searchsorted(ids, channel)
        at, begins, owners = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for rows in segments(channel):
            edges = self._gaps(int(channel[rows.start]), int(time[rows.stop - 1])) + 1
            at.append(rows.start + np.searchsorted(time[rows], edges))
            begins.append(edges)
            owners.append(np.full(len(edges), position[rows.start]))
        rows_at = np.concatenate(at)
        if len(rows_at):
            position = np.insert(position, rows_at, np.concatenate(owners))
            time = np.insert(time, rows_at, np.concatenate(begins))
            value, status = np.insert(value, rows_at, np.nan), np.insert(status, rows_at, 0)
            quality = np.insert(quality, rows_at, GAP)
        indices = self.channels.positions(np.array(ids, np.int32))
        always = self.configuration.stepped
        stepped = ~self.analog[indices] if always is None else np.full(len(ids), always)
        return Points(position, time, value, quality, status, self.channels.ends[indices], stepped)

    def _with_neighbours(self, ids: Sequence[int], inside: Samples) -> Samples:
        numbers, pieces = np.array(ids, np.int32), list[Samples]()
        of_inside, of_around = (_edges(samples.channel, numbers) for samples in (inside, self.around))
        before = self.around.time < self.window[0]
        for (first, last), (oldest, newest) in zip(of_inside, of_around, strict=True):
            middle = oldest + int(np.count_nonzero(before[oldest:newest]))
            pieces += [
                self.around.part(slice(oldest, middle)),
                inside.part(slice(first, last)),
                self.around.part(slice(middle, newest)),
            ]
        return joined(pieces)

    def _gaps(self, channel: int, newest: int) -> Int64s:
        """Begins of a channel's gaps (µs), as far as they matter to the window. ``newest``: its last sample."""
        begins: Int64s = self.channels.gaps_of(channel)[:, 0]
        since, until = self.window
        return begins[(begins >= since - HOLD) & (begins < max(until, newest))]


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Lines from one value to the next, by channel and time; (n,) each."""

    position: Int64s  # of the channel
    at: Int64s  # µs
    ends: Int64s  # µs
    first: Float64s
    last: Float64s
    good_until: Int64s  # µs: the value is Good before, and Uncertain from then on
    status: NDArray[np.int32]  # of the sample
    quality: NDArray[np.int8]  # the same


def _edges(channel: NDArray[np.int32], ids: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    """The first row of each of some channels, and the one behind its last; of rows by channel."""
    first, last = (np.searchsorted(channel, ids, side).tolist() for side in ("left", "right"))
    return zip(first, last, strict=True)


def courses(
    points: Points, configuration: Configuration, window: tuple[int, int], *, all_stepped: bool
) -> Iterator[Course]:
    """The lines within a window, some at a time.

    ``all_stepped``: stepped and with simple bounds, whatever the configuration says.
    """
    usable = points.quality <= configuration.worst
    rows = np.flatnonzero(usable)
    for start in range(0, len(rows), _BLOCK_ROWS):
        yield _course(points, usable, rows, slice(start, start + _BLOCK_ROWS), configuration, window, all_stepped)


def _course(
    points: Points,
    usable: NDArray[np.bool_],
    every: NDArray[np.intp],
    block: slice,
    configuration: Configuration,
    window: tuple[int, int],
    all_stepped: bool,
) -> Course:
    """The lines from some of the usable points (``every``)."""
    simple = all_stepped or configuration.simple_bounds
    rows, n = every[block], len(points.time)
    position, at, value = points.position[rows], points.time[rows], points.value[rows]
    stepped = np.ones(len(rows), np.bool_) if all_stepped else points.stepped[position]

    def later(after: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        inside = np.minimum(after, n - 1)
        return inside, (after < n) & (points.position[inside] == position)

    behind, follows = later(rows + 1)
    following, exists = behind, follows
    if not simple:
        following, exists = later(np.append(every, n)[block.start + 1 : block.stop + 1][: len(rows)])
    next_at = np.where(exists, points.time[following], np.maximum(at, points.known_until[position]))
    joins = exists & usable[following] & (next_at - at <= HOLD)
    ends = np.minimum(next_at, at + HOLD)
    last = np.where(joins & ~stepped, points.value[following], value)
    bad_at = np.full(len(rows), LATE)
    if not simple:
        bad_at = np.where(follows & ~usable[behind], points.time[behind], LATE)
        if configuration.use_sloped_extrapolation:
            last = np.where(joins | stepped, last, _extrapolated(points, every, block, ends))
    slopes_good = joins & (points.quality[following] == GOOD) & (bad_at == LATE)
    good_until = np.where(stepped, np.where(joins | simple, bad_at, EARLY), np.where(slopes_good, LATE, EARLY))
    quality = points.quality[rows]
    good_until = np.where(quality == GOOD, good_until, EARLY)
    course = Course(position, at, ends, value, last, good_until, points.status[rows], quality)
    kept = (ends > at) & (ends > window[0]) & (at < window[1])
    return course if kept.all() else Course(*(getattr(course, name)[kept] for name in Course.__slots__))


def _extrapolated(points: Points, every: NDArray[np.intp], block: slice, ends: Int64s) -> Float64s:
    """The values at the ends if the lines before the points go on; where there is none, the points' own."""
    rows = every[block]
    before = np.append(rows[:1] if not block.start else every[block.start - 1], rows[:-1])
    at, value = points.time[rows], points.value[rows]
    distance = at - points.time[before]
    sloped = (points.position[before] == points.position[rows]) & (distance > 0) & (distance <= HOLD)
    rise = (value - points.value[before]) * ((ends - at) / np.where(sloped, distance, 1))
    extrapolated: Float64s = np.where(sloped, value + rise, value)
    return extrapolated


@dataclass(frozen=True, slots=True)
class Nearest:
    """Samples from the window up to the nearest whose quality suffices, on one side of it."""

    worst: int  # quality that suffices
    later: bool  # after the window, else before it
    n: int  # so many of them

    def compute(self, samples: Samples) -> Samples:
        """Nearest samples of some channels, by channel and time; of a channel without such a quality, one."""
        suffices = qualities(samples) <= self.worst
        kept = np.zeros(len(suffices), np.bool_)
        for rows in segments(samples.channel):
            enough = np.flatnonzero(suffices[rows])
            if self.later:
                kept[rows][: 1 + (enough[self.n - 1] if len(enough) >= self.n else 0)] = True
            else:
                kept[rows][enough[-min(self.n, len(enough))] if len(enough) else -1 :] = True
        return samples.part(kept)

    def complete(self, samples: Samples) -> frozenset[int]:
        """Channels of which there are enough. ``samples``: of :meth:`compute`."""
        channel, n = np.unique(samples.channel[qualities(samples) <= self.worst], return_counts=True)
        return frozenset(channel[n >= self.n].tolist())


def neighbours(read: Read, ids: Collection[int], window: tuple[int, int], configuration: Configuration) -> Samples:
    """Samples of channels around a window (µs) that values in it depend on, by channel and time."""
    since, until = window
    n = 2 if configuration.use_sloped_extrapolation else 1
    before, after = Nearest(configuration.worst, False, n), Nearest(configuration.worst, True, 1)
    parts = list[Samples]()
    for nearest, farthest in ((before, n * HOLD), (after, HOLD)):
        missing = frozenset(ids)
        for distance in (*_SEARCH_SPANS, farthest):
            within = (until, until + distance) if nearest.later else (since - distance, since)
            samples = joined(read(missing, within, nearest.compute))
            enough = missing if distance == farthest else nearest.complete(samples)
            parts.append(samples.part(np.isin(samples.channel, [*enough])))
            if not (missing := missing - enough):
                break
    return joined(parts).sorted()
