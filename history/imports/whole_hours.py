"""Finds the hours of channels that are whole in memory, so that they can be packed at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s
from history.codec.packed_hours import HOUR_US
from history.imports.portion import Portion, joined

_AT_ONCE = 2_000_000  # samples in memory, 100 bytes each for a moment
_COMPACT = 1_000_000  # keys
_CHANNELS = 2**31


def hour_keys(portion: Portion) -> Int64s:
    """A number for the channel and hour of each sample, (n,)."""
    return portion.samples.time // HOUR_US * _CHANNELS + portion.samples.channel


@dataclass(slots=True)
class HourCounts:
    """Counts of a file's samples by channel and hour."""

    _keys: list[Int64s] = field(default_factory=list)
    _counts: list[Int64s] = field(default_factory=list)
    _size: int = 0

    def add(self, portion: Portion) -> None:
        """Count a portion."""
        keys, counts = np.unique(hour_keys(portion), return_counts=True)
        self._keys.append(keys)
        self._counts.append(counts)
        self._size += len(keys)
        if self._size > _COMPACT:
            self._compact()

    def of(self, keys: Int64s) -> Int64s:
        """The counts of keys that occur, (n,)."""
        self._compact()
        return self._counts[0][np.searchsorted(self._keys[0], keys)]

    def _compact(self) -> None:
        if len(self._keys) > 1:
            keys, place_of = np.unique(np.concatenate(self._keys), return_inverse=True)
            counts = np.bincount(place_of, np.concatenate(self._counts), len(keys)).astype(np.int64)
            self._keys, self._counts, self._size = [keys], [counts], 0


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Samples to be stored in one transaction."""

    portion: Portion
    is_whole: bool  # all of the file's samples of these channels and hours


def regroup(portions: Iterable[Portion], counts: HourCounts, at_once: int = _AT_ONCE) -> Iterator[Part]:
    """The samples of a file by whole hours, as far as ``at_once`` samples contain whole ones.

    The same file gives the same parts.
    """
    rest: list[Portion] = []
    for portion in portions:
        rest.append(portion)
        if sum(map(len, rest)) >= at_once:
            whole, others = _split(joined(rest), counts)
            yield whole
            rest = [others.portion]
            if len(others.portion) > at_once // 2:  # the file has many channels in each hour
                yield others
                rest = []
    if rest:
        yield from _split(joined(rest), counts)


def _split(portion: Portion, counts: HourCounts) -> tuple[Part, Part]:
    """The whole hours, and the others."""
    keys, place_of, found = np.unique(hour_keys(portion), return_inverse=True, return_counts=True)
    whole: NDArray[np.bool_] = (found == counts.of(keys))[place_of]
    return Part(portion.part(whole), is_whole=True), Part(portion.part(~whole), is_whole=False)
