"""The reads of one poll interval, adapted to what the device rejects or leaves unanswered.

A rejected block (illegal address, function or value) is split until the bad tag is isolated. The isolated tag is
excluded and retried with a long period, one per poll; once it can be read, all reads are planned again. A block that
stays unanswered while others are answered is excluded as well, because each attempt costs the others a timeout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.backoff import Backoff, after_refusal
from core.config.modbus_address import parse
from core.config.sources import ModbusSource, ModbusTag
from ingest.modbus.decode import Decoder
from ingest.modbus.plan import Read, plan, split, tellable
from ingest.modbus.schedule import PollPace, Schedule

_MAX_UNANSWERED = 3  # time-outs of a block, each after answers to others, before it is set apart
_EXCLUDED_SHARE = 10  # a deaf block takes one part in this many of the time


@dataclass(slots=True, eq=False)
class Block:
    """One read. Times are monotonic seconds."""

    read: Read
    decoder: Decoder
    refused: bool = False  # the device rejects its only tag
    excluded_until: float = 0.0
    requested_at: float = 0.0
    timed_out_at: float = 0.0  # its last time-out; 0: it was answered since
    unanswered: int = 0  # time-outs since it was answered, each after answers to others
    answers_at_time_out: int = -1  # the device's answers at the last one of these

    def answered(self) -> None:
        """The device answered, with data or an exception."""
        self.timed_out_at, self.unanswered, self.answers_at_time_out = 0.0, 0, -1

    def timed_out(self, answers: int, now: float, time_out: float) -> None:
        """Note that a read was not answered; ``answers``: total number of responses of the device to other reads."""
        self.timed_out_at = now
        if answers != self.answers_at_time_out:
            self.unanswered, self.answers_at_time_out = self.unanswered + 1, answers
        if self.unanswered >= _MAX_UNANSWERED:
            self.excluded_until = now + _EXCLUDED_SHARE * time_out


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
        self._decoder: Decoder | None = None  # of those
        self.incomplete = False  # the last poll was given up: it did not get to some blocks
        self.plan()

    def plan(self) -> None:
        """Plan the fewest reads for all tags, including rejected ones."""
        source = self._source
        reads = plan(self._tags, self.indices, source.bridge, source.max_registers, source.unit_id)
        self.blocks = self._blocks(reads)

    @property
    def is_waiting(self) -> bool:
        """Whether a read was not answered the last time: a poll without any answer says nothing of the device then."""
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
        where = self.blocks.index(block)
        self.blocks[where : where + 1] = halves
        return halves

    def _blocks(self, reads: Sequence[Read]) -> list[Block]:
        if parse(self._source.address).rtu:
            reads = [part for read in reads for part in tellable(read, self._tags)]
        return [Block(read, Decoder(read, self._tags)) for read in reads]

    def refuse(self, block: Block, now: float) -> None:
        """The device rejected the only tag of ``block``."""
        (tag,) = block.read.tags
        backoff = self._backoffs.setdefault(tag, after_refusal())
        block.refused, block.excluded_until = True, now + backoff.next()

    def accept(self, block: Block) -> None:
        """The only tag of ``block``, rejected before, can be read now: plan again, as others may be readable too."""
        self._backoffs.pop(block.read.tags[0], None)
        self.plan()
