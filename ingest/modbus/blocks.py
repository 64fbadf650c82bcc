"""Reads of one poll interval and their schedule, without blocks that the device rejects or does not answer.

A rejected block (illegal address, function or value) is split until the bad tag is isolated. The isolated tag is
excluded and retried with a long period, one per poll; once it can be read, all reads are planned again. A block that
stays unanswered while others are answered is excluded as well, because each attempt costs the others a timeout.

Polls are due at start + k × interval, without drift. A device that is slower than its interval is polled as fast as it
responds, and an overloaded machine polls as fast as it can; which of the two applies is measured. Skipped polls are
missing samples and reduce the coverage, which is based on the interval. They are no gaps: one gap per sample would show
the whole trend as missing. So an episode is recorded once, as an event ``poll_stretched`` with its cause and the pace,
which defines gaps meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from core.backoff import Backoff, after_refusal
from core.clock import boot_seconds
from core.config.addresses.modbus_address import parse
from core.config.sources import ModbusSource, ModbusTag
from ingest.modbus.decode import Decoder
from ingest.modbus.plan import Read, plan, split, unambiguous

_POLLS = 3  # consecutive polls, late or in time again, that define a new pace
_LATE_FACTOR = 1.1  # times the interval
_TOLERANCE = 1.5  # factor between two paces that count as different
_MIN_SHORTER_POLLS = 10  # consecutive polls that define a shorter pace: those of an overloaded machine vary


@dataclass(slots=True)
class Schedule:
    """Due times of one interval; times are seconds of one monotonic clock."""

    interval: float
    due: float  # the next one

    def skip(self, now: float) -> int:
        """Skip all due polls but the last, which can still be made late; return how many were skipped."""
        missed = max(0, int((now - self.due) / self.interval))
        self.due += missed * self.interval
        return missed

    @property
    def next(self) -> float:
        """Time at which the poll after the due one will be due."""
        return self.due + self.interval

    def poll_done(self) -> None:
        """Set the next due time: the due poll is done."""
        self.due += self.interval


class PollPace:
    """The actual interval between polls."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._began: deque[float] = deque(maxlen=_POLLS + 1)  # s, starts of the last polls
        self._waited: deque[float] = deque(maxlen=_POLLS + 1)  # cumulative s of waiting, at these starts
        self._waited_share = 0.0  # share of the time of the last polls spent waiting for the device
        self._shorter_polls = 0  # consecutive polls that took less than the pace, and more than the interval
        self.seconds = interval  # the interval, or more than that

    @property
    def stretched(self) -> bool:
        """Return whether polls take longer than their interval."""
        return self.seconds > self._interval

    @property
    def answer_seconds(self) -> float:
        """Seconds of a poll spent waiting for the device; the rest is due to this machine."""
        return self.seconds * self._waited_share

    @property
    def bottleneck(self) -> str:
        """The bottleneck: "device" or "machine"."""
        return "device" if self._waited_share >= 0.5 else "machine"

    def __str__(self) -> str:
        text = f"polls take {self.seconds:.3g} s, interval {self._interval:g} s"
        if not self.stretched:
            return text
        cause = "" if self.bottleneck == "device" else "this machine is overloaded, "
        return f"{text}: {cause}the device answers in {self.answer_seconds:.3g} s"

    def figures(self) -> dict[str, Any]:
        """The figures for an event."""
        figures: dict[str, Any] = {"interval_seconds": self._interval, "pace_seconds": round(self.seconds, 3)}
        return figures | (
            {"slow": self.bottleneck, "answers_seconds": round(self.answer_seconds, 3)} if self.stretched else {}
        )

    def interrupted(self) -> None:
        """Restart the measurement after an interruption for another reason."""
        self._began.clear()
        self._waited.clear()

    def poll_started(self, now: float, waited: float = 0.0) -> bool:
        """Note that a poll starts at ``now`` (s, boot clock). Returns whether the pace changed.

        ``waited``: cumulative s spent waiting for the device.
        """
        self._began.append(now)
        self._waited.append(waited)
        if len(self._began) <= _POLLS:
            return False
        share = (self._waited[-1] - self._waited[0]) / (self._began[-1] - self._began[0])
        self._waited_share = max(0.0, min(1.0, share))
        shortest, median, _ = sorted(after - before for before, after in pairwise(self._began))
        if median <= _LATE_FACTOR * self._interval:
            new = self._interval
        elif shortest <= _LATE_FACTOR * self._interval or (
            self.stretched and self.seconds / _TOLERANCE <= median <= self.seconds * _TOLERANCE
        ):
            new = self.seconds
        elif median < self.seconds and self._shorter_polls < _MIN_SHORTER_POLLS:
            self._shorter_polls += 1
            return False
        else:
            new = median
        self._shorter_polls = 0
        changed, self.seconds = new != self.seconds, new
        return changed


_MAX_UNANSWERED = 3  # time-outs of a block, each after answers to others, before it is excluded
_EXCLUDED_TIME_OUTS = 10  # for which it is excluded


