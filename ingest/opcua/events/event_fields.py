"""The EventFilter of event items (OPC 10000-4, 7.22.3), and events from EventNotificationLists (7.25.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from asyncua import ua
from asyncua.common.utils import Buffer

from core.errors import DecodeError
from core.opcua.namespaces import Namespaces
from ingest.alarms.server_event import ServerEvent, Shelving

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BASE, _CONDITION = ua.ObjectIds.BaseEventType, ua.ObjectIds.ConditionType
_ACKNOWLEDGEABLE, _ALARM = ua.ObjectIds.AcknowledgeableConditionType, ua.ObjectIds.AlarmConditionType
_SHELVED: dict[int, Shelving] = {
    ua.ObjectIds.ShelvedStateMachineType_TimedShelved: "timed",
    ua.ObjectIds.ShelvedStateMachineType_OneShotShelved: "one-shot",
}
# Of each select clause: the field of ServerEvent, the type that defines it, and its path. Those of BaseEventType first.
_FIELDS: tuple[tuple[str, int, str], ...] = (
    ("event_id", _BASE, "EventId"),
    ("event_type", _BASE, "EventType"),
    ("source_node", _BASE, "SourceNode"),
    ("source_name", _BASE, "SourceName"),
    ("time", _BASE, "Time"),
    ("receive_time", _BASE, "ReceiveTime"),
    ("message", _BASE, "Message"),
    ("severity", _BASE, "Severity"),
    ("condition_id", _CONDITION, ""),  # its NodeId attribute (OPC 10000-9, 5.5.2)
    ("condition_name", _CONDITION, "ConditionName"),
    ("branch_id", _CONDITION, "BranchId"),
    ("retain", _CONDITION, "Retain"),
    ("enabled", _CONDITION, "EnabledState/Id"),
    ("quality", _CONDITION, "Quality"),
    ("comment", _CONDITION, "Comment"),
    ("user", _CONDITION, "ClientUserId"),
    ("acked", _ACKNOWLEDGEABLE, "AckedState/Id"),
    ("confirmed", _ACKNOWLEDGEABLE, "ConfirmedState/Id"),
    ("active", _ALARM, "ActiveState/Id"),
    ("active_since", _ALARM, "ActiveState/TransitionTime"),
    ("suppressed", _ALARM, "SuppressedState/Id"),
    ("out_of_service", _ALARM, "OutOfServiceState/Id"),
    ("shelving", _ALARM, "ShelvingState/CurrentState/Id"),
)


def event_filter(*, conditions: bool) -> Any:
    """The EventFilter for all events; without ``conditions``, only the fields that every server knows."""
    clauses = [_clause(kind, path) for _, kind, path in _FIELDS if conditions or kind == _BASE]
    return ua.EventFilter(SelectClauses=clauses)


def _clause(kind: int, path: str) -> Any:
    return ua.SimpleAttributeOperand(
        TypeDefinitionId=ua.NodeId(kind),
        BrowsePath=[ua.QualifiedName(name, 0) for name in path.split("/") if name],
        AttributeId=ua.AttributeIds.Value if path else ua.AttributeIds.NodeId,
    )


def decode(body: bytes, namespaces: Namespaces) -> list[tuple[int, ServerEvent]]:
    """Client handle and event of each element of an EventNotificationList. Raises DecodeError."""
    try:
        events = ua.ua_binary.struct_from_binary(ua.EventNotificationList, Buffer(body)).Events or ()
        return [(int(one.ClientHandle), _event(one.EventFields or (), namespaces)) for one in events]
    except Exception as error:  # malformed messages can make asyncua raise anything
        raise DecodeError(f"event: {type(error).__name__}: {error}".rstrip(": ")) from error


def _event(variants: Sequence[Any], namespaces: Namespaces) -> ServerEvent:
    """An event from the values of its fields. Servers may send fewer fields, and null or a StatusCode for any."""
    if len(variants) == 1 and isinstance(variants[0].Value, ua.NodeId):  # open62541's EventQueueOverflowEvent: its type
        return ServerEvent(event_type=_node(variants[0].Value, namespaces) or "")
    fields: dict[str, Any] = {}
    for (name, _, _), variant in zip(_FIELDS, variants, strict=False):
        convert: Callable[[Any, Namespaces], Any] = _CONVERT.get(name, _flag)
        value = convert(variant.Value, namespaces)
        if value is not None:
            fields[name] = value
    return ServerEvent(**fields)


def _flag(value: Any, _: Namespaces) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: Any, _: Namespaces) -> str | None:
    text = value.Text if isinstance(value, ua.LocalizedText) else value
    return text if isinstance(text, str) else None


def _time(value: Any, _: Namespaces) -> int | None:
    """µs; None for a date that is not set (OPC 10000-6, 5.2.2.5)."""
    if not isinstance(value, datetime) or value.year <= 1601:
        return None
    since = value.replace(tzinfo=UTC) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _node(value: Any, namespaces: Namespaces) -> str | None:
    if not isinstance(value, ua.NodeId) or value.is_null():
        return None
    return namespaces.address(value)


def _event_id(value: Any, _: Namespaces) -> str | None:
    return value.hex() if isinstance(value, bytes) and value else None


def _severity(value: Any, _: Namespaces) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _quality(value: Any, _: Namespaces) -> int | None:
    return value.value if isinstance(value, ua.StatusCode) else None


def _shelving(value: Any, _: Namespaces) -> Shelving | None:
    if not isinstance(value, ua.NodeId) or value.NamespaceIndex or not isinstance(value.Identifier, int):
        return None
    return _SHELVED.get(value.Identifier)


_CONVERT: dict[str, Callable[[Any, Namespaces], Any]] = {
    "event_id": _event_id,
    **dict.fromkeys(("event_type", "source_node", "condition_id", "branch_id"), _node),
    **dict.fromkeys(("source_name", "message", "condition_name", "comment", "user"), _text),
    **dict.fromkeys(("time", "receive_time", "active_since"), _time),
    "severity": _severity,
    "quality": _quality,
    "shelving": _shelving,
}
