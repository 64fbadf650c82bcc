"""Which tags were silent for too long when polls came late, and the fewest gaps that say so and claim no more.

A device is read block by block, one after the other. So while our machine does not let us run, or the device is slow,
all its tags are late, but a round may take seconds, and no two blocks of it are silent for the same time. What they
have in common is one gap: a time, longer than their interval, in which a poll of each was due and none was made in
time. It is of the source, or where only the tags of one interval were late, of these. Tags have a gap of their own
where they were silent for too long outside of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ingest.batch import Int32s, Int64s

Which: TypeAlias = NDArray[np.intp]

PERIODS = 2  # without a sample, that are a gap
_IN_TIME = 1.1  # periods: behind a longer silence a poll came late


@dataclass(frozen=True, slots=True)
class Late:
    """A gap, times in µs."""

    tags: Which | None  # None: all that are read
    begin: int
    end: int


class Reach:
    """How far what is known of each tag reaches: samples or gaps, in µs. Tags are indices."""

    def __init__(self, to: Int64s, patience: Int64s, read: NDArray[np.bool_]) -> None:
        """``patience``: how long (µs) each may be silent; ``read``: which have no gap open, for another reason."""
        self.to = to.copy()
        self._patience = patience
        self._read = read.copy()

    def had(self, tags: Int32s, at: Int64s) -> list[Late]:
        """Tags were read, in one round, in order of time. Returns the gaps before that."""
        found = self.silent(tags, at)
        self.to[tags] = np.maximum(self.to[tags], at)
        self._read[tags] = True
        return found

    def silent(self, tags: ArrayLike, at: Int64s) -> list[Late]:
        """Tags had nothing until ``at``. Returns the gaps of those that had for too long, in order of time."""
        which = np.asarray(tags, np.intp)
        silence = at - self.to[which]
        late = self._read[which] & (silence > self._patience[which])
        if not late.any():
            return []
        end = int(at[late].max())
        in_time = self._patience / PERIODS * _IN_TIME
        last = self.to.copy()
        had = silence <= in_time[which]
        last[which[had]] = at[had]
        until = self.to.copy()  # where the silence of each ends, or what they have in common begins
        until[which[late]] = at[late]
        together: list[Late] = []
        for among in (self._read, self._read & np.isin(self._patience, self._patience[which[late]])):
            begin = int(last[among].max())
            if (end - begin > in_time[among]).all():
                until[among] = begin
                until[which] = np.where(among[which], np.minimum(at, begin), until[which])
                together = [Late(None if among is self._read else np.flatnonzero(among), begin, end)]
                break
        own = list(self._own(np.flatnonzero(until - self.to > self._patience), until))
        for gap in (*own, *together):
            of = self._read if gap.tags is None else gap.tags
            self.to[of] = np.maximum(self.to[of], gap.end)
        return [*own, *together]

    def _own(self, tags: Which, until: Int64s) -> Iterator[Late]:
        """Tags share a gap where their silence began in one poll."""
        tags = tags[np.argsort(self.to[tags], kind="stable")]
        while len(tags):
            since = self.to[tags]
            n = int(np.searchsorted(since, since[0] + self._patience[tags].min() // PERIODS, side="right"))
            yield Late(tags[:n], int(since[:n].max()), int(until[tags[:n]].max()))
            tags = tags[n:]
