"""Errors of a read, and the StatusCode (OPC 10000-6, A.2) of the affected channels."""

from __future__ import annotations

from core.errors import DecodeError, SourceError

UNCERTAIN = 0x40000000
BAD_COMMUNICATION_ERROR = 0x80050000
BAD_DECODING_ERROR = 0x80070000
BAD_TIMEOUT = 0x800A0000
BAD_NODE_ID_UNKNOWN = 0x80340000
BAD_SECURITY_CHECKS_FAILED = 0x80130000
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
_PERMANENT = (1, 2, 3)  # the request is invalid, also when it is repeated


class ConnectionLost(SourceError):  # noqa: N818  (an event, in the field's words)
    """The device is not reachable; ``status`` is the StatusCode of its channels."""

    def __init__(self, reason: str, status: int = BAD_COMMUNICATION_ERROR) -> None:
        super().__init__(reason)
        self.status = status


class RequestTimeout(SourceError):  # noqa: N818
    """No response in time. ``unreadable``: bytes arrived that were no response."""

    def __init__(self, reason: str, unreadable: bool = False) -> None:
        super().__init__(reason)
        self.unreadable = unreadable


class UnitTaken(SourceError):  # noqa: N818
    """Another master on the line has asked the unit: it can be asked once it has responded."""


class ExceptionResponse(SourceError):  # noqa: N818
    """The device returned an exception response; ``code`` is the protocol's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exception {code}: {_EXCEPTIONS.get(code, 'unknown')}")
        self.refused = code in _PERMANENT
        self.status = BAD_NODE_ID_UNKNOWN if self.refused else BAD_DEVICE_FAILURE


class FramingError(DecodeError):
    """The stream is not valid Modbus, so that the start of the next response is unknown: the connection is unusable."""
