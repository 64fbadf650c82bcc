"""Segments: arrays of n elements in m consecutive, non-empty parts, such as hours of channels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s
from core.samples import changes

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Segments:
    """Begins of segments (m,), of n ≥ 1 elements."""

    begins: Int64s
    n: int

    @classmethod
    def of_runs(cls, *keys: NDArray[Any]) -> Segments:
        """Runs of elements with equal keys, (n,) each."""
        return cls(np.flatnonzero(reduce(or_, map(changes, keys))), len(keys[0]))

    @classmethod
    def single(cls, n: int) -> Segments:
        """One segment."""
        return cls(np.zeros(1, np.int64), n)

    @classmethod
    def of_lengths(cls, lengths: Int64s) -> Segments:
        """Segments of these lengths."""
        ends = np.cumsum(lengths)
        return cls(ends - lengths, int(ends[-1]))

    def __len__(self) -> int:
        return len(self.begins)

    @cached_property
    def ends(self) -> Int64s:
        """Ends of the segments, (m,)."""
        return np.append(self.begins[1:], self.n)

    @cached_property
    def lengths(self) -> Int64s:
        """Elements of each, (m,)."""
        return self.ends - self.begins

    @cached_property
    def positions(self) -> Int64s:
        """The position of each element in its segment, from 0, (n,)."""
        begins: Int64s = self.repeated(self.begins)
        return np.arange(self.n) - begins

    def repeated(self, of_segments: NDArray[Any]) -> NDArray[Any]:
        """Values of the segments, for each element: (m,) → (n,)."""
        return np.repeat(of_segments, self.lengths)

    def count(self, mask: Mask) -> Int64s:
        """Elements of each segment for which the mask is set, (m,)."""
        return np.add.reduceat(mask, self.begins, dtype=np.int64)

    def all(self, mask: Mask) -> Mask:
        """Mask of the segments all of whose elements the mask has, (m,)."""
        return np.logical_and.reduceat(mask, self.begins)

    def any(self, mask: Mask) -> Mask:
        """Mask of the segments some of whose elements the mask has, (m,)."""
        return np.logical_or.reduceat(mask, self.begins)

    def least(self, values: NDArray[Any]) -> NDArray[Any]:
        """The smallest element of each, (m,)."""
        return np.minimum.reduceat(values, self.begins)

    def greatest(self, values: NDArray[Any]) -> NDArray[Any]:
        """The largest element of each, (m,)."""
        return np.maximum.reduceat(values, self.begins)

    def selected(self, chosen: Mask) -> tuple[Segments, Mask | slice]:
        """The segments that are chosen, at least one, and the positions of their elements."""
        if chosen.all():
            return self, slice(None)
        return Segments.of_lengths(self.lengths[chosen]), self.repeated(chosen)
