"""OPC UA: a PublishResponse, RepublishResponse or HistoryReadResponse is decoded as asyncua does, or a DecodeError.

- Where asyncua's codec takes a message as well, both see the same frame (subscription, numbers, times, status) and the
  same samples and texts, bit for bit; what asyncua has no number for is NaN with a Bad status.
- A decoder takes memory in proportion to the message: never more samples than it has bytes, of structures for each
  member.
- The receiver stores what a message has (:func:`received` of opcua_received.py).

Input: what kind of message; the message's body.
"""

from __future__ import annotations

import asyncio
import math
import signal
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import numpy as np
from asyncua import ua
from asyncua.common.utils import Buffer, NotEnoughData
from asyncua.ua import ua_binary
from asyncua.ua.ua_binary import struct_from_binary

from core.errors import DecodeError
from core.opcua.structure import STRUCTURE, Field, Structure
from core.timestamps import EPOCH, microseconds
from ingest.opcua.decode.data_change import data_change
from ingest.opcua.decode.decoded import DataChange, DecodeRules
from ingest.opcua.decode.members import MemberChannel, StructureDecoder
from ingest.opcua.decode.message import Notification, publish_response, republish_response
from ingest.opcua.recovery.history import answers
from tests.fuzz.opcua_received import ARRIVAL, TAGS, bits_of, received
from tests.fuzz.opcua_seeds import seeds

__all__ = ["MAX_LEN", "WORDS", "check", "seeds"]

MAX_LEN = 2048
WORDS = (
    b"\1\0\x3d\3",  # PublishResponse
    b"\1\0\x2b\3\1",  # DataChangeNotification
    b"\1\0\x34\3\1",  # StatusChangeNotification
    b"\1\0\x92\2\1",  # HistoryData
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\x0d\x0b",
    b"\x01\x8b",
    b"\x01\x98",
    b"\x01\xd8",
    b"\x3f",
)

_ASKED = (5, 6, 7)  # tags whose history was asked for
_FIRST, _LAST = datetime(1601, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)  # asyncua clamps times to these
_SECONDS = 0.1  # of processor time that asyncua's codec may take: it reads arrays of nothing to their end
_NUMBERS = {ua.VariantType(kind) for kind in range(1, 12)}
_WITH_TEXT_FORM = {ua.VariantType(kind) for kind in range(13, 22)}

_MOTOR = Structure("Motor", "i=886", "optional", [Field("Speeds", 11, dimensions=1), Field("Name", 12, optional=True)])
_DRIVE = Structure("Drive", "i=884", "plain", [Field("On", 1), Field("Motor", STRUCTURE, _MOTOR), Field("Any", 24)])
_PATHS = ("On", "Motor.Speeds[1]", "Motor.Name", "Missing", "[1].On", "[0].Motor.Speeds[0]", "[1,0].On", "[0,1]")
_WANTED = [MemberChannel(channel, path) for channel, path in enumerate(_PATHS)]
_MEMBERS = DecodeRules(structures={handle: StructureDecoder(_DRIVE, _WANTED) for handle in range(TAGS)})

Row = tuple[int, bytes, int | None, int | None]  # handle, the value's bytes, status, µs; None: not to be compared


def check(data: bytes) -> None:
    """Raises AssertionError where the contract does not hold for ``data``."""
    if not data:
        return
    kind, body = data[0] % 4, data[1:]
    try:
        if kind == 0:
            _published(body)
        elif kind == 1:
            _notified(body, republish_response(body), by_asyncua(ua.RepublishResponse, body))
        elif kind == 2:
            _history(body)
        else:
            asyncio.run(received(body))
    except DecodeError:
        return


def _published(body: bytes) -> None:
    ours, theirs = publish_response(body), by_asyncua(ua.PublishResponse, body)
    if theirs is not None:
        parameters = theirs.Parameters
        assert ours.subscription_id == parameters.SubscriptionId
        assert ours.available == frozenset(parameters.AvailableSequenceNumbers or ())
        assert ours.notification.more == parameters.MoreNotifications
    _notified(body, ours.notification, theirs)


def _notified(body: bytes, ours: Notification, theirs: Any) -> None:
    if theirs is not None:
        message = theirs.Parameters if isinstance(theirs, ua.PublishResponse) else theirs
        message = message.NotificationMessage
        assert ours.sequence == message.SequenceNumber
        published = _microseconds(message.PublishTime)
        assert published is None or ours.publish_time == published
        changes, statuses = _notifications(message.NotificationData or ())
        assert len(ours.data_changes) == changes
        assert ours.status == (statuses[-1] if statuses else None)
    for start, end in ours.data_changes:
        change = data_change(body, start, end, ARRIVAL)
        assert _size(change) <= end - start
        members = data_change(body, start, end, ARRIVAL, _MEMBERS)
        assert _size(members) <= (end - start) * len(_WANTED)
        decoded = by_asyncua(ua.DataChangeNotification, body[start:end])
        if decoded is not None:
            _same(change, [(item.ClientHandle, item.Value) for item in decoded.MonitoredItems or ()])


def _notifications(items: Sequence[Any]) -> tuple[int, list[int]]:
    """Number of data changes, and the status changes; asyncua does not decode type ids in a longer form."""
    changes, statuses = 0, []
    for item in items:
        if isinstance(item, ua.DataChangeNotification) or _is_raw(item, 811):
            changes += 1
        elif isinstance(item, ua.StatusChangeNotification):
            statuses.append(item.Status.value)
        elif _is_raw(item, 820):
            statuses.append(struct.unpack_from("<I", item.Body)[0])
    return changes, statuses


