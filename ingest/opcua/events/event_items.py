"""Creates the subscription and the monitored items for a server's events."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from asyncua import Client, ua

from core.config.sources import OpcuaSource
from core.errors import SourceError
from ingest.opcua.events.event_fields import event_filter
from ingest.opcua.session.namespaces import Namespaces
from ingest.opcua.session.service import call
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
        request = ua.CreateMonitoredItemsRequest()
        request.Parameters.SubscriptionId = subscription.id
        request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Neither
        request.Parameters.ItemsToCreate = [
            ua.MonitoredItemCreateRequest(
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
        ]
        (result,) = (await call(client, request, ua.CreateMonitoredItemsResponse, source.time_out)).Results
        if result.StatusCode.is_good():
            return int(result.MonitoredItemId)
        if result.StatusCode.name not in _NO_CONDITIONS:
            break
    raise SourceError(result.StatusCode.name)
