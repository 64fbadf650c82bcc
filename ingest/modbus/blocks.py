"""The reads of one poll interval, and how they change by what the device says of them.

A block that is refused (illegal address, function or value) is split until the bad tag is alone. A tag refused alone is
set apart and tried again with a long period, one tag a poll; once one is read, all are planned anew. A block to which
the device is deaf while it answers others is set apart as well, since each try costs the others a time-out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.config.model import ModbusSource, ModbusTag
from ingest.modbus.decode import Decoder
from ingest.modbus.plan import Read, plan, split
from ingest.modbus.schedule import Pace, Schedule

_RETRY_REFUSED = (10.0, 600.0)  # s, first and longest wait before a tag that was refused is tried again
_DEAF_TIMES = 3  # time-outs of a block, each after answers to others, before it is set apart
_DEAF_SHARE = 10  # a deaf block takes one part in this many of the time


@dataclass(slots=True, eq=False)
class Block:
    """One read. Times are monotonic seconds."""

    read: Read
    decoder: Decoder
    refused: bool = False  # its only tag is what the device refuses
    apart_until: float = 0.0
    asked_at: float = 0.0
    silent_at: float = 0.0  # its last time-out; 0: it was answered since
    deaf: int = 0  # time-outs since it was answered, each after answers to others
    answers_then: int = -1  # the device's answers at the last one of these

    def answered(self) -> None:
        """It was read, or refused."""
        self.silent_at, self.deaf, self.answers_then = 0.0, 0, -1

    def timed_out(self, answers: int, now: float, time_out: float) -> None:
        """It was not answered; ``answers`` is how many answers the device gave to others in all."""
        self.silent_at = now
        if answers != self.answers_then:
            self.deaf, self.answers_then = self.deaf + 1, answers
        if self.deaf >= _DEAF_TIMES:
            self.apart_until = now + _DEAF_SHARE * time_out


class Group:
    """The tags of one source that have one poll interval."""

    def __init__(
        self, schedule: Schedule, indices: Sequence[int], tags: Sequence[ModbusTag], source: ModbusSource
    ) -> None:
        self.schedule = schedule
        self.pace = Pace(schedule.interval)
        self.indices = tuple(indices)
        self._tags = tags
        self._source = source
        self._waits: dict[int, float] = {}  # refused tag → s until it is tried again
        self.blocks: list[Block] = []
        self._decoded: list[Block] = []
        self._decoder: Decoder | None = None  # of those
        self.left_out = False  # the last poll was given up: it did not get to some blocks
        self.plan()

    def plan(self) -> None:
        """The fewest reads for all tags, also for those that were refused."""
        source = self._source
        reads = plan(self._tags, self.indices, source.bridge, source.max_registers, source.unit_id)
        self.blocks = [Block(read, Decoder(read, self._tags)) for read in reads]

    def turn(self, now: float) -> list[Block]:
        """The blocks of the poll at ``now``: those that were answered, so that no other costs them their turn.

        Where the last poll left some out, those first that were not asked for longest, behind one that was answered:
        by that it is known whether the device is there.
        """
        ready = [block for block in self.blocks if block.apart_until <= now]
        probes = sorted((block for block in ready if block.refused), key=lambda block: block.apart_until)
        asked = [block for block in ready if not block.refused]
        asked.sort(key=lambda block: (block.silent_at > 0, block.asked_at))
        if self.left_out:
            asked[1:] = sorted(asked[1:], key=lambda block: block.asked_at)
        return asked + probes[:1]

    def decoder(self, blocks: list[Block]) -> Decoder:
        """For the answers to these blocks, one behind another: mostly those of the poll before."""
        if self._decoder is None or blocks != self._decoded:
            self._decoded, self._decoder = blocks, Decoder.of([block.decoder for block in blocks])
        return self._decoder

    def split(self, block: Block) -> list[Block]:
        """Put two blocks of half the tags each in the place of ``block``, which has more than one."""
        halves = [Block(read, Decoder(read, self._tags)) for read in split(block.read, self._tags)]
        where = self.blocks.index(block)
        self.blocks[where : where + 1] = halves
        return halves

    def refuse(self, block: Block, now: float) -> None:
        """The only tag of ``block`` was refused."""
        (tag,) = block.read.tags
        first, longest = _RETRY_REFUSED
        self._waits[tag] = min(2 * self._waits.get(tag, first / 2), longest)
        block.refused, block.apart_until = True, now + self._waits[tag]

    def accept(self, block: Block) -> None:
        """The only tag of ``block`` was refused, and is read now: so may others be."""
        self._waits.pop(block.read.tags[0], None)
        self.plan()
