"""Modbus TCP: what comes over a connection is the requested count of values, or one of the known errors.

- Frames are cut the same however the stream is broken into pieces, and no more than one frame is kept between them.
- The answer is the first frame with the request's transaction and unit, unless one of unit 0 or 255 comes first; every
  other one is counted as late. A stream that is no Modbus TCP ends the connection with FramingError, and a connection
  that ends before its answer says so.
- An answer's PDU is exactly as many registers as were asked for, with the values that struct sees in it, or
  ExceptionAnswer, or DecodeError.
- Every number of a read is what Python makes of its bytes; every text has no NUL. Nothing warns.

Input: which read; the size of the pieces (0: one); the stream.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from core.config.sources import ModbusTag
from core.errors import DecodeError, SourceError
from ingest.modbus.decode import Decoder
from ingest.modbus.failures import ConnectionLost, ExceptionResponse, FramingError
from ingest.modbus.frame import Frame, TcpFramer, registers
from ingest.modbus.plan import Read, plan
from ingest.modbus.protocol import ModbusProtocol
from tests.modbus_wire import ORDERS, TYPES, decoded

MAX_LEN = 1024
WORDS = (
    b"\0\7\0\0",
    b"\0\7\0\0\0\3\1\x83\2",
    b"\x81",
    b"\x82",
    b"\x84",
    b"\0\6\0\0\0\5\1\3\2\0\0",
    b"\x7f\xc0\0\0",
    b"\x7f\xf0",
)

_TRANSACTION, _UNIT = 7, 1
_FUNCTIONS = {"coil": 1, "discrete": 2, "holding": 3, "input": 4}
_LONGEST_FRAME = 6 + 511


def _tags(table: str, kinds: Sequence[tuple[str, dict[str, Any]]]) -> list[ModbusTag]:
    tags: list[ModbusTag] = []
    register = 0
    for kind, more in kinds:
        tag = ModbusTag(name=f"{table}/{register}", address=f"{table}:{register}", type=kind, **more)
        tags.append(tag)
        register += tag.width
    return tags


def _reads() -> list[tuple[Read, list[ModbusTag], Decoder]]:
    plain = _tags("holding", [(kind, {"word_order": order}) for order in ORDERS for kind in TYPES])
    scaled = _tags("input", [(kind, {"scale": 1e300, "divisor": 0.1, "offset": -4.0}) for kind in TYPES])
    mixed = _tags(
        "input",
        [("string", {"length": 5, "kind": "text", "word_order": order}) for order in ORDERS]
        + [("bool", {"bit": bit, "word_order": order}) for bit in (0, 15) for order in ORDERS]
        + [("int16", {"divisor": 10.0})],
    )
    bits = [_tags(table, [("bool", {})] * count) for table, count in (("coil", 11), ("discrete", 16))]
    found = []
    for tags in (plain, scaled, mixed, *bits):
        (read,) = plan(tags, range(len(tags)), 0, 125)
        found.append((read, tags, Decoder(read, tags)))
    return found


_READS = _reads()


def check(data: bytes) -> None:
    """Raises AssertionError where the contract does not hold for ``data``."""
    if len(data) < 2:
        return
    read, tags, decoder = _READS[data[0] % len(_READS)]
    stream = data[2:]
    size = data[1] or len(stream) or 1
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    frames, garbled = _cut(stream)
    _framing(pieces, frames, garbled)
    for pdu in [frame.pdu for frame in frames] or [stream or b"\0"]:
        _answer(read, tags, decoder, pdu)
    asyncio.run(_exchange(read, pieces, frames, garbled))


def _cut(stream: bytes) -> tuple[list[Frame], bool]:
    """The frames of a stream, and whether it goes on as something else: the slow and obvious way."""
    frames: list[Frame] = []
    while len(stream) >= 7:
        transaction, protocol, length = (int.from_bytes(stream[at : at + 2]) for at in (0, 2, 4))
        if protocol != 0 or not 2 <= length <= 511:
            return frames, True
        if len(stream) < 6 + length:
            break
        frames.append(Frame(transaction, stream[6], stream[7 : 6 + length]))
        stream = stream[6 + length :]
    return frames, False


def _framing(pieces: Sequence[bytes], frames: list[Frame], garbled: bool) -> None:
    framer = TcpFramer()
    got: list[Frame] = []
    refused = False
    for piece in pieces:
        try:
            got.extend(framer.feed(piece))  # extend keeps what came before the error
        except FramingError:
            refused = True
            break
        assert len(framer._rest) < _LONGEST_FRAME, "more than a frame is kept"
    assert refused == garbled
    assert got == frames


def _answer(read: Read, tags: list[ModbusTag], decoder: Decoder, pdu: bytes) -> None:
    function = _FUNCTIONS[read.table]
    bits = read.table in ("coil", "discrete")
    due = (read.count + 7) // 8 if bits else 2 * read.count
    whole = len(pdu) == 2 + due and pdu[0] == function and pdu[1] == due
    try:
        raw = registers(read, pdu)
    except ExceptionResponse:
        assert len(pdu) == 2
        assert pdu[0] == function | 0x80
        return
    except DecodeError:
        assert not whole, "a whole answer was refused"
        return
    assert whole, "what is no whole answer was taken for one"
    content = pdu[2:]
    if bits:
        expected = [content[i // 8] >> i % 8 & 1 for i in range(read.count)]
    else:
        expected = list(struct.unpack(f">{read.count}H", content))
    assert raw.tolist() == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers = decoder.numbers(raw)
        texts = decoder.texts(raw)
        decoder.rounded(raw)
    numeric = [i for i, tag in enumerate(tags) if tag.type != "string"]
    assert sorted(decoder.tags.tolist()) == numeric
    assert sorted(i for i, _, _ in texts) == [i for i, tag in enumerate(tags) if tag.type == "string"]
    for i, value in zip(decoder.tags.tolist(), numbers.tolist(), strict=True):
        due_value = _number(tags[i], expected)
        assert value == due_value or (math.isnan(value) and math.isnan(due_value)), (tags[i], value, due_value)
    assert all("\0" not in text for *_, text in texts)
    with np.testing.assert_raises(DecodeError):
        decoder.numbers(raw[:-1])


def _number(tag: ModbusTag, words: Sequence[int]) -> float:
    own = list(words[tag.register : tag.register + tag.width])
    if tag.table in ("coil", "discrete"):
        return float(own[0])
    if tag.word_order in ("CDAB", "DCBA"):
        own.reverse()
    order = "little" if tag.word_order in ("BADC", "DCBA") else "big"
    image = b"".join(struct.pack("<H" if order == "little" else ">H", word) for word in own)
    if tag.type == "bool":
        return float(int.from_bytes(image) >> (tag.bit or 0) & 1)
    value = decoded(tag.type, image)
    if (tag.scale, tag.divisor, tag.offset) == (1, 1, 0):
        return value
    return value * tag.scale / tag.divisor + tag.offset


class _Wire(asyncio.WriteTransport):
    """A transport that keeps what is written and tells whether it was closed."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__({"socket": connection})
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        self.closed = True