def _is_raw(one: Any, type_id: int) -> bool:
    return (
        isinstance(one, ua.ExtensionObject)
        and (one.TypeId.Identifier, one.TypeId.NamespaceIndex) == (type_id, 0)
        and not isinstance(one.TypeId, ua.ExpandedNodeId)
    )


def _history(body: bytes) -> None:
    ours = list(answers(body, _ASKED, ARRIVAL))
    assert [answer.tag for answer in ours] == list(_ASKED)
    assert sum(_size(answer.change) for answer in ours if answer.change is not None) <= len(body)
    theirs = by_asyncua(ua.HistoryReadResponse, body)
    for answer, result in zip(ours, () if theirs is None else theirs.Results, strict=False):
        assert answer.status == result.StatusCode.value
        assert answer.point == (result.ContinuationPoint or b"")
        if answer.change is not None and isinstance(result.HistoryData, ua.HistoryData):
            _same(answer.change, [(answer.tag, value) for value in result.HistoryData.DataValues or ()])


def _size(change: DataChange) -> int:
    return sum(map(len, change.handle)) + len(change.texts)


def _same(ours: DataChange, theirs: Sequence[tuple[int, Any]]) -> None:
    if any(u.reason.endswith("encoding 0x18") for u in ours.unsupported):
        return  # a variant right in a variant: illegal (OPC 10000-6, 5.2.2.16), and asyncua takes the inner one for it
    numbers: list[Row] = []
    texts: list[tuple[int, str | None, int | None, int | None]] = []
    for handle, value in theirs:
        variant = value.Value
        status = value.StatusCode.value if value.StatusCode is not None else 0
        time = _time(value)
        if variant is not None and variant.VariantType is ua.VariantType.String and not variant.is_array:
            text = (variant.Value or "").encode(errors="surrogateescape").decode(errors="replace")
            texts.append((handle, text, status, time))
        elif variant is not None and variant.VariantType in _NUMBERS and not variant.is_array:
            numbers.append((handle, bits_of(float(variant.Value)), status, time))
        elif variant is None or variant.VariantType is ua.VariantType.Null:
            numbers.append((handle, bits_of(math.nan), status or None, time))  # no value, or one that is null
        elif variant.VariantType in _WITH_TEXT_FORM and not variant.is_array:
            texts.append((handle, None, status, time))
    _equal([*_rows(ours)], numbers)
    _equal([(t.handle, t.text, t.status, t.time) for t in ours.texts], texts)


def _equal(ours: Sequence[tuple[Any, ...]], theirs: Sequence[tuple[Any, ...]]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert all(theirs is None or mine == theirs for mine, theirs in zip(one, other, strict=True)), (one, other)


def _rows(change: DataChange) -> Iterator[Row]:
    if change.handle:
        columns = [np.concatenate(c) for c in (change.handle, change.value, change.status, change.time)]
        for handle, value, status, time in zip(*(column.tolist() for column in columns), strict=True):
            yield handle, bits_of(value), status, time


def _time(value: Any) -> int | None:
    if value.SourcePicoseconds is not None and value.ServerTimestamp is not None:
        return None  # asyncua reads these two in an order that is not OPC 10000-6, 5.2.2.17's
    for time in (value.SourceTimestamp, value.ServerTimestamp):
        if time is None or time <= EPOCH:
            if time is not None:
                return None  # before 1970, which stands for none
            continue
        return _microseconds(time)
    return ARRIVAL


def _microseconds(time: datetime) -> int | None:
    return None if time <= _FIRST or time >= _LAST else microseconds(time)


class _Whole(Buffer):  # type: ignore[misc]
    """asyncua's buffer; a negative length, which leads its codec backwards, ends it."""

    def read(self, size: int) -> bytes:
        if size < 0:
            raise NotEnoughData("a negative length")
        return bytes(super().read(size))

    def copy(self, size: int = -1) -> _Whole:
        return _Whole(self._data, self._cur_pos, self._size if size == -1 or size > self._size else size)


class _TooLong(BaseException):
    """asyncua's codec takes too long: it reads arrays of nothing as long as their length says.

    Not an Exception: asyncua catches these where it makes a decoder, and then keeps a wrong one for good.
    """


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def over(_: int, __: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def by_asyncua(kind: Any, body: bytes, seconds: float = _SECONDS) -> Any:
    """Result of asyncua's codec; None where it refuses the message, or takes longer."""
    try:
        with _as_specified(), _limited(seconds):
            read = struct_from_binary(kind, _Whole(body))
            return None if _misread(read) else read
    except (Exception, _TooLong):  # whatever its codec makes of garbage
        return None


@contextmanager
def _as_specified() -> Iterator[None]:
    """asyncua's codec reads no body of an extension object in XML, and without a length all that follows: refused."""
    node_id, caller = ua_binary.nodeid_from_binary, ua_binary.extensionobject_from_binary.__code__

    def looked_behind(data: Buffer) -> Any:
        read = node_id(data)
        if sys._getframe(1).f_code is caller:
            behind = data.copy(5).read(min(5, len(data)))
            if behind[:1] not in (b"\0", b"\1") or behind == b"\1\xff\xff\xff\xff":
                raise NotEnoughData("an extension object of another form")
        return read

    ua_binary.nodeid_from_binary = looked_behind
    try:
        yield
    finally:
        ua_binary.nodeid_from_binary = node_id


def _misread(read: Any) -> bool:
    """Return whether asyncua took an inner diagnostic info for an extension object (OPC 10000-6, 5.2.2.12)."""
    if isinstance(read, ua.DiagnosticInfo):
        return read.InnerDiagnosticInfo is not None
    if isinstance(read, list | tuple):
        return any(map(_misread, read))
    return is_dataclass(read) and any(_misread(getattr(read, field.name)) for field in fields(read))
