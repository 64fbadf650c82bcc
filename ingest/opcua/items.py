"""Subscriptions and monitored items: one subscription per publishing interval, items grouped by data type."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from asyncua import Client, ua

from ingest.config.sources import OpcuaSource
from ingest.errors import SourceError
from ingest.opcua.index_range import index_range_of
from ingest.opcua.namespaces import Namespaces
from ingest.opcua.sequence import SequenceTracker
from ingest.opcua.service import DEFAULT_LIMIT, call, chunks, operation_limit
from ingest.opcua.tags import SampleTimes, Tags
from ingest.timestamps import now_us

log = logging.getLogger(__name__)

MARKER_HANDLE = 2**31 - 1  # client handle of the marker item; no channel has it

Parameters: TypeAlias = tuple[float, int, bool, float]  # sampling interval (s), queue size, discard oldest, deadband


@dataclass(frozen=True, slots=True)
class Item:
    """A monitored item as requested."""

    id: int  # assigned by the server
    node_id: str  # the address in the tag list
    parameters: Parameters
    queue_size: int = 0  # revised; 0: unknown
    namespace: int | None = None  # index that the namespace URI had; None: the address has no URI
    index: int | None = None  # the wanted element of an array
    whole_array: bool = False  # all elements are sent, not only that one


@dataclass(frozen=True, slots=True)
class Refusal:
    """A channel rejected by the server."""

    node_id: str  # the requested one
    reason: str  # name of the status code, or a sentence
    index: int | None = None  # the wanted element of an array


@dataclass(frozen=True, slots=True)
class EventItem:
    """The monitored item of a node whose events are recorded."""

    id: int | None  # assigned by the server; None: the server rejected it
    namespace: int | None = None  # index that the namespace URI had; None: the address has no URI


@dataclass(slots=True)
class Subscription:
    """One subscription on the server."""

    id: int
    requested_interval: float  # s, requested publishing interval
    interval: float  # s, revised publishing interval
    keep_alive: float  # s, maximum silence
    items: dict[int, Item] = field(default_factory=dict)  # by channel id (= client handle)
    tracker: SequenceTracker = field(default_factory=SequenceTracker)
    changing: bool = False  # items are being created or deleted: which ones exist is uncertain
    event_items: dict[str, EventItem] = field(default_factory=dict)  # by address; it has these, or items of channels
    has_published: bool = field(default=True, compare=False)  # it has published since its transfer to this session
    lists_available: bool = field(default=False, compare=False)  # the server lists available sequence numbers
    transferred_status: int = field(
        default=0, compare=False
    )  # sequence number possibly used to notify the previous session of the transfer
    times_before_run: SampleTimes | None = field(default=None, compare=False)  # before the current run of messages

    @property
    def sampled_to(self) -> int:
        """Time (µs) up to which everything sampled by the server is on disk."""
        return self.tracker.complete_to - round(self.interval * 1e6)

    def fits(self, namespaces: Namespaces, whole_arrays: bool) -> bool:
        """Whether its items mean in this session what they were created for.

        If a namespace has another index now, its items may belong to other variables.
        """
        return all(
            item.namespace == namespaces.index(item.node_id)
            and (item.index is None or item.whole_array == whole_arrays)
            for item in self.items.values()
        ) and all(item.namespace == namespaces.index(node) for node, item in self.event_items.items())


@dataclass(slots=True)
class SubscriptionState:
    """All subscriptions of a session, and the rejected channels."""

    subscriptions: dict[int, Subscription] = field(default_factory=dict)  # by id
    refused: dict[int, Refusal] = field(default_factory=dict)  # by channel id
    per_call: int = DEFAULT_LIMIT
    whole_arrays: bool = False  # the server does not support IndexRange
    definitions: dict[int, list[str]] = field(default_factory=dict)  # by channel id: the last Tags.definition

    def by_interval(self, requested_interval: float) -> Subscription | None:
        """The subscription of one publishing interval."""
        of_channels = (s for s in self.subscriptions.values() if not s.event_items)
        return next((s for s in of_channels if s.requested_interval == requested_interval), None)


def parameters(tags: Tags, channel: int) -> tuple[float, Parameters]:
    """Publishing interval (s) and parameters of a channel's item."""
    source, tag = tags.source, tags.tag(channel)
    publishing = tag.interval or source.publishing_interval
    sampling = publishing if source.sampling_interval is None else source.sampling_interval
    return publishing, (sampling, source.queue_size, source.discard_oldest, tag.deadband)