async def _exchange(read: Read, pieces: Sequence[bytes], frames: Sequence[Frame], garbled: bool) -> None:
    late = [0]

    def counted(unit_id: int) -> bool:
        late[0] += 1
        return False

    with socket.socket() as connection:
        protocol, wire = ModbusProtocol(TcpFramer(), counted, count(_TRANSACTION)), _Wire(connection)
        protocol.connection_made(wire)
        read = replace(read, unit_id=_UNIT)
        answers: list[bytes] = []
        asking = asyncio.ensure_future(protocol.exchange(read, 60.0, answers.append))
        await asyncio.sleep(0)
        assert wire.written == TcpFramer().request(_TRANSACTION, read)
        for piece in pieces:
            if not wire.closed:  # asyncio gives nothing more to a protocol whose transport was aborted
                protocol.get_buffer(-1)[: len(piece)] = piece
                protocol.buffer_updated(len(piece))
        assert wire.closed == garbled
        protocol.connection_lost(None)
        ends = [frame for frame in frames if frame.transaction == _TRANSACTION and frame.unit_id in (_UNIT, 0, 255)]
        ours = [frame.pdu for frame in ends[:1] if frame.unit_id == _UNIT]
        try:
            await asking
        except SourceError as error:
            assert isinstance(error, DecodeError if ends else FramingError if garbled else ConnectionLost)
        assert answers == ours
        assert late[0] == len(frames) - bool(ours)


def seeds() -> dict[str, bytes]:
    """Requests' answers as a device sends them, good and bad."""
    found = {}
    for number, (read, _, _) in enumerate(_READS):
        bits = read.table in ("coil", "discrete")
        due = (read.count + 7) // 8 if bits else 2 * read.count
        content = bytes(range(0x40, 0x40 + due)) if due < 0xC0 else bytes(due)
        pdu = bytes((_FUNCTIONS[read.table], due)) + content
        good = _framed(_TRANSACTION, pdu)
        found[f"read-{number}"] = bytes((number, 0)) + good
        found[f"read-{number}-in-pieces"] = bytes((number, 5)) + good
        found[f"read-{number}-behind-a-late-one"] = bytes((number, 0)) + _framed(_TRANSACTION - 1, pdu) + good
        found[f"read-{number}-short"] = bytes((number, 0)) + _framed(_TRANSACTION, pdu[:-2])
        found[f"read-{number}-refused"] = bytes((number, 0)) + _framed(_TRANSACTION, bytes((pdu[0] | 0x80, 2)))
    infinite = struct.pack(">hHiIqQfd", 1, 2, 3, 4, 5, 6, math.inf, -math.inf)
    found["infinite"] = bytes((1, 0)) + _framed(_TRANSACTION, bytes((4, len(infinite))) + infinite)
    found["garbled"] = bytes((0, 0)) + b"HTTP/1.1 400 Bad Request\r\n\r\n"
    return found


def _framed(transaction: int, pdu: bytes) -> bytes:
    return struct.pack(">HHHB", transaction, 0, len(pdu) + 1, _UNIT) + pdu
