"""Values that channels hold before they are read: of those that report only changes, as set points do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s
from core.samples import Samples, joined, segments
from core.timestamps import DAY_US
from history.sql.kernels.columns import RARE
from history.sql.sources.portion import Kernel

Result = TypeVar("Result")
HELD_US = 31 * DAY_US  # µs, in which the value is looked for that a channel holds


@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """Samples of channels of which it is not known what they held before, and all channels that have samples."""

    samples: Samples
    seen: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class WithoutUnknown(Generic[Result]):
    """A kernel that leaves out channels with few samples, all of them after ``known_by`` (µs)."""

    kernel: Kernel[Result]
    known_by: int

    def __call__(self, portions: Iterable[Samples]) -> Iterator[Result | Unknown]:
        """Results of the kernel, and at last what it leaves out. The samples of a channel are in one portion."""
        unknown, seen = list[Samples](), [np.zeros(0, np.int32)]
        yield from self.kernel(known for samples in portions if len(known := self._known(samples, unknown, seen)))
        yield Unknown(joined(unknown), np.concatenate(seen))

    def _known(self, samples: Samples, unknown: list[Samples], seen: list[NDArray[np.int32]]) -> Samples:
        of_channels = segments(samples.channel)
        seen.append(samples.channel[[rows.start for rows in of_channels]])
        left_out = [
            rows for rows in of_channels if rows.stop - rows.start <= RARE and samples.time[rows.start] > self.known_by
        ]
        if not left_out:
            return samples
        unknown += [samples.part(rows) for rows in left_out]
        return samples.part(~np.isin(samples.channel, samples.channel[[rows.start for rows in left_out]]))


class Last(NamedTuple):
    """The last samples of channels, and how many each of them has."""

    samples: Samples
    n: Int64s

    @classmethod
    def of(cls, samples: Samples) -> Last:
        """The last of samples by channel and time."""
        ends = np.array([rows.stop for rows in segments(samples.channel)], np.int64)
        return cls(samples.part(ends - 1), np.diff(ends, prepend=0))


def preceded(unknown: Iterable[Samples], held: Samples, begin: int) -> Samples:
    """Samples by channel and time, and before them what is ``held``, as if it were read at ``begin`` (µs)."""
    at_begin: Int64s = np.full(len(held), begin)
    return joined([Samples(held.channel, at_begin, held.value, held.status), *unknown]).sorted()
