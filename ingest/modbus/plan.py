"""Plan the fewest read requests for the tags of a device, without splitting a value across two.

Independent of the transport (MODBUS Application Protocol V1.1b3, 6.1 to 6.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.config.sources import ModbusTag, RegisterTable

MAX_BITS = 2000  # coils or discrete inputs a read
_BITS_OF_REQUEST_SIZE = range(17, 25)  # responses with so many bits are as long as a request
_BITS_PER_REGISTER = 16


@dataclass(frozen=True, slots=True)
class Read:
    """A request: ``count`` registers (or bits) of ``table`` from ``start``, for the tags at the indices ``tags``.

    ``unit_id`` selects the device behind an address.
    """

    table: RegisterTable
    start: int
    count: int
    tags: tuple[int, ...]
    unit_id: int = 1

    def __str__(self) -> str:
        """The request in words: ``unit 1, holding:0 to holding:9``."""
        last = f" to {self.table}:{self.start + self.count - 1}" if self.count > 1 else ""
        return f"unit {self.unit_id}, {self.table}:{self.start}{last}"


def plan(
    tags: Sequence[ModbusTag], indices: Sequence[int], bridge: int, max_registers: int, unit_id: int = 1
) -> list[Read]:
    """Reads that cover ``tags[i]`` for each i of ``indices``, each tag in exactly one.

    Up to ``bridge`` unused registers are read through to save a request. Tags without a unit id belong to ``unit_id``.
    """
    units: dict[int, list[int]] = {}
    for i in indices:
        tag_unit_id = tags[i].unit_id
        units.setdefault(unit_id if tag_unit_id is None else tag_unit_id, []).append(i)
    return [read for unit, of_unit in units.items() for read in _of_unit(unit, tags, of_unit, bridge, max_registers)]


def _of_unit(
    unit_id: int, tags: Sequence[ModbusTag], indices: Sequence[int], bridge: int, max_registers: int
) -> list[Read]:
    reads: list[Read] = []
    for table in ("coil", "discrete", "input", "holding"):
        of_table = sorted((i for i in indices if tags[i].table == table), key=lambda i: tags[i].register)
        bits = table in ("coil", "discrete")
        limit = MAX_BITS if bits else max_registers
        gap = bridge * _BITS_PER_REGISTER if bits else bridge
        start = end = 0
        members: list[int] = []
        for i in of_table:
            first, last = tags[i].register, tags[i].register + tags[i].width
            if members and (first - end > gap or max(end, last) - start > limit):
                reads.append(Read(table, start, end - start, tuple(members), unit_id))
                members = []
            if not members:
                start = end = first
            end = max(end, last)
            members.append(i)
        if members:
            reads.append(Read(table, start, end - start, tuple(members), unit_id))
    return reads


def split(read: Read, tags: Sequence[ModbusTag]) -> list[Read]:
    """Split ``read`` into two minimal reads of half its tags each."""
    middle = len(read.tags) // 2
    return [_minimal(read, half, tags) for half in (read.tags[:middle], read.tags[middle:]) if half]


def unambiguous(read: Read, tags: Sequence[ModbusTag]) -> list[Read]:
    """Split ``read`` into reads whose responses on a serial line differ from any request of another master.

    A request to read has 8 bytes, as has a response with 17 to 24 bits. Without these, no response has 8 bytes.
    """
    if read.table not in ("coil", "discrete") or read.count not in _BITS_OF_REQUEST_SIZE:
        return [read]
    return [part for half in split(read, tags) for part in unambiguous(half, tags)]


def _minimal(read: Read, members: tuple[int, ...], tags: Sequence[ModbusTag]) -> Read:
    start = min(tags[i].register for i in members)
    end = max(tags[i].register + tags[i].width for i in members)
    return Read(read.table, start, end - start, members, read.unit_id)
