"""Samples as columns: their form between collectors, spool, writer, packed hours, seals, imports and benchmarks.

A sample is (channel, time, value, status). Samples move as columns of one length, never as rows, because a Python
object a row costs thirty times what a numpy column does.

Times are microseconds since 1970-01-01 00:00 UTC, PostgreSQL's own resolution. Status is an OPC UA StatusCode
(OPC 10000-4, 7.39; 0 is Good); collectors of other protocols map their failures to the closest code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Selection: TypeAlias = slice | NDArray[np.bool_] | NDArray[np.intp]  # of rows: a slice, a mask or indices

_INT32, _INT64, _FLOAT64, _UINT32 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.uint32)


def check_columns(columns: object, **types: type[np.generic]) -> None:
    """Raise ValueError if columns have other types than these, or not all one length."""
    lengths = {name: len(getattr(columns, name)) for name in types}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of unequal length: {', '.join(f'{name} {n}' for name, n in lengths.items())}")
    for name, kind in types.items():
        dtype = getattr(columns, name).dtype
        if dtype != kind:
            raise ValueError(f"column {name} is {dtype}, not {np.dtype(kind)}")


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples as columns of equal length n.

    ``channel`` has ids, or indices in a list of names where a file or a generator of samples has no ids. ``value`` is
    meaningless, and 0 or NaN by custom, where ``status`` is Bad.

    Raises ValueError if columns have other types, or not all one length.
    """

    channel: NDArray[np.int32]  # (n,)
    time: NDArray[np.int64]  # (n,) µs
    value: NDArray[np.float64]  # (n,)
    status: NDArray[np.uint32]  # (n,)

    def __post_init__(self) -> None:
        is_right = (  # a tenth of the time of the check that has a message: there may be a million of few samples
            len(self.channel) == len(self.time) == len(self.value) == len(self.status)
            and self.channel.dtype == _INT32
            and self.time.dtype == _INT64
            and self.value.dtype == _FLOAT64
            and self.status.dtype == _UINT32
        )
        if not is_right:
            check_columns(self, channel=np.int32, time=np.int64, value=np.float64, status=np.uint32)

    def __len__(self) -> int:
        return len(self.channel)

    @property
    def bits(self) -> NDArray[np.uint64]:
        """The values' bits, (n,): a NaN equals itself and has its payload, and -0 differs from 0."""
        return self.value.view(np.uint64)

    def part(self, rows: Selection) -> Samples:
        """The samples selected by a mask, a slice or indices."""
        return Samples(self.channel[rows], self.time[rows], self.value[rows], self.status[rows])

    def order(self) -> NDArray[np.intp]:
        """Indices by channel and time, (n,); samples with the same channel and time stay in their order."""
        return np.lexsort((self.time, self.channel))

    def sorted(self) -> Samples:
        """Samples in the order of channel and time; samples with the same channel and time stay in their order."""
        return self.part(self.order())

    def repeats(self) -> NDArray[np.bool_]:
        """Mask of sorted samples whose channel and time are those of the sample before, (n,)."""
        repeats = np.zeros(len(self), np.bool_)
        repeats[1:] = (self.channel[1:] == self.channel[:-1]) & (self.time[1:] == self.time[:-1])
        return repeats

    def by_channel(self) -> Iterator[tuple[int, Samples]]:
        """Each channel and its samples, which stand together."""
        for rows in segments(self.channel):
            yield int(self.channel[rows.start]), self.part(rows)


NO_SAMPLES = Samples(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.uint32))


def joined(parts: Iterable[Samples]) -> Samples:
    """Concatenate samples."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else NO_SAMPLES
    return Samples(
        np.concatenate([part.channel for part in filled]),
        np.concatenate([part.time for part in filled]),
        np.concatenate([part.value for part in filled]),
        np.concatenate([part.status for part in filled]),
    )


def segments(channel: NDArray[np.signedinteger[Any]]) -> list[slice]:
    """Rows of each channel, whose samples stand together."""
    if not len(channel):
        return []
    if channel[0] == channel[-1]:
        return [slice(0, len(channel))]
    edges = np.flatnonzero(channel[1:] != channel[:-1]) + 1
    return [slice(*ends) for ends in pairwise([0, *edges.tolist(), len(channel)])]


def changes(column: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Mask of values that differ from the previous one, (n,); the first always does."""
    changes = np.ones(len(column), bool)
    np.not_equal(column[1:], column[:-1], out=changes[1:])
    return changes


def slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Channels or days, so many at a time."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
