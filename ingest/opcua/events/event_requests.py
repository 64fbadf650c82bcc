"""The events of a server: their subscription and monitored items, whose EventFilter names fields (OPC 10000-4, 7.22.3),
the fields in EventNotificationLists (7.25.3), and methods of conditions (OPC 10000-9, 5.5.7 and 5.7.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from asyncua import Client, ua
from asyncua.common.utils import Buffer

from core.config.sources import OpcuaSource
from core.errors import DecodeError, OperationError, SourceError
from core.opcua.namespaces import Namespaces
from core.opcua.service import call, checked
from ingest.alarms.server_event import ServerEvent, Shelving
from ingest.opcua.subscription import items
from ingest.opcua.subscription.subscription_state import EventItem, Subscription

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
        return [(int(event.ClientHandle), _event(event.EventFields or (), namespaces)) for event in events]
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


log = logging.getLogger(__name__)

QUEUE_SIZE = 10_000  # events that the server queues for each item
_PER_MESSAGE = 100  # events: decoding one takes about 0.2 ms, and samples wait for so long
_NO_CONDITIONS = ("BadEventFilterInvalid", "BadMonitoredItemFilterInvalid", "BadTypeDefinitionInvalid")


async def create_subscription(client: Client, source: OpcuaSource, namespaces: Namespaces) -> Subscription:
    """Create the subscription with an item for each notifier; ``event_items`` tells which ones the server rejected."""
    subscription = await items.create_subscription(client, source, source.publishing_interval, _PER_MESSAGE)
    subscription.event_items = dict.fromkeys(source.notifiers, EventItem(None))
    await create(client, source, namespaces, subscription, source.notifiers)
    return subscription


async def create(
    client: Client, source: OpcuaSource, namespaces: Namespaces, subscription: Subscription, nodes: Iterable[str]
) -> None:
    """Create the items of these notifiers. The client handle is a notifier's position in ``event_items``."""
    handles = {node: handle for handle, node in enumerate(subscription.event_items)}
    for node in nodes:
        number: int | None = None
        try:
            # A server that rejects fields of conditions has none; its other events are recorded.
            number = await _create_item(client, source, namespaces.node_id(node), subscription, handles[node])
        except (SourceError, ua.UaStatusCodeError) as error:
            why = str(error) if isinstance(error, SourceError) else type(error).__name__
            log.info("source %s: no events of %s: %s", source.name, node, why)
        subscription.event_items[node] = EventItem(number, namespaces.index(node))


async def _create_item(
    client: Client, source: OpcuaSource, node: ua.NodeId, subscription: Subscription, handle: int
) -> int:
    """The id of a new item. Raises SourceError with the reason if the server rejects it."""
    result: Any = None
    for conditions in (True, False):
        item = ua.MonitoredItemCreateRequest(
            ItemToMonitor=ua.ReadValueId(NodeId=node, AttributeId=ua.AttributeIds.EventNotifier),
            MonitoringMode=ua.MonitoringMode.Reporting,
            RequestedParameters=ua.MonitoringParameters(
                ClientHandle=subscription.key ^ handle,
                SamplingInterval=0,
                Filter=event_filter(conditions=conditions),
                QueueSize=QUEUE_SIZE,
                DiscardOldest=True,
            ),
        )
        neither = ua.TimestampsToReturn.Neither
        (result,) = checked(await items.request_items(client, subscription, [item], source.time_out, neither), [item])
        if result.StatusCode.is_good():
            return int(result.MonitoredItemId)
        if result.StatusCode.name not in _NO_CONDITIONS:
            break
    raise SourceError(result.StatusCode.name)


_TYPE = ua.NodeId(ua.ObjectIds.ConditionType)
_REFRESH = ua.NodeId(ua.ObjectIds.ConditionType_ConditionRefresh)
_ACKNOWLEDGE = ua.NodeId(ua.ObjectIds.AcknowledgeableConditionType_Acknowledge)
_LOCALE = "en"  # open62541 drops a comment without a locale
_REASONS = {
    "BadConditionBranchAlreadyAcked": "it is acknowledged on the server already",
    "BadEventIdUnknown": "the server has a newer state of it: look at the list again",
    "BadUserAccessDenied": "the server does not allow plantlog's user to acknowledge it",
    "BadConditionDisabled": "it is disabled on the server",
    "BadNodeIdUnknown": "the server does not have the condition any more",
    "BadMethodInvalid": "the server cannot acknowledge it",
}


async def refresh(client: Client, subscription_id: int, time_out: float) -> str:
    """Call ConditionRefresh. Returns the name of the status code. Raises OSError or TimeoutError."""
    return await _call(client, _TYPE, _REFRESH, [ua.Variant(subscription_id, ua.VariantType.UInt32)], time_out)


async def acknowledge(client: Client, condition: ua.NodeId, event_id: bytes, comment: str, time_out: float) -> None:
    """Call Acknowledge. Raises OperationError with the reason if the server has not done it."""
    arguments = [
        ua.Variant(event_id, ua.VariantType.ByteString),
        ua.Variant(ua.LocalizedText(comment, _LOCALE), ua.VariantType.LocalizedText),
    ]
    try:
        status = await _call(client, condition, _ACKNOWLEDGE, arguments, time_out)
    except (OSError, TimeoutError):
        raise OperationError("the server does not answer: look at the list again") from None
    if status != "Good":
        reason = _REASONS.get(status, "the server refused")
        raise OperationError(f"{reason} ({status})")


async def _call(client: Client, node: ua.NodeId, method: ua.NodeId, arguments: Sequence[Any], time_out: float) -> str:
    request = ua.CallRequest()
    request.Parameters.MethodsToCall = [
        ua.CallMethodRequest(ObjectId=node, MethodId=method, InputArguments=list(arguments))
    ]
    try:
        (result,) = (await call(client, request, ua.CallResponse, time_out)).Results
    except ua.UaStatusCodeError as error:
        return str(ua.StatusCode(error.code).name)
    return str(result.StatusCode.name)
