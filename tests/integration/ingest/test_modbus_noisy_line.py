"""Units on a serial line that damages, delays, drops and invents: no wrong value is ever taken for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymodbus.framer.rtu import FramerRTU

from core.config.addresses.modbus_address import ModbusAddress, parse
from core.errors import SourceError
from ingest.modbus import transport
from ingest.modbus.failures import ConnectionLost
from ingest.modbus.plan import Read
from ingest.modbus.transport import Connections, Device, Response
from tests import virtual_time

ADDRESSES = ("serial:///dev/ttyS0", "rtu+tcp://192.0.2.1:4001")
UNITS = (1, 2, 3)
OTHER_UNIT = 9  # of another client's
TIME_OUT = 1.0  # s
TURN = 0.01  # s that a unit takes
READS = [("holding", 0, 2), ("holding", 100, 2), ("input", 0, 2), ("holding", 200, 5), ("coil", 0, 40)]
ROUNDS_AFTER = 3  # that each unit is read once the noise ended

# (delay s, bytes): what the line carries instead of an answer
Pieces = Sequence[tuple[float, bytes]]
Fault = Callable[[bytes, "Line"], Pieces]


def frame(unit: int, pdu: bytes) -> bytes:
    """Frame with the CRC of another implementation."""
    body = bytes((unit,)) + pdu
    return body + int(FramerRTU.compute_CRC(body)).to_bytes(2, "big")


def as_it_is(answer: bytes, line: Line) -> Pieces:
    return [(TURN, answer)]


def _flip(bit: int) -> Fault:
    def fault(answer: bytes, line: Line) -> Pieces:
        damaged = bytearray(answer)
        damaged[bit // 8 % len(answer)] ^= 1 << bit % 8
        return [(TURN, bytes(damaged))]

    return fault


def _drop(at: int, count: int) -> Fault:
    return lambda answer, line: [(TURN, answer[: at % len(answer)] + answer[at % len(answer) + count :])]


def _insert(at: int, noise: bytes) -> Fault:
    return lambda answer, line: [(TURN, answer[: at % len(answer)] + noise + answer[at % len(answer) :])]


def _noise_before(noise: bytes, pause: float) -> Fault:
    return lambda answer, line: [(TURN, noise), (TURN + pause, answer)]


def _noise_behind(noise: bytes, pause: float) -> Fault:
    return lambda answer, line: [(TURN, answer), (TURN + pause, noise)]


def _split(at: int, pause: float) -> Fault:
    return lambda answer, line: [(TURN, answer[: at % len(answer)]), (TURN + pause, answer[at % len(answer) :])]


def _late(after: float) -> Fault:
    def fault(answer: bytes, line: Line) -> Pieces:
        line.late[answer[0]] = asyncio.get_running_loop().time() + after * TIME_OUT
        return [(after * TIME_OUT, answer)]

    return fault


def _foreign(unit: int, pause: float, also: bool) -> Fault:
    """The same answer from another unit, of which none is due."""

    def fault(answer: bytes, line: Line) -> Pieces:
        idle = unit != answer[0] and line.late.get(unit, 0.0) < asyncio.get_running_loop().time()
        foreign = frame(unit if idle else OTHER_UNIT, answer[1:-2])
        return [(TURN, foreign), *([(TURN + pause, answer)] if also else [])]

    return fault


def _shorter(answer: bytes, line: Line) -> Pieces:
    return [(TURN, frame(answer[0], bytes((answer[1], answer[2] - 2)) + answer[3:-4]))]


def _stalled(after: float) -> Fault:
    """The network holds the answer up for any time: it comes on the connection of its request, or not at all."""

    def fault(answer: bytes, line: Line) -> Pieces:
        asyncio.get_running_loop().call_later(after * TIME_OUT, line.carry, answer, line.protocol)
        return []

    return fault


def _held(after: float) -> Fault:
    """The network holds the request up until there is a new connection, to which the gateway then gives the answer."""

    def fault(answer: bytes, line: Line) -> Pieces:
        line.held.append((after * TIME_OUT, answer))
        line.late[answer[0]] = asyncio.get_running_loop().time() + 4 * TIME_OUT
        return []

    return fault


def _silent(answer: bytes, line: Line) -> Pieces:
    return []


NOISE = st.binary(min_size=1, max_size=300)
PAUSES = st.floats(0, 0.1)
FAULTS = st.one_of(
    st.sampled_from([as_it_is, _silent, _shorter]),
    st.builds(_flip, st.integers(0, 500)),
    st.builds(_drop, st.integers(0, 60), st.integers(1, 8)),
    st.builds(_insert, st.integers(0, 60), NOISE),
    st.builds(_noise_before, NOISE, PAUSES),
    st.builds(_noise_behind, NOISE, PAUSES),
    st.builds(_split, st.integers(0, 60), PAUSES),
    st.builds(_late, st.floats(1.0, 1.9)),
    st.builds(_foreign, st.sampled_from([*UNITS, OTHER_UNIT]), PAUSES, st.booleans()),
)


@dataclass
class Line:
    """The units and what the line does to their answers. Each answer carries the number of its request."""

    faults: list[Fault]
    number: int = 0  # of the last request
    late: dict[int, float] = field(default_factory=dict)  # unit → until when a late answer may come (loop's s)
    held: list[tuple[float, bytes]] = field(default_factory=list)  # answers to a later connection, with their delay (s)
    protocol: asyncio.BufferedProtocol | None = None

    def open(self, address: ModbusAddress, protocol: asyncio.BufferedProtocol) -> None:
        self.protocol = protocol
        protocol.connection_made(_End(self))
        for delay, answer in self.held:
            asyncio.get_running_loop().call_later(delay, self.carry, answer)
        self.held.clear()

    def request(self, request: bytes) -> None:
        assert frame(request[0], request[1:-2]) == request, "a damaged request"
        self.number += 1
        fault = self.faults.pop(0) if self.faults else as_it_is
        for delay, content in fault(frame(request[0], self.answer(request)), self):
            asyncio.get_running_loop().call_later(delay, self.carry, content)

    def answer(self, request: bytes) -> bytes:
        size = 2 * int.from_bytes(request[4:6]) if request[1] > 2 else (int.from_bytes(request[4:6]) + 7) // 8
        own = self.number.to_bytes(2) + request[:1] + request[3:4]  # request number, unit, register
        return bytes((request[1], size)) + (own * size)[:size]

    async def connect(self, new: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> None:
        """In place of a loop's create_connection."""
        await asyncio.sleep(TIME_OUT / 2)
        self.open(parse(ADDRESSES[1]), new())

    def carry(self, content: bytes, to: asyncio.BufferedProtocol | None = None) -> None:
        if self.protocol is not None and content and to in (None, self.protocol):
            for at in range(0, len(content), 64):
                piece = content[at : at + 64]
                memoryview(self.protocol.get_buffer(-1))[: len(piece)] = piece
                self.protocol.buffer_updated(len(piece))


