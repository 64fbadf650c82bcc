"""The frame of a PublishResponse or RepublishResponse (OPC 10000-4, 5.14.5 and 7.25)."""

from __future__ import annotations

from dataclasses import dataclass

from core.opcua.binary import FieldReader, microseconds, response_header

# Binary encodings' node ids (OPC 10000-6, A.3)
_PUBLISH_RESPONSE = 829
_REPUBLISH_RESPONSE = 835
_DATA_CHANGE = 811
_STATUS_CHANGE = 820
_EVENTS = 916


@dataclass(frozen=True, slots=True)
class Notification:
    """One NotificationMessage, its data changes and events not yet decoded."""

    sequence: int
    publish_time: int  # µs, server clock; 0: not set
    more: bool  # the server may have more queued (unknown for republished messages)
    data_changes: tuple[tuple[int, int], ...]  # (start, end) of each DataChangeNotification in the body
    status: int | None  # of a StatusChangeNotification, which ends the subscription
    events: tuple[tuple[int, int], ...] = ()  # (start, end) of each EventNotificationList in the body

    @property
    def keep_alive(self) -> bool:
        """Empty message: ``sequence`` is that of the next one."""
        return not self.data_changes and not self.events and self.status is None


@dataclass(frozen=True, slots=True)
class PublishResponse:
    """One answer to a PublishRequest."""

    subscription_id: int
    available: frozenset[int]  # sequence numbers still held by the server
    notification: Notification


def publish_response(body: bytes) -> PublishResponse:
    """Decode the frame. Raises DecodeError."""
    reader = FieldReader(body)
    response_header(reader, _PUBLISH_RESPONSE)
    subscription_id = reader.uint32()
    available = frozenset(reader.uint32() for _ in range(reader.count(4)))
    more = reader.byte() != 0
    return PublishResponse(subscription_id, available, _notification(reader, more))


def republish_response(body: bytes) -> Notification:
    """Decode a republished message. Raises DecodeError."""
    reader = FieldReader(body)
    response_header(reader, _REPUBLISH_RESPONSE)
    return _notification(reader, more=True)


def _notification(reader: FieldReader, more: bool) -> Notification:
    sequence = reader.uint32()
    ticks = reader.int64()
    changes: list[tuple[int, int]] = []
    events: list[tuple[int, int]] = []
    status: int | None = None
    bodies = {
        _DATA_CHANGE: lambda: _skip_data_change(reader),
        _EVENTS: lambda: _skip_events(reader),
        _STATUS_CHANGE: lambda: _skip_status_change(reader),
    }
    for _ in range(reader.count(3)):
        type_id, start, end = reader.extension_object(bodies)
        if type_id == _DATA_CHANGE:
            changes.append((start, end))
        elif type_id == _EVENTS:
            events.append((start, end))
        elif type_id == _STATUS_CHANGE:
            status = FieldReader(reader.body[:end], start).uint32()
    time = microseconds(ticks) if ticks > 0 else 0
    return Notification(sequence, time, more, tuple(changes), status, tuple(events))


# Bodies whose length is not known (OPC 10000-4, 7.25)


def _skip_data_change(reader: FieldReader) -> None:
    for _ in range(reader.count(5)):
        reader.skip(4)  # client handle
        reader.data_value()
    for _ in range(reader.count(1)):
        reader.diagnostic_info()


def _skip_events(reader: FieldReader) -> None:
    for _ in range(reader.count(8)):
        reader.skip(4)  # client handle
        for _ in range(reader.count(1)):
            reader.variant()


def _skip_status_change(reader: FieldReader) -> None:
    reader.skip(4)  # status code
    reader.diagnostic_info()
