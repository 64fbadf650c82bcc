"""Subscriptions and monitored items: one subscription a publishing interval, items of one data type together."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from asyncua import Client, ua

from ingest.batch import now_us
from ingest.config.model import OpcuaSource
from ingest.opcua.progress import Progress
from ingest.opcua.tags import Tags, Times

log = logging.getLogger(__name__)

T = TypeVar("T")

MARK = 2**31 - 1  # a client handle that no channel has

_DEFAULT_LIMIT = 1000  # items a call, where the server names none

Parameters: TypeAlias = tuple[float, int, bool, float]  # sampling interval (s), queue size, discard oldest, deadband


@dataclass(frozen=True, slots=True)
class Item:
    """A monitored item, as it was asked for."""

    id: int  # the server's
    node_id: str
    parameters: Parameters
    queue_size: int = 0  # as revised; 0: not known


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the server does not give a channel."""

    node_id: str  # that was asked for
    reason: str  # the status code's name


@dataclass(slots=True)
class Subscription:
    """What the server made of one CreateSubscription."""

    id: int
    asked: float  # s, publishing interval that was asked for
    interval: float  # s, publishing interval as revised
    keep_alive: float  # s, longest silence that is still alive
    items: dict[int, Item] = field(default_factory=dict)  # by channel id, which is the client handle
    progress: Progress = field(default_factory=Progress)
    changing: bool = False  # items are being made or deleted: which ones the server has is not known
    heard: bool = field(default=True, compare=False)  # it has published since it was handed to this session
    lists: bool = field(default=False, compare=False)  # the server names the messages that it still holds
    farewell: int = field(default=0, compare=False)  # the number that it may have given its word to the session before
    before: Times | None = field(default=None, compare=False)  # a run of messages, which isn't over

    @property
    def sampled_to(self) -> int:
        """µs, up to which all that the server sampled is on disk."""
        return self.progress.complete_to - round(self.interval * 1e6)


@dataclass(slots=True)
class Subscribed:
    """All subscriptions of a session, and the channels that could not be had."""

    subscriptions: dict[int, Subscription] = field(default_factory=dict)  # by id
    bad: dict[int, Refusal] = field(default_factory=dict)  # by channel id
    per_call: int = _DEFAULT_LIMIT
    read: dict[int, list[str]] = field(default_factory=dict)  # by channel id: Tags.meaning of what was read last

    def by_interval(self, asked: float) -> Subscription | None:
        """The subscription of one publishing interval."""
        return next((s for s in self.subscriptions.values() if s.asked == asked), None)


def parameters(tags: Tags, channel: int) -> tuple[float, Parameters]:
    """Publishing interval (s) and parameters that a channel's item is to have."""
    source, tag = tags.source, tags.tag(channel)
    publishing = tag.interval or source.publishing_interval
    sampling = publishing if source.sampling_interval is None else source.sampling_interval
    return publishing, (sampling, source.queue_size, source.discard_oldest, tag.deadband)


async def create(client: Client, tags: Tags, subscribed: Subscribed, channels: Sequence[int]) -> None:
    """Create monitored items for ``channels``. One that the server refuses is in ``bad`` and costs only itself."""
    if not channels:
        return
    limits = ua.ObjectIds
    subscribed.per_call = await operation_limit(
        client, limits.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall
    )
    per_read = await operation_limit(client, limits.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead)
    types = await _data_types(client, tags, channels, per_read)
    channels = sorted(channels, key=lambda c: (types.get(c, ""), tags.place(c)))
    by_interval: dict[float, list[int]] = {}
    for channel in channels:
        by_interval.setdefault(parameters(tags, channel)[0], []).append(channel)
    for interval, members in by_interval.items():
        subscription = subscribed.by_interval(interval)
        if subscription is None:
            subscription = await _create(client, tags.source, interval)
            subscribed.subscriptions[subscription.id] = subscription
        requests = [(channel, _request(tags, channel)) for channel in members]
        for channel in [channel for channel, request in requests if request is None]:
            subscribed.bad[channel] = Refusal(tags.tag(channel).address, "BadNodeIdInvalid")
        for chunk in chunks([(c, r) for c, r in requests if r is not None], subscribed.per_call):
            await _create_items(client, tags, subscribed, subscription, chunk)


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
    progress = Progress(complete_to=now_us())
    return Subscription(answer.Parameters.SubscriptionId, interval, revised, keep_alive, progress=progress)


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


