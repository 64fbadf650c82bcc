"""Results of a poll, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from core.batch import Event, Float64s, Int32s, Int64s, SampleBatch, UInt32s
from core.clock import ClockStep
from core.samples import Samples, joined
from core.timestamps import now_us


@dataclass(frozen=True, slots=True)
class Failure:
    """Tags that could not be read."""

    tags: Sequence[int]
    reason: str  # of core.batch.GAP_REASONS
    detail: str


class Round:
    """Tags read in one poll, each once, with times (µs)."""

    def __init__(self) -> None:
        self._tags: list[Int32s] = []
        self._at: list[Int64s] = []

    def read(self, tags: Int32s, at: int | Int64s) -> None:
        """Add tags that were read."""
        self._tags.append(tags)
        self._at.append(np.full(len(tags), at, np.int64))

    def columns(self) -> tuple[Int32s, Int64s]:
        """(n,) tags and times; at least one."""
        return np.concatenate(self._tags), np.concatenate(self._at)


@dataclass(slots=True)
class Poll:
    """Tags are indices into the source's tag list, times are µs."""

    at: int  # time of the last answer; later than any before, unless there is a step
    lost: str | None = None  # why the whole source is not read; None: it is
    lost_reason: str = "disconnected"  # of core.batch.GAP_REASONS
    step: ClockStep | None = None  # of our clock, before the poll
    paces: list[tuple[Sequence[int], float]] = field(
        default_factory=list
    )  # tags, and the time (s) between two reads of them
    failures: list[Failure] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)  # tags read in it, and in merged polls
    texts: list[tuple[int, int, str]] = field(default_factory=list)  # (tag, time, text)
    events: list[Event] = field(default_factory=list)
    _samples: list[Samples] = field(default_factory=list)  # with tags in place of channels

    def read(self, tags: Int32s, at: int | Int64s) -> None:
        """Add tags that were read, at one time or each at its own."""
        if not self.rounds:
            self.rounds.append(Round())
        self.rounds[-1].read(tags, at)

    def add(self, tags: Int32s, at: int | Int64s, value: Float64s, status: int | UInt32s) -> None:
        """Add samples with one status and time, or each with its own."""
        if len(tags):
            time, statuses = np.full(len(tags), at, np.int64), np.full(len(tags), status, np.uint32)
            self._samples.append(Samples(tags, time, value, statuses))

    def merge(self, later: Poll) -> None:
        """Merge the next poll, which has no failures."""
        self.at = later.at
        self.paces += later.paces
        self.rounds += later.rounds
        self.texts += later.texts
        self.events += later.events
        self._samples += later._samples

    @property
    def opens_gap(self) -> bool:
        """Return whether it opens a gap."""
        return self.lost is not None or self.step is not None or bool(self.failures)

    def tags(self) -> Int32s:
        """Tags with samples, each once."""
        return np.unique(joined(self._samples).channel)

    def batch(self, source_id: int, ids: Int32s) -> SampleBatch | None:
        """The samples; ``ids`` has each tag's channel id."""
        if not self._samples:
            return None
        samples = joined(self._samples)
        return SampleBatch(source_id, now_us(), replace(samples, channel=ids[samples.channel]))
