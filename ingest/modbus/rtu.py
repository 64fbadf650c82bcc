"""RTU framing (MODBUS over Serial Line V1.02, 2.5.1): encode requests, recognise the response. No sockets, no time.

A frame has no length and no transaction id, and only silence ends it. So the response is what arrives first after a
silence, if it has exactly the unit id, function code, length and CRC that the request calls for. All else is kept until
the line is silent, and then is a frame of its own, if its CRC says so, or damaged.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingest.modbus.frame import EXCEPTION, Frame, request_pdu, response_size
from ingest.modbus.plan import Read

NO_TRANSACTION = -1  # of a frame that is no response to the last request
OTHER_MASTER = -2  # of a frame that only another master on the line explains
_MAX_FRAME = 256  # bytes (2.5.1.1)
_MIN_FRAME = 4  # bytes: unit id, function code, CRC
_EXCEPTION_FRAME = 5  # bytes
_REQUEST_FRAME = 8  # bytes, of one that reads or writes one value, or tells what was written
_READS = range(1, 5)  # function codes
_WRITES_ONE, _WRITES_SEVERAL = (5, 6), (15, 16)  # function codes


def _crc_table() -> tuple[int, ...]:
    """The CRC of each byte: polynomial 0xA001, reflected (6.2.2)."""
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (0xA001 if crc & 1 else 0) for crc in table]
    return tuple(table)


_CRC = _crc_table()


def crc16(data: bytes | bytearray) -> int:
    """The CRC of ``data``; 0 for a frame that ends in its right CRC, low byte first."""
    crc = 0xFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc


class RtuFramer:
    """Finds the response among the bytes that arrive. Keeps at most two frames' bytes."""

    def __init__(self) -> None:
        self._rest = bytearray()  # since the last silence, or the last response
        self._transaction = NO_TRANSACTION  # of the request without a response so far
        self._request = b""
        self._responses: tuple[tuple[bytes, int], ...] = ()  # the first bytes and the length of each that is legal
        self._unreadable = ""

    def request(self, transaction: int, read: Read) -> bytes:
        """The request for ``read``; its response will be the frame with ``transaction``."""
        pdu = request_pdu(read)
        size = response_size(read)
        head = bytes((read.unit_id, pdu[0]))
        self._responses = (
            (head + bytes((size,)), size + _EXCEPTION_FRAME),
            (bytes((read.unit_id, pdu[0] | EXCEPTION)), _EXCEPTION_FRAME),
        )
        self._transaction, self._unreadable = transaction, ""
        frame = bytes((read.unit_id,)) + pdu
        self._request = frame + crc16(frame).to_bytes(2, "little")
        return self._request

    def abandon(self) -> None:
        """No longer expect a response: what arrives from now on is late."""
        self._transaction, self._responses = NO_TRANSACTION, ()

    @property
    def expects(self) -> bool:
        """Whether a response is expected."""
        return bool(self._responses)

    @property
    def unfinished(self) -> bool:
        """Whether something arrived that only silence ends."""
        return bool(self._rest)

    @property
    def unreadable(self) -> str:
        """Bytes since the last request that were neither the response nor another unit's; or nothing."""
        return f"{_count(self._rest)} of a response arrived" if self._rest else self._unreadable

    def feed(self, received: bytes) -> Iterator[Frame]:
        """The response, as soon as its last byte arrived."""
        rest = self._rest
        rest += received
        for head, length in self._responses:
            if len(rest) >= length and rest.startswith(head) and not crc16(rest[:length]):
                frame, transaction = bytes(rest[:length]), self._transaction
                del rest[:length]  # what is behind it belongs to no response
                self.abandon()
                yield Frame(transaction, frame[0], frame[1:-2])
                break
        del rest[2 * _MAX_FRAME :]  # a response, and what was sent just before it

    def silent(self) -> Iterator[Frame]:
        """The line was silent: a frame of another unit, or one that came late. A response that began may go on."""
        rest = self._rest
        if not rest:
            return
        if any(len(rest) < length and rest[: len(head)] == head[: len(rest)] for head, length in self._responses):
            return  # USB adapters and gateways hand on a frame in pieces, with pauses that the line did not have
        pile = self._take()
        frames = _frames(pile)
        if not frames:
            self._unreadable = f"{_count(pile)} arrived without a valid CRC"
        for frame in frames:
            if any(len(frame) == length and frame.startswith(head) for head, length in self._responses):
                transaction = self._transaction  # behind a broadcast or the talk of other units
                self.abandon()
                yield Frame(transaction, frame[0], frame[1:-2])
                continue
            if is_of_other_master(frame):
                echo = frame == self._request  # or another master asks the same
                asks = f"another master on the line asks unit {frame[0]}"
                self._unreadable = "the line echoes requests" if echo else asks
                if frame[:2] == self._request[:2]:  # to whom a unit responds is not in the response
                    self.abandon()
                yield Frame(OTHER_MASTER, frame[0], frame[1:-2])
                continue
            if self._responses and frame[0] == self._responses[0][0][0]:
                _, length = self._responses[0]
                self._unreadable = (
                    f"a response of {len(frame)} bytes with function 0x{frame[1]:02X} arrived, expected {length} bytes "
                    f"with 0x{self._request[1]:02X}"
                )
            yield Frame(NO_TRANSACTION, frame[0], frame[1:-2])

    def _take(self) -> bytes:
        frame = bytes(self._rest)
        self._rest.clear()
        return frame


def _frames(pile: bytes) -> list[bytes]:
    """The frames that arrived without a silence that could be heard; if one is damaged, requests before it."""
    if _MIN_FRAME <= len(pile) <= _MAX_FRAME and not crc16(pile):
        return [pile]
    complete: list[bytes] = []
    while pile:
        length = next((n for n in _lengths(pile) if n <= len(pile) and not crc16(pile[:n])), 0)
        if not length:
            return [frame for frame in complete if is_of_other_master(frame)]
        complete.append(pile[:length])
        pile = pile[length:]
    return complete


def _lengths(pile: bytes) -> Iterator[int]:
    """Lengths that the first frame may have."""
    function = pile[1] if len(pile) >= _MIN_FRAME else EXCEPTION
    if function & EXCEPTION:
        yield _EXCEPTION_FRAME
    elif function in (*_READS, *_WRITES_ONE, *_WRITES_SEVERAL):
        yield _REQUEST_FRAME
        if function in _READS:
            yield _EXCEPTION_FRAME + pile[2]
        elif function in _WRITES_SEVERAL and len(pile) > _REQUEST_FRAME:
            yield _REQUEST_FRAME + 1 + pile[6]
    else:  # only the CRC says
        yield from range(_MIN_FRAME, min(len(pile), _MAX_FRAME) + 1)


def is_of_other_master(frame: bytes) -> bool:
    """Whether it is a request of another master, or concerns one.

    plantlog only reads, and no response to it has eight bytes: registers have an even size, and
    :func:`ingest.modbus.plan.tellable` avoids that size for bits.
    """
    function = frame[1] & ~EXCEPTION
    return function not in _READS or (len(frame) == _REQUEST_FRAME and not frame[1] & EXCEPTION)


def _count(frame: bytes | bytearray) -> str:
    if len(frame) > _MAX_FRAME:
        return f"more than {_MAX_FRAME} bytes"
    return "1 byte" if len(frame) == 1 else f"{len(frame)} bytes"
