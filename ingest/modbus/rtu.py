"""RTU framing (MODBUS over Serial Line V1.02, 2.5.1): encode requests, recognise the response. No sockets, no time.

A frame has no length and no transaction id, and only silence ends it. So the first bytes after a silence are the
response if they have exactly the unit id, function code, length and CRC that the request calls for. Other bytes are
kept until the line is silent; then they are frames of their own if their CRCs are right, or damaged.
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
_REQUEST_FRAME = 8  # bytes, also of a request that writes one value, and of the response to any that writes
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
    """The CRC of ``data``; 0: a frame that ends with its right CRC, low byte first."""
    crc = 0xFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc


class RtuFramer:
    """Framer that finds the response among received bytes. It keeps at most two frames."""

    def __init__(self) -> None:
        self._rest = bytearray()  # since the last silence, or the last response
        self._transaction = NO_TRANSACTION  # of the request without a response so far
        self._request = b""
        self._responses: tuple[tuple[bytes, int], ...] = ()  # first bytes and length of each legal response
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
        """Expect no response any more: one that arrives from now on is late."""
        self._transaction, self._responses = NO_TRANSACTION, ()

    @property
    def expects(self) -> bool:
        """Return whether a response is expected."""
        return bool(self._responses)

    @property
    def unfinished(self) -> bool:
        """Return whether bytes arrived that only silence ends."""
        return bool(self._rest)

    @property
    def unreadable(self) -> str:
        """Description of bytes since the last request that were not the response or another unit's; empty: none."""
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
        """Frames that a silence of the line ended: of other units, or late ones. A response that began may continue."""
        rest = self._rest
        if not rest:
            return
        if any(len(rest) < length and rest[: len(head)] == head[: len(rest)] for head, length in self._responses):
            return  # USB adapters and gateways deliver a frame in pieces, with pauses that the line did not have
        received = self._take()
        frames = _frames(received)
        if not frames:
            self._unreadable = f"{_count(received)} arrived without a valid CRC"
        for frame in frames:
            if any(len(frame) == length and frame.startswith(head) for head, length in self._responses):
                transaction = self._transaction  # after a broadcast or frames of other units
                self.abandon()
                yield Frame(transaction, frame[0], frame[1:-2])
                continue
            if is_of_other_master(frame):
                is_echo = frame == self._request  # or an equal request of another master
                request = f"another master on the line asks unit {frame[0]}"
                self._unreadable = "the line echoes requests" if is_echo else request
                if frame[:2] == self._request[:2]:  # a response does not say to which master
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


def _frames(received: bytes) -> list[bytes]:
    """Frames that arrived without a silence between them; if one is damaged, only requests before it."""
    if _MIN_FRAME <= len(received) <= _MAX_FRAME and not crc16(received):
        return [received]
    complete: list[bytes] = []
    while received:
        length = next((n for n in _lengths(received) if n <= len(received) and not crc16(received[:n])), 0)
        if not length:
            return [frame for frame in complete if is_of_other_master(frame)]
        complete.append(received[:length])
        received = received[length:]
    return complete


def _lengths(received: bytes) -> Iterator[int]:
    """Lengths that the first frame may have."""
    function = received[1] if len(received) >= _MIN_FRAME else EXCEPTION
    if function & EXCEPTION:
        yield _EXCEPTION_FRAME
    elif function in (*_READS, *_WRITES_ONE, *_WRITES_SEVERAL):
        yield _REQUEST_FRAME
        if function in _READS:
            yield _EXCEPTION_FRAME + received[2]
        elif function in _WRITES_SEVERAL and len(received) > _REQUEST_FRAME:
            yield _REQUEST_FRAME + 1 + received[6]
    else:  # only the CRC decides
        yield from range(_MIN_FRAME, min(len(received), _MAX_FRAME) + 1)


def is_of_other_master(frame: bytes) -> bool:
    """Return whether it is a request of another master, or a response to one that writes.

    plantlog only reads, and no response to it has eight bytes: registers have an even size, and
    :func:`ingest.modbus.plan.unambiguous` avoids that size for bits.
    """
    function = frame[1] & ~EXCEPTION
    return function not in _READS or (len(frame) == _REQUEST_FRAME and not frame[1] & EXCEPTION)


def _count(frame: bytes | bytearray) -> str:
    if len(frame) > _MAX_FRAME:
        return f"more than {_MAX_FRAME} bytes"
    return "1 byte" if len(frame) == 1 else f"{len(frame)} bytes"
