"""Intervals of a channel whose steps have the proportions of an earlier interval: copies, as they are or scaled.

To have DuckDB compare the windows of all samples takes 600 ns of CPU a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from core.samples import Samples, segments
from history.codec.row_groups import TIME
from history.sql.kernels.columns import Columns, count_up, good_samples, joined

PAIRS = pa.struct(
    [
        pa.field("channel_id", pa.int32()),
        pa.field("segment", pa.int64()),
        pa.field("time", TIME),
        pa.field("value", pa.float64()),
        pa.field("step", pa.float64()),  # from the sample before
        pa.field("old_time", TIME),
        pa.field("old_value", pa.float64()),
        pa.field("turns", pa.bool_()),  # the step before had the other direction
    ]
)
Bools: TypeAlias = NDArray[np.bool_]
Copies: TypeAlias = tuple[Int64s, Int64s, Int64s, Int64s]  # distance, first and last position, and number: of each part
_WINDOW = 16  # samples
_CHANGES = 12  # of them, at least, for a window to be compared
_CERTAIN = 20.0  # bits: one copy by chance in a million channels
_MAX_BREAK = 48  # samples without a window that is like an older one end a copy
_JITTER = 1 / 8  # of a sampling interval
_REGULAR = 0.9  # of samples come in multiples of it
_BLOCK_SAMPLES = 32_768  # samples
_DIVIDING_BITS = 4  # bits
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_STEP_OFFSET = np.uint64(0x13C6EF372FE95)  # 0.618 of a step: no ratio of small numbers is where one ends


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hashes whose sums differ where the bits do (splitmix64)."""
    bits = bits + _GOLDEN
    mixed = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


_HASHES = _mixed(np.arange(1 << 15, dtype=np.uint64))  # of each proportion
_DISPROPORTIONATE = _mixed(np.array([1 << 15], np.uint64))  # of a change that is in no proportion to the one before


@dataclass(frozen=True, slots=True)
class Replays:
    """Copies that are no earlier than ``since`` (µs) and have as many ``samples``; None: as many as chance requires."""

    since: int
    samples: int | None

    def compute(self, samples: Samples) -> Columns:
        """Each sample of a copy and the one that it is a copy of: the columns of PAIRS, times in µs.

        ``samples``: all samples of some channels, by channel and time.
        """
        return joined([self._of_channel(samples.part(rows)) for rows in segments(samples.channel)])

    def _of_channel(self, samples: Samples) -> Columns:
        _, time, value = good_samples(samples)
        step = np.diff(value, prepend=np.nan)[: len(value)]
        bits = len(step).bit_length()
        windows = _perhaps_repeated(_windows(step, bits), bits)
        copies = _copies(_repeated(windows, bits), time, self.since, self.samples or _WINDOW)
        if self.samples is None and len(copies[0]):
            copies = _beyond_chance(copies, step, len(time) - int(np.searchsorted(time, self.since)))
        distance, first, last, segment = copies
        lengths = last - first + 1
        position = np.repeat(first, lengths) + count_up(lengths)
        old = position - np.repeat(distance, lengths)
        signs = np.sign(step[position])
        turns = np.append(False, signs[1:] * signs[:-1] < 0)[: len(signs)] & (count_up(lengths) > 0)
        return {
            "channel_id": np.full(len(position), samples.channel[0]),
            "segment": np.repeat(segment, lengths),
            "time": time[position],
            "value": value[position],
            "step": step[position],
            "old_time": time[old],
            "old_value": value[old],
            "turns": turns,
        }


def _windows(step: Float64s, bits: int) -> Iterator[NDArray[np.uint64]]:
    """Windows to compare: hashes of the ratios of steps to those before, and in so many bits behind each
    the position of its last step. Arrays that fit into the caches take half of the time.
    """
    return (_windows_of(step, begin, np.uint64(bits)) for begin in range(0, len(step), _BLOCK_SAMPLES))


def _windows_of(step: Float64s, begin: int, bits: np.uint64) -> NDArray[np.uint64]:
    """Windows that end in a block."""
    before = min(begin, _WINDOW)
    block = step[begin - before : begin + _BLOCK_SAMPLES]
    changed, comparable, proportion = _proportions_of(block)
    hashes = np.where(comparable, _HASHES[proportion], changed * _DISPROPORTIONATE)
    compared = _sums(changed, np.int32) >= _CHANGES
    compared[: max(0, before - _WINDOW + 1)] = False
    keys = _sums(hashes, np.uint64)
    keys <<= bits
    keys |= np.arange(begin - before + _WINDOW - 1, begin + len(block) - before, dtype=np.uint64)
    windows: NDArray[np.uint64] = keys[compared]
    return windows


def _proportions_of(step: Float64s) -> tuple[Bools, Bools, Int64s]:
    """Where values changed, where a step is in a proportion to the one before, and in which."""
    changed = (step != 0) & ~np.isnan(step)
    ratio = np.full(len(step), np.nan)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        np.divide(step[1:], step[:-1], out=ratio[1:])
    return changed, np.isfinite(ratio) & (ratio != 0), proportions(ratio)


def _sums(values: Any, kind: Any) -> Any:
    """Sums of windows."""
    sums = np.zeros(len(values) + 1, kind)
    np.cumsum(values, out=sums[1:])
    return sums[_WINDOW:] - sums[:-_WINDOW]


