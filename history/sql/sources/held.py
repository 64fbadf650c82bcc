"""Values that channels hold before they are read: of those that report only changes, as set points do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from core.samples import Samples, joined, segments
from core.timestamps import DAY_US
from history.sql.kernels.columns import RARE
from history.sql.sources.portion import Kernel

Result = TypeVar("Result")
HELD_US = 31 * DAY_US  # µs, in which the value is looked for that a channel holds


@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """Samples of channels of which it is not known what they held before."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class WithoutUnknown(Generic[Result]):
    """A kernel that leaves out channels with few samples, all of them after ``known_by`` (µs)."""

    kernel: Kernel[Result]
    known_by: int

    def __call__(self, portions: Iterable[Samples]) -> Iterator[Result | Unknown]:
        """Results of the kernel, and at last what it leaves out. The samples of a channel are in one portion."""
        unknown = list[Samples]()
        yield from self.kernel(known for samples in portions if len(known := self._known(samples, unknown)))
        if unknown:
            yield Unknown(joined(unknown))

    def _known(self, samples: Samples, unknown: list[Samples]) -> Samples:
        rows = [
            rows
            for rows in segments(samples.channel)
            if rows.stop - rows.start <= RARE and samples.time[rows.start] > self.known_by
        ]
        if not rows:
            return samples
        unknown += [samples.part(of_channel) for of_channel in rows]
        return samples.part(~np.isin(samples.channel, [samples.channel[of_channel.start] for of_channel in rows]))


def last_samples(samples: Samples) -> Samples:
    """The last sample of each channel. ``samples``: by channel and time."""
    return samples.part(np.array([rows.stop - 1 for rows in segments(samples.channel)], np.intp))


def preceded(unknown: Iterable[Samples], held: Samples, begin: int) -> Samples:
    """Samples by channel and time, and before them what is ``held``, as if it were read at ``begin`` (µs)."""
    at_begin: Any = np.full(len(held), begin)
    return joined([Samples(held.channel, at_begin, held.value, held.status), *unknown]).sorted()