class _End(asyncio.WriteTransport):
    """The client's end of the line."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line
        self._protocol = line.protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._line.request(bytes(data))

    def abort(self) -> None:
        if self._line.protocol is self._protocol:
            self._line.protocol = None
        assert self._protocol is not None
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


def expected(read: Read, number: int) -> list[int]:
    own = number.to_bytes(2) + bytes((read.unit_id, read.start & 0xFF))
    if read.table == "coil":
        packed = (own * 2)[:5]
        return [packed[i // 8] >> i % 8 & 1 for i in range(read.count)]
    words = own * read.count
    return [int.from_bytes(words[2 * i : 2 * i + 2]) for i in range(read.count)]


async def _poll(unit: int, line: Line, connections: Connections, address: str, *, strict: bool = True) -> int:
    """Read a unit until the noise ended and it was read some times more; return the count of its good answers."""
    device = Device(connections.get(address), TIME_OUT, lambda: line.number, lambda: None, lambda: None)
    reads = [Read(table, start, count, (), unit) for table, start, count in READS]  # type: ignore[arg-type]
    good = whole = failed = 0
    await device.connect()
    while line.faults or whole < ROUNDS_AFTER:
        ended = not line.faults
        answers: list[Response] = []
        try:
            await device.read(reads, answers)
            whole += ended
        except ConnectionLost:
            await device.connect()
        except SourceError:
            failed += ended
        for read, answer in zip(reads, answers, strict=False):
            assert answer.registers.tolist() == expected(read, answer.at), "the answer to another request"
        good += len(answers)
        assert failed <= 2 or not strict, "it does not recover"
        await asyncio.sleep(0.01)
    device.close()
    return good


@pytest.mark.slow
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("units", [(1,), UNITS, (1, 1, 2)])
@settings(max_examples=300)
@given(data=st.data())
def test_no_answer_is_taken_for_another_and_the_line_recovers(
    units: Sequence[int], address: str, data: st.DataObject
) -> None:
    stalls = (
        [] if address == ADDRESSES[0] else [st.builds(_stalled, st.floats(0.5, 6)), st.builds(_held, st.floats(0, 0.9))]
    )
    faults = data.draw(st.lists(st.one_of(FAULTS, *stalls), max_size=25))

    async def polled() -> None:
        line, connections = Line(faults), Connections()
        loop = asyncio.get_running_loop()
        with patch.object(transport, "open_serial", line.open), patch.object(loop, "create_connection", line.connect):
            good = await asyncio.gather(*(_poll(unit, line, connections, address) for unit in units))
        assert all(count >= ROUNDS_AFTER * len(READS) for count in good)

    virtual_time.run(polled())


# (pause s, index of the read, unit, function or 0 for that of the read, what the unit takes to respond s or None)
_ASKED = st.tuples(
    st.floats(0, 0.3),
    st.sampled_from(range(len(READS))),
    st.sampled_from([*UNITS, OTHER_UNIT]),
    st.sampled_from([0, 0, 0, 6, 0x2B]),
    st.one_of(st.floats(0.004, TIME_OUT * 0.9), st.none()),
)
_FUNCTION = {"coil": 1, "holding": 3, "input": 4}


async def _ask(asked: Sequence[tuple[float, int, int, int, float | None]], line: Line) -> None:
    """Another master: all hear what it asks, and what the units respond, which is recognised by its number."""
    for pause, index, unit, function, takes in asked:
        await asyncio.sleep(pause)
        table, start, count = READS[index]
        request = bytes((function or _FUNCTION[table],)) + start.to_bytes(2) + count.to_bytes(2)
        line.carry(frame(unit, request))
        if takes is None:
            await asyncio.sleep(TIME_OUT)
            continue
        await asyncio.sleep(takes)
        if function:
            line.carry(frame(unit, request))
        else:
            own = Line([], number=0xFFFF)
            line.carry(frame(unit, own.answer(frame(unit, request))))


@pytest.mark.slow
@pytest.mark.parametrize("units", [(1,), UNITS, (1, 1, 2)])
@settings(max_examples=150)
@given(
    asked=st.lists(_ASKED, max_size=25),
    faults=st.lists(st.sampled_from([as_it_is, _silent, _late(0.5), _late(1.5)]), max_size=10),
)
def test_no_answer_to_another_master_is_taken(
    units: Sequence[int], asked: list[tuple[float, int, int, int, float | None]], faults: list[Fault]
) -> None:
    """As long as it is heard, and units respond to it within the time-out."""

    async def polled() -> None:
        line, connections = Line(faults), Connections()
        other = asyncio.create_task(_ask(asked, line))
        with patch.object(transport, "open_serial", line.open):
            while not other.done():
                await asyncio.gather(*(_poll(unit, line, connections, ADDRESSES[0], strict=False) for unit in units))
            good = await asyncio.gather(*(_poll(unit, line, connections, ADDRESSES[0]) for unit in units))
        other.result()
        assert all(count >= ROUNDS_AFTER * len(READS) for count in good)

    virtual_time.run(polled())