@dataclass(slots=True, eq=False)
class Block:
    """A read and its state. Times are monotonic seconds."""

    read: Read
    decoder: Decoder
    refused: bool = False  # the device rejects its only tag
    excluded_until: float = 0.0
    requested_at: float = 0.0
    timed_out_at: float = 0.0  # the last time-out; 0: none since it was answered
    unanswered: int = 0  # time-outs since it was answered, each after answers to others
    answers_at_time_out: int = -1  # number of the device's answers at the last of these

    def answered(self) -> None:
        """Note that the device answered, with data or an exception."""
        self.timed_out_at, self.unanswered, self.answers_at_time_out = 0.0, 0, -1

    def timed_out(self, answers: int, now: float, time_out: float) -> None:
        """Note that a read was not answered; ``answers``: total number of responses of the device to other reads."""
        self.timed_out_at = now
        if answers != self.answers_at_time_out:
            self.unanswered, self.answers_at_time_out = self.unanswered + 1, answers
        if self.unanswered >= _MAX_UNANSWERED:
            self.excluded_until = now + _EXCLUDED_TIME_OUTS * time_out


class PollGroup:
    """The tags of one source with the same poll interval."""

    def __init__(
        self, schedule: Schedule, indices: Sequence[int], tags: Sequence[ModbusTag], source: ModbusSource
    ) -> None:
        self.schedule = schedule
        self.pace = PollPace(schedule.interval)
        self.indices = tuple(indices)
        self._tags = tags
        self._source = source
        self._backoffs: dict[int, Backoff] = {}  # rejected tag → waits until it is retried
        self.blocks: list[Block] = []
        self._decoder_blocks: list[Block] = []
        self._decoder: Decoder | None = None  # of ``_decoder_blocks``
        self.incomplete = False  # the last poll ended before it read all blocks
        self.plan()

    def plan(self) -> None:
        """Plan the fewest reads for all tags, including rejected ones."""
        source = self._source
        reads = plan(self._tags, self.indices, source.bridge, source.max_registers, source.unit_id)
        self.blocks = self._blocks(reads)

    @property
    def is_waiting(self) -> bool:
        """Return whether a block did not answer its last request: a poll without answers proves no fault then."""
        return any(block.timed_out_at for block in self.blocks)

    def due_blocks(self, now: float) -> list[Block]:
        """The blocks to read at ``now``, answered ones first, so that others cannot delay them.

        If the last poll was incomplete, the ones not read for the longest time come first, after one answered block,
        which shows whether the device is there.
        """
        ready = [block for block in self.blocks if block.excluded_until <= now]
        probes = sorted((block for block in ready if block.refused), key=lambda block: block.excluded_until)
        normal = [block for block in ready if not block.refused]
        normal.sort(key=lambda block: (block.timed_out_at > 0, block.requested_at))
        if self.incomplete:
            normal[1:] = sorted(normal[1:], key=lambda block: block.requested_at)
        return normal + probes[:1]

    def decoder(self, blocks: list[Block]) -> Decoder:
        """A decoder for the concatenated responses of these blocks; cached for the blocks of the last poll."""
        if self._decoder is None or blocks != self._decoder_blocks:
            self._decoder_blocks, self._decoder = blocks, Decoder.combined([block.decoder for block in blocks])
        return self._decoder

    def split(self, block: Block) -> list[Block]:
        """Replace ``block``, which has more than one tag, with blocks of half the tags each."""
        halves = self._blocks(split(block.read, self._tags))
        index = self.blocks.index(block)
        self.blocks[index : index + 1] = halves
        return halves

    def _blocks(self, reads: Sequence[Read]) -> list[Block]:
        if parse(self._source.address).rtu:
            reads = [part for read in reads for part in unambiguous(read, self._tags)]
        return [Block(read, Decoder(read, self._tags)) for read in reads]

    def refuse(self, block: Block, now: float) -> None:
        """Exclude ``block``, whose only tag the device rejected."""
        (tag,) = block.read.tags
        backoff = self._backoffs.setdefault(tag, after_refusal())
        block.refused, block.excluded_until = True, now + backoff.next()

    def accept(self, block: Block) -> None:
        """Plan again: the only tag of ``block``, once rejected, can be read now, so others may be readable, too."""
        self._backoffs.pop(block.read.tags[0], None)
        self.plan()


def intervals(source: ModbusSource) -> list[float]:
    """Poll intervals (s) by tag index."""
    return [tag.interval or source.poll_interval for tag in source.tags]


def poll_groups(source: ModbusSource, before: Sequence[PollGroup]) -> list[PollGroup]:
    """Tags by poll interval. A group that existed ``before`` keeps its schedule and its pace."""
    by_interval: dict[float, list[int]] = {}
    for i, interval in enumerate(intervals(source)):
        by_interval.setdefault(interval, []).append(i)
    old, now, groups = {group.schedule.interval: group for group in before}, boot_seconds(), []
    for interval, indices in by_interval.items():
        schedule = old[interval].schedule if interval in old else Schedule(interval, now)
        group = PollGroup(schedule, indices, source.tags, source)
        if interval in old:
            group.pace = old[interval].pace
        groups.append(group)
    return groups
