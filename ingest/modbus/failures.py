"""What can go wrong with a read, and the StatusCode (OPC 10000-6, A.2) that its channels get."""

from __future__ import annotations

from ingest.errors import DecodeError, SourceError

BAD_COMMUNICATION_ERROR = 0x80050000
BAD_DECODING_ERROR = 0x80070000
BAD_TIMEOUT = 0x800A0000
BAD_NODE_ID_UNKNOWN = 0x80340000
BAD_DEVICE_FAILURE = 0x808B0000

_EXCEPTIONS = {  # MODBUS Application Protocol V1.1b3, 7
    1: "illegal function",
    2: "illegal data address",
    3: "illegal data value",
    4: "device failure",
    5: "acknowledge",
    6: "device busy",
    8: "memory parity error",
    10: "gateway path unavailable",
    11: "gateway target failed to respond",
}
_REFUSALS = (1, 2, 3)  # what was asked for is wrong, and will be next time


class ConnectionLost(SourceError):  # noqa: N818  (what happened, in the field's words)
    """The device can't be reached; ``status`` is the StatusCode that its channels get."""

    def __init__(self, reason: str, status: int = BAD_COMMUNICATION_ERROR) -> None:
        super().__init__(reason)
        self.status = status


class TimedOut(SourceError):  # noqa: N818
    """No answer came in time; the connection stands."""


class ExceptionAnswer(SourceError):  # noqa: N818
    """The device answered a read with an exception; ``code`` is the protocol's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exception {code}: {_EXCEPTIONS.get(code, 'unknown')}")
        self.refused = code in _REFUSALS
        self.status = BAD_NODE_ID_UNKNOWN if self.refused else BAD_DEVICE_FAILURE


class Garbled(DecodeError):  # noqa: N818
    """What came is no Modbus, so that nobody knows where the next answer begins: the connection is of no more use."""
