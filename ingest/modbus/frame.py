"""Modbus TCP framing (MODBUS Messaging on TCP/IP V1.0b, 3.1): encode requests, decode responses. No sockets."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.errors import DecodeError
from ingest.modbus.failures import ExceptionResponse, FramingError
from ingest.modbus.plan import Read

FUNCTIONS = {"coil": 1, "discrete": 2, "holding": 3, "input": 4}
_BITS = ("coil", "discrete")
EXCEPTION = 0x80  # bit of the function code of an exception response
_HEADER = struct.Struct(">HHHB")  # transaction, protocol (0), bytes from here on with the unit id, unit id
_UNCOUNTED = 6  # bytes of a frame that its length does not count
# Unit id, function code and data. A PDU has 253 bytes at most, but some devices send twice as many data as they should:
# that is a frame, too, so that it affects only its own read.
_LENGTHS = range(2, 512)


@dataclass(frozen=True, slots=True)
class Frame:
    """A response, not yet decoded."""

    transaction: int
    unit_id: int
    pdu: bytes  # function code and data, at least one byte


def request_pdu(read: Read) -> bytes:
    """Function code and data of the request for ``read``."""
    return struct.pack(">BHH", FUNCTIONS[read.table], read.start, read.count)


def response_size(read: Read) -> int:
    """The byte count of the response to ``read``."""
    return (read.count + 7) // 8 if read.table in _BITS else 2 * read.count


class TcpFramer:
    """Splits a byte stream into frames. Buffers less than one frame between calls."""

    def __init__(self) -> None:
        self._rest = b""

    def request(self, transaction: int, read: Read) -> bytes:
        """The request for ``read``; its response has the same ``transaction``."""
        pdu = request_pdu(read)
        return _HEADER.pack(transaction, 0, len(pdu) + 1, read.unit_id) + pdu

    def feed(self, received: bytes) -> Iterator[Frame]:
        """Complete frames. Raises FramingError, after the frames before it, if the stream is not Modbus TCP."""
        stream = self._rest + received
        at = 0
        while len(stream) - at >= _HEADER.size:
            transaction, protocol, length, unit_id = _HEADER.unpack_from(stream, at)
            if protocol != 0 or length not in _LENGTHS:
                self._rest = b""
                raise FramingError(f"invalid Modbus TCP header: protocol {protocol}, length {length}")
            end = at + _UNCOUNTED + length
            if end > len(stream):
                break
            yield Frame(transaction, unit_id, stream[at + _HEADER.size : end])
            at = end
        self._rest = stream[at:]


def registers(read: Read, pdu: bytes) -> NDArray[np.uint16]:
    """The registers (or 0/1 for each bit) in the response to ``read``.

    Raises ExceptionResponse, and DecodeError if the response is short or does not match the request.
    """
    function = FUNCTIONS[read.table]
    if pdu[0] == function | EXCEPTION and len(pdu) == 2:
        raise ExceptionResponse(pdu[1])
    if pdu[0] != function:
        raise DecodeError(f"function 0x{pdu[0]:02X} in the response to function 0x{function:02X}")
    size = response_size(read)
    if len(pdu) != size + 2 or pdu[1] != size:
        byte_count = f" (byte count {pdu[1]})" if len(pdu) > 1 and pdu[1] != len(pdu) - 2 else ""
        hint = ", half as many" if len(pdu) == 2 * size + 2 else ""
        raise DecodeError(f"response of {max(len(pdu) - 2, 0)} bytes{byte_count}, expected {size}{hint}")
    if read.table in _BITS:
        packed = np.frombuffer(pdu, np.uint8, offset=2)
        return np.unpackbits(packed, count=read.count, bitorder="little").astype(np.uint16)
    return np.frombuffer(pdu, ">u2", offset=2)
