"""Gaps of tags that were silent too long because polls were late, as few as possible.

A device is read block by block. So while this process does not run, or the device is slow, all its tags are late, but a
round may take seconds, and its blocks are silent at different times. Their common silence becomes one gap: a time,
longer than their interval, in which a poll of each was due and none was in time. It is a gap of the source or, if only
tags of one interval were late, of these tags. Tags have gaps of their own for silence outside of it that is too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.batch import Int32s, Int64s

Tags: TypeAlias = NDArray[np.intp]  # indices

GAP_PERIODS = 2  # intervals without a sample that are a gap
_IN_TIME = 1.1  # intervals: a poll after a longer silence is late


@dataclass(frozen=True, slots=True)
class LateGap:
    """A gap, times in µs."""

    tags: Tags | None  # None: all tags that are read
    begin: int
    end: int


class Coverage:
    """The time (µs) up to which samples or gaps of each tag are recorded. Tags are indices."""

    def __init__(self, to: Int64s, max_silence: Int64s, read: NDArray[np.bool_]) -> None:
        """``max_silence``: allowed silence (µs) of each tag; ``read``: tags without an open gap for another reason."""
        self.to = to.copy()
        self._max_silence = max_silence
        self._read = read.copy()

    def add_samples(self, tags: Int32s, at: Int64s) -> list[LateGap]:
        """Add the tags read in one round, in order of time; return the gaps before it."""
        gaps = self.find_gaps(tags, at)
        self.to[tags] = np.maximum(self.to[tags], at)
        self._read[tags] = True
        return gaps

    def find_gaps(self, tags: ArrayLike, at: Int64s) -> list[LateGap]:
        """Gaps, in order of time, of all ``tags`` that were silent too long before ``at`` (µs)."""
        index = np.asarray(tags, np.intp)
        silence = at - self.to[index]
        late = self._read[index] & (silence > self._max_silence[index])
        if not late.any():
            return []
        end = int(at[late].max())
        in_time = self._max_silence / GAP_PERIODS * _IN_TIME
        last = self.to.copy()
        punctual = silence <= in_time[index]
        last[index[punctual]] = at[punctual]
        until = self.to.copy()  # end of each tag's silence, or begin of the common gap
        until[index[late]] = at[late]
        common: list[LateGap] = []
        for group in (self._read, self._read & np.isin(self._max_silence, self._max_silence[index[late]])):
            begin = int(last[group].max())
            if (end - begin > in_time[group]).all():
                until[group] = begin
                until[index] = np.where(group[index], np.minimum(at, begin), until[index])
                common = [LateGap(None if group is self._read else np.flatnonzero(group), begin, end)]
                break
        of_tags = list(self._gaps_of_tags(np.flatnonzero(until - self.to > self._max_silence), until))
        for gap in (*of_tags, *common):
            covered = self._read if gap.tags is None else gap.tags
            self.to[covered] = np.maximum(self.to[covered], gap.end)
        return [*of_tags, *common]

    def _gaps_of_tags(self, tags: Tags, until: Int64s) -> Iterator[LateGap]:
        """Gaps of single tags, shared by tags whose silence began in the same poll."""
        tags = tags[np.argsort(self.to[tags], kind="stable")]
        while len(tags):
            since = self.to[tags]
            n = int(np.searchsorted(since, since[0] + self._max_silence[tags].min() // GAP_PERIODS, side="right"))
            yield LateGap(tags[:n], int(since[:n].max()), int(until[tags[:n]].max()))
            tags = tags[n:]
