"""Requests to a server about its events: the subscription and its monitored items, and methods of conditions.

Those refresh and acknowledge conditions (OPC 10000-9, 5.5.7 and 5.7.3).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from asyncua import Client, ua

from core.config.sources import OpcuaSource
from core.errors import OperationError, SourceError
from core.opcua.namespaces import Namespaces
from core.opcua.service import call, checked
from ingest.opcua.events.event_fields import event_filter
from ingest.opcua.subscription import items
from ingest.opcua.subscription.subscription_state import EventItem, Subscription

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
    """Create the items of these notifiers. The client handle is a notifier's place in ``event_items``."""
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
