"""Subscriptions and monitored items: one subscription per publishing interval, items grouped by data type."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from asyncua import Client, ua

from ingest.config.sources import OpcuaSource
from ingest.opcua.sequence import SequenceTracker
from ingest.opcua.tags import SampleTimes, Tags
from ingest.timestamps import now_us

log = logging.getLogger(__name__)

T = TypeVar("T")

MARKER_HANDLE = 2**31 - 1  # client handle of the marker item; no channel has it

_DEFAULT_LIMIT = 1000  # items per call if the server has no limit

Parameters: TypeAlias = tuple[float, int, bool, float]  # sampling interval (s), queue size, discard oldest, deadband


@dataclass(frozen=True, slots=True)
class Item:
    """A monitored item as requested."""

    id: int  # assigned by the server
    node_id: str
    parameters: Parameters
    queue_size: int = 0  # revised; 0: unknown


@dataclass(frozen=True, slots=True)
class Refusal:
    """A channel rejected by the server."""

    node_id: str  # the requested one
    reason: str  # name of the status code


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


@dataclass(slots=True)
class SubscriptionState:
    """All subscriptions of a session, and the rejected channels."""

    subscriptions: dict[int, Subscription] = field(default_factory=dict)  # by id
    refused: dict[int, Refusal] = field(default_factory=dict)  # by channel id
    per_call: int = _DEFAULT_LIMIT
    definitions: dict[int, list[str]] = field(default_factory=dict)  # by channel id: the last Tags.definition

    def by_interval(self, requested_interval: float) -> Subscription | None:
        """The subscription of one publishing interval."""
        return next((s for s in self.subscriptions.values() if s.requested_interval == requested_interval), None)


def parameters(tags: Tags, channel: int) -> tuple[float, Parameters]:
    """Publishing interval (s) and parameters of a channel's item."""
    source, tag = tags.source, tags.tag(channel)
    publishing = tag.interval or source.publishing_interval
    sampling = publishing if source.sampling_interval is None else source.sampling_interval
    return publishing, (sampling, source.queue_size, source.discard_oldest, tag.deadband)


async def create(client: Client, tags: Tags, state: SubscriptionState, channels: Sequence[int]) -> None:
    """Create monitored items for ``channels``. Rejected ones are added to ``refused``; others are not affected."""
    if not channels:
        return
    limits = ua.ObjectIds
    state.per_call = await operation_limit(
        client, limits.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall
    )
    per_read = await operation_limit(client, limits.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead)
    types = await _data_types(client, tags, channels, per_read)
    channels = sorted(channels, key=lambda c: (types.get(c, ""), tags.place(c)))
    by_interval: dict[float, list[int]] = {}
    for channel in channels:
        by_interval.setdefault(parameters(tags, channel)[0], []).append(channel)
    for interval, members in by_interval.items():
        subscription = state.by_interval(interval)
        if subscription is None:
            subscription = await _create(client, tags.source, interval)
            state.subscriptions[subscription.id] = subscription
        requests = [(channel, _request(tags, channel)) for channel in members]
        for channel in [channel for channel, request in requests if request is None]:
            state.refused[channel] = Refusal(tags.tag(channel).address, "BadNodeIdInvalid")
        for chunk in chunks([(c, r) for c, r in requests if r is not None], state.per_call):
            await _create_items(client, tags, state, subscription, chunk)


async def _create(client: Client, source: OpcuaSource, interval: float) -> Subscription:
    request = ua.CreateSubscriptionRequest()
    request.Parameters.RequestedPublishingInterval = interval * 1000
    request.Parameters.RequestedMaxKeepAliveCount = max(1, round(source.keep_alive / interval))
    request.Parameters.RequestedLifetimeCount = max(
        3 * request.Parameters.RequestedMaxKeepAliveCount, round(source.lifetime / interval)
    )
    request.Parameters.MaxNotificationsPerPublish = 0
    request.Parameters.PublishingEnabled = True
    answer = await call(client, request, ua.CreateSubscriptionResponse, source.time_out)
    revised = answer.Parameters.RevisedPublishingInterval / 1000
    keep_alive = revised * answer.Parameters.RevisedMaxKeepAliveCount
    tracker = SequenceTracker(complete_to=now_us())
    return Subscription(answer.Parameters.SubscriptionId, interval, revised, keep_alive, tracker=tracker)


def _request(tags: Tags, channel: int) -> Any | None:
    try:
        node_id = ua.NodeId.from_string(tags.tag(channel).address)
    except (ua.UaError, ValueError):
        return None
    return ua.MonitoredItemCreateRequest(
        ItemToMonitor=ua.ReadValueId(NodeId=node_id, AttributeId=ua.AttributeIds.Value),
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
        if result.StatusCode.is_good():
            requested = parameters(tags, channel)[1]
            item = Item(result.MonitoredItemId, tags.tag(channel).address, requested, result.RevisedQueueSize)
            subscription.items[channel] = item
            state.definitions[channel] = tags.definition(channel)
            state.refused.pop(channel, None)
        else:
            state.refused[channel] = Refusal(tags.tag(channel).address, result.StatusCode.name)


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
                subscription.items[channel] = Item(item.id, item.node_id, new, revised)


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


async def call(client: Client, request: Any, response: type[T], time_out: float) -> T:
    """Await one service call with a deadline. Raises ua.UaError, OSError or TimeoutError."""
    body = await client.uaclient.protocol.send_request(request, time_out)
    answer: Any = ua.ua_binary.struct_from_binary(response, body)
    answer.ResponseHeader.ServiceResult.check()
    return answer  # type: ignore[no-any-return]


async def operation_limit(client: Client, node: int) -> int:
    """One of the server's operation limits; 0 or null: no limit."""
    try:
        value = await client.get_node(ua.NodeId(node)).read_value()
    except ua.UaStatusCodeError:
        return _DEFAULT_LIMIT
    return min(int(value), _DEFAULT_LIMIT) if value else _DEFAULT_LIMIT


async def _data_types(client: Client, tags: Tags, channels: Sequence[int], per_read: int) -> dict[int, str]:
    """The data type of each channel, if known: adjacent items of equal type can be decoded together."""
    nodes: list[tuple[int, Any]] = []
    for channel in channels:
        try:
            nodes.append((channel, ua.NodeId.from_string(tags.tag(channel).address)))
        except (ua.UaError, ValueError):
            continue
    types: dict[int, str] = {}
    for chunk in chunks(nodes, per_read):
        values = await client.uaclient.read_attributes([node for _, node in chunk], ua.AttributeIds.DataType)
        types |= {c: str(value.Value.Value) for (c, _), value in zip(chunk, values, strict=True) if value.Value}
    return types


def chunks(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    """Split ``items`` into chunks of at most ``size``."""
    return (items[at : at + size] for at in range(0, len(items), size))
