"""Subscriptions and monitored items: one subscription a publishing interval, items of one data type together.

What the configuration asks for is compared with what the server has, and only the difference is made: in a living
session when tags are edited, and after a subscription was taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from asyncua import Client, ua

from ingest.batch import now_us
from ingest.config.model import OpcuaSource
from ingest.opcua.progress import Progress
from ingest.opcua.tags import Tags, Times

T = TypeVar("T")

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
    before: Times | None = field(default=None, compare=False)  # a run of messages, which isn't over


@dataclass(slots=True)
class Subscribed:
    """All subscriptions of a session, and the channels that could not be had."""

    subscriptions: dict[int, Subscription] = field(default_factory=dict)  # by id
    bad: dict[int, Refusal] = field(default_factory=dict)  # by channel id
    per_call: int = _DEFAULT_LIMIT

    def by_interval(self, asked: float) -> Subscription | None:
        """The subscription of one publishing interval."""
        return next((s for s in self.subscriptions.values() if s.asked == asked), None)


@dataclass(frozen=True, slots=True)
class Difference:
    """What has to be done for the server to have what the tags ask for."""

    create: list[int]  # channel ids
    delete_first: dict[int, list[int]]  # subscription → items of other nodes, which must not speak for the channel
    delete_last: dict[int, list[int]]  # subscription → items that new ones take the place of, or that are not wanted

    def __bool__(self) -> bool:
        return bool(self.create or self.delete_first or self.delete_last)


def difference(tags: Tags, subscribed: Subscribed) -> Difference:
    """Compare; nodes that were refused are not asked for again."""
    wanted = tags.ids.tolist()
    found = Difference([], {}, {})
    had: set[int] = set()
    for subscription in subscribed.subscriptions.values():
        for channel, item in subscription.items.items():
            tag = None if tags.place(channel) is None else tags.tag(channel)
            same_node = tag is not None and tag.address == item.node_id
            if same_node and (subscription.asked, item.parameters) == _parameters(tags, channel):
                had.add(channel)
                continue
            gone = found.delete_first if tag is not None and not same_node else found.delete_last
            gone.setdefault(subscription.id, []).append(item.id)
    refused = {c for c, r in subscribed.bad.items() if tags.place(c) is not None and tags.tag(c).address == r.node_id}
    found.create.extend(channel for channel in wanted if channel not in had and channel not in refused)
    return found


def _parameters(tags: Tags, channel: int) -> tuple[float, Parameters]:
    """Publishing interval (s) and parameters that a channel's item is to have."""
    source, tag = tags.source, tags.tag(channel)
    publishing = tag.interval or source.publishing_interval
    sampling = publishing if source.sampling_interval is None else source.sampling_interval
    return publishing, (sampling, source.queue_size, source.discard_oldest, tag.deadband)


async def synchronise(client: Client, tags: Tags, subscribed: Subscribed, todo: Difference) -> None:
    """Make the difference. A tag that the server refuses is in ``bad`` and costs only itself.

    The new item of a node is there before the old one goes, so that no value falls between them: the two send the same
    samples, which are one in the table.
    """
    subscribed.per_call = await operation_limit(
        client, ua.ObjectIds.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall
    )
    await _delete_items(client, tags.source, subscribed, todo.delete_first)
    if todo.create:
        per_read = await operation_limit(client, ua.ObjectIds.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead)
        types = await _data_types(client, tags, todo.create, per_read)
        await add(client, tags, subscribed, sorted(todo.create, key=lambda c: (types.get(c, ""), tags.place(c))))
    await _delete_items(client, tags.source, subscribed, todo.delete_last)


async def add(client: Client, tags: Tags, subscribed: Subscribed, channels: Sequence[int]) -> None:
    """Create monitored items for ``channels``, in their order; also used to try bad ones again."""
    by_interval: dict[float, list[int]] = {}
    for channel in channels:
        by_interval.setdefault(_parameters(tags, channel)[0], []).append(channel)
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
    tag = tags.tag(channel)
    try:
        node_id = ua.NodeId.from_string(tag.address)
    except (ua.UaError, ValueError):
        return None
    _, (sampling, queue_size, discard_oldest, deadband) = _parameters(tags, channel)
    parameters = ua.MonitoringParameters(
        ClientHandle=channel,
        SamplingInterval=sampling * 1000,
        QueueSize=queue_size,
        DiscardOldest=discard_oldest,
    )
    if deadband > 0:
        parameters.Filter = ua.DataChangeFilter(
            Trigger=ua.DataChangeTrigger.StatusValue,
            DeadbandType=int(ua.DeadbandType.Absolute),
            DeadbandValue=deadband,
        )
    return ua.MonitoredItemCreateRequest(
        ItemToMonitor=ua.ReadValueId(NodeId=node_id, AttributeId=ua.AttributeIds.Value),
        MonitoringMode=ua.MonitoringMode.Reporting,
        RequestedParameters=parameters,
    )


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
            parameters = _parameters(tags, channel)[1]
            subscription.items[channel] = Item(
                result.MonitoredItemId, tags.tag(channel).address, parameters, result.RevisedQueueSize
            )
            subscribed.bad.pop(channel, None)
        else:
            subscribed.bad[channel] = Refusal(tags.tag(channel).address, result.StatusCode.name)


async def _delete_items(client: Client, source: OpcuaSource, subscribed: Subscribed, of: dict[int, list[int]]) -> None:
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
    async with asyncio.timeout(time_out):
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