async def create(
    client: Client, tags: Tags, namespaces: Namespaces, state: SubscriptionState, channels: Sequence[int]
) -> None:
    """Create monitored items for ``channels``. Rejected ones are added to ``refused``; others are not affected."""
    if not channels:
        return
    node_ids = {}
    for channel in channels:
        address = tags.tag(channel).address
        try:
            node_ids[channel] = namespaces.node_id(address)
        except SourceError as error:
            state.refused[channel] = Refusal(address, str(error), tags.tag(channel).index)
    limits = ua.ObjectIds
    state.per_call = await operation_limit(
        client, limits.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall
    )
    per_read = await operation_limit(client, limits.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead)
    types = await _data_types(client, node_ids, per_read)
    by_interval: dict[float, list[int]] = {}
    for channel in sorted(channels, key=lambda c: (types.get(c, ""), tags.place(c))):
        by_interval.setdefault(parameters(tags, channel)[0], []).append(channel)
    for interval, members in by_interval.items():
        subscription = state.by_interval(interval)
        if subscription is None:
            subscription = await create_subscription(client, tags.source, interval)
            state.subscriptions[subscription.id] = subscription
        requests = [
            (channel, _request(tags, channel, node_ids[channel], state.whole_arrays))
            for channel in members
            if channel in node_ids
        ]
        for chunk in chunks(requests, state.per_call):
            await _create_items(client, tags, namespaces, state, subscription, chunk)


async def create_subscription(
    client: Client, source: OpcuaSource, interval: float, per_message: int = 0
) -> Subscription:
    """Create a subscription without items; ``per_message``: notifications in a message at most, 0: no limit."""
    request = ua.CreateSubscriptionRequest()
    request.Parameters.RequestedPublishingInterval = interval * 1000
    request.Parameters.RequestedMaxKeepAliveCount = max(1, round(source.keep_alive / interval))
    request.Parameters.RequestedLifetimeCount = max(
        3 * request.Parameters.RequestedMaxKeepAliveCount, round(source.lifetime / interval)
    )
    request.Parameters.MaxNotificationsPerPublish = per_message
    request.Parameters.PublishingEnabled = True
    answer = await call(client, request, ua.CreateSubscriptionResponse, source.time_out)
    revised = answer.Parameters.RevisedPublishingInterval / 1000
    keep_alive = revised * answer.Parameters.RevisedMaxKeepAliveCount
    tracker = SequenceTracker(complete_to=now_us())
    return Subscription(answer.Parameters.SubscriptionId, interval, revised, keep_alive, tracker=tracker)


def _request(tags: Tags, channel: int, node_id: ua.NodeId, whole_arrays: bool) -> Any:
    index_range = None if whole_arrays else index_range_of(tags.tag(channel))
    return ua.MonitoredItemCreateRequest(
        ItemToMonitor=ua.ReadValueId(NodeId=node_id, AttributeId=ua.AttributeIds.Value, IndexRange=index_range),
        MonitoringMode=ua.MonitoringMode.Reporting,
        RequestedParameters=_monitoring(channel, parameters(tags, channel)[1]),
    )


def _monitoring(channel: int, requested: Parameters, before: Parameters | None = None) -> Any:
    """MonitoringParameters (OPC 10000-4, 7.21); ``before``: the current ones of the item."""
    sampling, queue_size, discard_oldest, deadband = requested
    monitoring = ua.MonitoringParameters(
        ClientHandle=channel,
        SamplingInterval=sampling * 1000,
        QueueSize=queue_size,
        DiscardOldest=discard_oldest,
    )
    if deadband > 0 or (before is not None and before[3] > 0):
        kind = ua.DeadbandType.Absolute if deadband > 0 else ua.DeadbandType.None_
        monitoring.Filter = ua.DataChangeFilter(
            Trigger=ua.DataChangeTrigger.StatusValue, DeadbandType=int(kind), DeadbandValue=deadband
        )
    return monitoring