def _monitoring(channel: int, asked: Parameters, before: Parameters | None = None) -> Any:
    """MonitoringParameters (OPC 10000-4, 7.21); ``before``: those that the item has."""
    sampling, queue_size, discard_oldest, deadband = asked
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
    subscribed: Subscribed,
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
            asked = parameters(tags, channel)[1]
            item = Item(result.MonitoredItemId, tags.tag(channel).address, asked, result.RevisedQueueSize)
            subscription.items[channel] = item
            subscribed.read[channel] = tags.meaning(channel)
            subscribed.bad.pop(channel, None)
        else:
            subscribed.bad[channel] = Refusal(tags.tag(channel).address, result.StatusCode.name)


async def modify(client: Client, tags: Tags, subscribed: Subscribed, of: Mapping[int, Sequence[int]]) -> None:
    """Give items (subscription → channels) the parameters that their tags ask for; what they queued stays theirs.

    One that the server does not modify goes on as it is.
    """
    for number, channels in of.items():
        subscription = subscribed.subscriptions[number]
        for chunk in chunks(channels, subscribed.per_call):
            request = ua.ModifyMonitoredItemsRequest()
            request.Parameters.SubscriptionId = number
            request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
            asked = [parameters(tags, channel)[1] for channel in chunk]
            items = [subscription.items[channel] for channel in chunk]
            request.Parameters.ItemsToModify = [
                ua.MonitoredItemModifyRequest(item.id, _monitoring(channel, new, item.parameters))
                for channel, item, new in zip(chunk, items, asked, strict=True)
            ]
            time_out = tags.source.time_out + len(chunk) * 0.01
            answer = await call(client, request, ua.ModifyMonitoredItemsResponse, time_out)
            for channel, item, new, result in zip(chunk, items, asked, answer.Results, strict=True):
                revised = result.RevisedQueueSize if result.StatusCode.is_good() else item.queue_size
                if not result.StatusCode.is_good():
                    log.warning("%s goes on as it was: %s", tags.tag(channel).name, result.StatusCode.name)
                subscription.items[channel] = Item(item.id, item.node_id, new, revised)


async def mark(client: Client, source: OpcuaSource, subscription: Subscription) -> int | None:
    """Create an item of client handle :data:`MARK`, whose first value comes behind all that others had queued.

    Returns its id; None where the server refuses.
    """
    node = ua.ReadValueId(NodeId=ua.NodeId(ua.ObjectIds.Server_ServerStatus_State), AttributeId=ua.AttributeIds.Value)
    request = ua.CreateMonitoredItemsRequest()
    request.Parameters.SubscriptionId = subscription.id
    request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
    request.Parameters.ItemsToCreate = [
        ua.MonitoredItemCreateRequest(
            ItemToMonitor=node,
            MonitoringMode=ua.MonitoringMode.Reporting,
            RequestedParameters=_monitoring(MARK, (subscription.interval, 1, True, 0.0)),
        )
    ]
    answer = await call(client, request, ua.CreateMonitoredItemsResponse, source.time_out)
    (result,) = answer.Results
    return int(result.MonitoredItemId) if result.StatusCode.is_good() else None


async def remove(client: Client, source: OpcuaSource, subscribed: Subscribed, of: Mapping[int, Sequence[int]]) -> None:
    """Delete items (subscription → item ids). One that the server does not know is gone, which is what was wanted."""
    for number, items in of.items():
        subscription = subscribed.subscriptions[number]
        for chunk in chunks(items, subscribed.per_call):
            request = ua.DeleteMonitoredItemsRequest()
            request.Parameters.SubscriptionId = number
            request.Parameters.MonitoredItemIds = list(chunk)
            await call(client, request, ua.DeleteMonitoredItemsResponse, source.time_out + len(chunk) * 0.01)
        gone = set(items)
        subscription.items = {c: item for c, item in subscription.items.items() if item.id not in gone}


async def call(client: Client, request: Any, response: type[T], time_out: float) -> T:
    """One service call within a deadline. Raises ua.UaError, OSError or TimeoutError."""
    body = await client.uaclient.protocol.send_request(request, time_out)
    answer: Any = ua.ua_binary.struct_from_binary(response, body)
    answer.ResponseHeader.ServiceResult.check()
    return answer  # type: ignore[no-any-return]


async def operation_limit(client: Client, node: int) -> int:
    """One of the server's operation limits; 0 or nothing means it has none."""
    try:
        value = await client.get_node(ua.NodeId(node)).read_value()
    except ua.UaStatusCodeError:
        return _DEFAULT_LIMIT
    return min(int(value), _DEFAULT_LIMIT) if value else _DEFAULT_LIMIT


async def _data_types(client: Client, tags: Tags, channels: Sequence[int], per_read: int) -> dict[int, str]:
    """Each channel's data type, as far as the server says: equal ones side by side make equal strides."""
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
    """``items``, at most ``size`` at a time."""
    return (items[at : at + size] for at in range(0, len(items), size))