def proportions(ratio: Float64s) -> Int64s:
    """Sign and size, so coarsely that the last bits of a scaled copy don't matter: in steps of a tenth, 15 bits."""
    coarse: Int64s = ((ratio.view(np.uint64) + _STEP_OFFSET) >> np.uint64(49)).view(np.int64)
    return coarse


def _perhaps_repeated(windows: Iterable[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    """Windows whose hash another one has, and few others: to sort all of them would take half of the time.

    By their first bits they are divided into parts whose counts fit into the caches.
    """
    middle = (bits + 64 - _DIVIDING_BITS) // 2
    parts = (np.concatenate(windows_of_part) for windows_of_part in zip(*map(_divided, windows), strict=True))
    repeated = [_counted_twice(_counted_twice(part, bits), middle) for part in parts]
    return np.concatenate(repeated) if repeated else np.empty(0, np.uint64)


def _divided(windows: NDArray[np.uint64]) -> list[NDArray[np.uint64]]:
    part = (windows >> np.uint64(64 - _DIVIDING_BITS)).astype(np.uint8)
    lengths = np.bincount(part, minlength=1 << _DIVIDING_BITS)
    return np.split(windows[np.argsort(part, kind="stable")], np.cumsum(lengths)[:-1])


def _counted_twice(windows: NDArray[np.uint64], first: int) -> NDArray[np.uint64]:
    """Windows that share some bits, from a ``first`` one upwards, with another one."""
    bits = np.uint64((1 << len(windows).bit_length() + 1) - 1)
    counter = (windows >> np.uint64(first) & bits).view(np.int64)
    return windows[np.bincount(counter)[counter] > 1]


def _repeated(windows: NDArray[np.uint64], bits: int) -> tuple[Int64s, Int64s]:
    """Positions of windows with the hash of an earlier one that does not overlap, and how far the latest of them is."""
    ordered = np.sort(windows)  # hashes with positions, so that one sort is enough
    same = np.zeros(len(ordered) + 1, np.bool_)
    np.less(ordered[1:] ^ ordered[:-1], 1 << bits, out=same[1:-1])
    ordered = ordered[same[1:] | same[:-1]]
    hashes, position = ordered >> np.uint64(bits), (ordered & np.uint64((1 << bits) - 1)).astype(np.int64)
    group = np.cumsum(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    size = 1 + _WINDOW + int(position.max(initial=0))
    position_by_hash = group * size + position
    latest = np.arange(len(position_by_hash)) - 1
    overlapping = np.flatnonzero(np.diff(position_by_hash, prepend=-size) < _WINDOW)
    latest[overlapping] = np.searchsorted(position_by_hash, position_by_hash[overlapping] - _WINDOW, "right") - 1
    there = (latest >= 0) & (group[latest] == group)
    return position[there], position[there] - position[latest[there]]


def _copies(repeated: tuple[Int64s, Int64s], time: Int64s, since: int, samples: int) -> Copies:
    """Distance, first and last position of each part of a copy, and the number of its copy.

    A sample that is missing changes the distance in samples, but not that in time.
    """
    position, distance = repeated
    recent = time[position] >= since
    position, distance = position[recent], distance[recent]
    if not len(position):
        return position, position, position, position
    shift = _shifts(time, position, distance)
    order = np.lexsort((position, shift))
    position, distance, shift = position[order], distance[order], shift[order]
    goes_on = (shift[1:] == shift[:-1]) & (np.diff(position) <= _MAX_BREAK)
    segment = np.append(0, np.cumsum(~goes_on))
    ends = np.flatnonzero(~goes_on | (np.diff(distance) != 0))
    begin, end = np.append(0, ends + 1), np.append(ends, len(position) - 1)
    distance, first, last, segment = distance[begin], position[begin] - _WINDOW + 1, position[end], segment[begin]
    first[1:] = np.where(np.diff(segment), first[1:], np.maximum(first[1:], last[:-1] + 1))
    begin, end = (np.searchsorted(segment, segment, side) for side in ("left", "right"))
    long = last[end - 1] - first[begin] + 1 >= samples
    return distance[long], first[long], last[long], segment[long]


def _beyond_chance(copies: Copies, step: Float64s, n: int) -> Copies:
    """Copies whose proportions are so rare in the channel that none is expected by chance.

    ``n``: samples that each earlier one may be repeated by.
    """
    distance, first, last, segment = copies
    changed, comparable, proportion = _proportions_of(step)
    kind = np.where(comparable, proportion, (1 << 15) + changed)
    rarity = -np.log2(np.bincount(kind)[kind] / len(kind)) / 2  # bits; each step is in two proportions
    until = np.append(0.0, np.cumsum(rarity))
    number = np.cumsum(np.diff(segment, prepend=segment[0]) != 0)
    rare = np.bincount(number, until[last + 1] - until[first]) > np.log2(len(step)) + np.log2(n) + _CERTAIN
    kept = rare[number]
    return distance[kept], first[kept], last[kept], segment[kept]


def _shifts(time: Int64s, position: Int64s, distance: Int64s) -> Int64s:
    """Numbers of the distances in time, or where samples come irregularly, distances in samples."""
    intervals = np.diff(time)
    every = float(np.median(intervals))
    if np.mean(np.abs(intervals / every - np.round(intervals / every)) < _JITTER) < _REGULAR:
        return distance
    shift: Int64s = time[position] - time[position - distance]
    order = np.argsort(shift)
    shift[order] = np.append(0, np.cumsum(np.diff(shift[order]) > every / 2))
    return shift