async def _create_items(
    client: Client,
    tags: Tags,
    namespaces: Namespaces,
    state: SubscriptionState,
    subscription: Subscription,
    chunk: Sequence[tuple[int, Any]],
) -> None:
    request = ua.CreateMonitoredItemsRequest()
    request.Parameters.SubscriptionId = subscription.id
    request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
    request.Parameters.ItemsToCreate = [item for _, item in chunk]
    answer = await call(client, request, ua.CreateMonitoredItemsResponse, tags.source.time_out + len(chunk) * 0.01)
    for (channel, _), result in zip(chunk, answer.Results, strict=True):
        address, index = tags.tag(channel).address, tags.tag(channel).index
        if result.StatusCode.is_good():
            subscription.items[channel] = Item(
                result.MonitoredItemId,
                address,
                parameters(tags, channel)[1],
                result.RevisedQueueSize,
                namespaces.index(address),
                index,
                index is not None and state.whole_arrays,
            )
            state.definitions[channel] = tags.definition(channel)
            state.refused.pop(channel, None)
        else:
            state.refused[channel] = Refusal(address, result.StatusCode.name, index)


async def modify(client: Client, tags: Tags, state: SubscriptionState, of: Mapping[int, Sequence[int]]) -> None:
    """Modify items (subscription → channels) to match their tags; queued values are kept.

    Items that the server does not modify stay unchanged.
    """
    for number, channels in of.items():
        subscription = state.subscriptions[number]
        for chunk in chunks(channels, state.per_call):
            request = ua.ModifyMonitoredItemsRequest()
            request.Parameters.SubscriptionId = number
            request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
            requested = [parameters(tags, channel)[1] for channel in chunk]
            items = [subscription.items[channel] for channel in chunk]
            request.Parameters.ItemsToModify = [
                ua.MonitoredItemModifyRequest(item.id, _monitoring(channel, new, item.parameters))
                for channel, item, new in zip(chunk, items, requested, strict=True)
            ]
            time_out = tags.source.time_out + len(chunk) * 0.01
            answer = await call(client, request, ua.ModifyMonitoredItemsResponse, time_out)
            for channel, item, new, result in zip(chunk, items, requested, answer.Results, strict=True):
                revised = result.RevisedQueueSize if result.StatusCode.is_good() else item.queue_size
                if not result.StatusCode.is_good():
                    log.warning(
                        "%s: the server did not modify the monitored item: %s",
                        tags.tag(channel).name,
                        result.StatusCode.name,
                    )
                subscription.items[channel] = replace(item, parameters=new, queue_size=revised)


async def create_marker(client: Client, source: OpcuaSource, subscription: Subscription) -> int | None:
    """Create an item with client handle :data:`MARKER_HANDLE`; its first value follows all values queued by others.

    Returns its id; None if the server rejects it.
    """
    node = ua.ReadValueId(NodeId=ua.NodeId(ua.ObjectIds.Server_ServerStatus_State), AttributeId=ua.AttributeIds.Value)
    request = ua.CreateMonitoredItemsRequest()
    request.Parameters.SubscriptionId = subscription.id
    request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
    request.Parameters.ItemsToCreate = [
        ua.MonitoredItemCreateRequest(
            ItemToMonitor=node,
            MonitoringMode=ua.MonitoringMode.Reporting,
            RequestedParameters=_monitoring(MARKER_HANDLE, (subscription.interval, 1, True, 0.0)),
        )
    ]
    answer = await call(client, request, ua.CreateMonitoredItemsResponse, source.time_out)
    (result,) = answer.Results
    return int(result.MonitoredItemId) if result.StatusCode.is_good() else None


async def remove(
    client: Client, source: OpcuaSource, state: SubscriptionState, of: Mapping[int, Sequence[int]]
) -> None:
    """Delete items (subscription → item ids); unknown ones are ignored."""
    for number, items in of.items():
        subscription = state.subscriptions[number]
        for chunk in chunks(items, state.per_call):
            request = ua.DeleteMonitoredItemsRequest()
            request.Parameters.SubscriptionId = number
            request.Parameters.MonitoredItemIds = list(chunk)
            await call(client, request, ua.DeleteMonitoredItemsResponse, source.time_out + len(chunk) * 0.01)
        gone = set(items)
        subscription.items = {c: item for c, item in subscription.items.items() if item.id not in gone}


async def _data_types(client: Client, node_ids: Mapping[int, ua.NodeId], per_read: int) -> dict[int, str]:
    """The data type of each channel, if known: adjacent items of equal type can be decoded together."""
    types: dict[int, str] = {}
    for chunk in chunks(list(node_ids.items()), per_read):
        values = await client.uaclient.read_attributes([node for _, node in chunk], ua.AttributeIds.DataType)
        types |= {c: str(value.Value.Value) for (c, _), value in zip(chunk, values, strict=True) if value.Value}
    return types
