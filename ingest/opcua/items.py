"""Subscriptions and monitored items: one subscription a publishing interval, items of one data type together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from asyncua import Client, ua

from ingest.batch import now_us
from ingest.config.model import OpcuaSource
from ingest.opcua.progress import Progress

T = TypeVar("T")

_DEFAULT_LIMIT = 1000  # items a call, where the server names none


@dataclass(slots=True)
class Subscription:
    """What the server made of one CreateSubscription."""

    id: int
    asked: float  # s, publishing interval that was asked for
    interval: float  # s, publishing interval as revised
    keep_alive: float  # s, longest silence that is still alive
    tags: list[int] = field(default_factory=list)  # indices of the tags (the client handles) that it has items of
    progress: Progress = field(default_factory=Progress)


@dataclass(slots=True)
class Subscribed:
    """All subscriptions of a session, and the tags that could not be had."""

    subscriptions: dict[int, Subscription] = field(default_factory=dict)  # by id
    bad: dict[int, str] = field(default_factory=dict)  # tag index → the status code's name
    per_call: int = _DEFAULT_LIMIT

    def by_interval(self, asked: float) -> Subscription | None:
        """The subscription of one publishing interval."""
        return next((s for s in self.subscriptions.values() if s.asked == asked), None)

    def without_any(self, source: OpcuaSource) -> list[int]:
        """Tags that no subscription has, and that were not refused."""
        had = set(self.bad).union(*(s.tags for s in self.subscriptions.values()))
        return [i for i in range(len(source.tags)) if i not in had]


async def subscribe(client: Client, source: OpcuaSource, subscribed: Subscribed) -> None:
    """Create what ``subscribed`` lacks. A tag that the server refuses is in ``bad`` and costs only itself."""
    tags = subscribed.without_any(source)
    if not tags:
        return
    subscribed.per_call = await _limit(
        client, ua.ObjectIds.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall
    )
    per_read = await _limit(client, ua.ObjectIds.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead)
    types = await _data_types(client, source, tags, per_read)
    await add(client, source, subscribed, sorted(tags, key=lambda i: (types.get(i, ""), i)))


async def add(client: Client, source: OpcuaSource, subscribed: Subscribed, tags: Sequence[int]) -> None:
    """Create monitored items for ``tags`` (indices), in their order; also used to try bad ones again."""
    by_interval: dict[float, list[int]] = {}
    for i in tags:
        by_interval.setdefault(source.tags[i].interval or source.publishing_interval, []).append(i)
    for interval, members in by_interval.items():
        subscription = subscribed.by_interval(interval)
        if subscription is None:
            subscription = await _create(client, source, interval)
            subscribed.subscriptions[subscription.id] = subscription
        sampling = source.sampling_interval
        requests = [(i, _request(source, i, interval if sampling is None else sampling)) for i in members]
        for i in [i for i, request in requests if request is None]:
            subscribed.bad[i] = "BadNodeIdInvalid"
        for chunk in chunks([(i, r) for i, r in requests if r is not None], subscribed.per_call):
            await _create_items(client, source, subscribed, subscription, chunk)


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


def _request(source: OpcuaSource, i: int, sampling: float) -> Any | None:
    tag = source.tags[i]
    try:
        node_id = ua.NodeId.from_string(tag.address)
    except (ua.UaError, ValueError):
        return None
    parameters = ua.MonitoringParameters(
        ClientHandle=i,
        SamplingInterval=sampling * 1000,
        QueueSize=source.queue_size,
        DiscardOldest=source.discard_oldest,
    )
    if tag.deadband > 0:
        parameters.Filter = ua.DataChangeFilter(
            Trigger=ua.DataChangeTrigger.StatusValue,
            DeadbandType=int(ua.DeadbandType.Absolute),
            DeadbandValue=tag.deadband,
        )
    return ua.MonitoredItemCreateRequest(
        ItemToMonitor=ua.ReadValueId(NodeId=node_id, AttributeId=ua.AttributeIds.Value),
        MonitoringMode=ua.MonitoringMode.Reporting,
        RequestedParameters=parameters,
    )


async def _create_items(
    client: Client,
    source: OpcuaSource,
    subscribed: Subscribed,
    subscription: Subscription,
    chunk: Sequence[tuple[int, Any]],
) -> None:
    request = ua.CreateMonitoredItemsRequest()
    request.Parameters.SubscriptionId = subscription.id
    request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
    request.Parameters.ItemsToCreate = [item for _, item in chunk]
    answer = await call(client, request, ua.CreateMonitoredItemsResponse, source.time_out + len(chunk) * 0.01)
    for (i, _), result in zip(chunk, answer.Results, strict=True):
        if result.StatusCode.is_good():
            subscription.tags.append(i)
            subscribed.bad.pop(i, None)
        else:
            subscribed.bad[i] = result.StatusCode.name


async def call(client: Client, request: Any, response: type[T], time_out: float) -> T:
    """One service call within a deadline. Raises ua.UaError, OSError or TimeoutError."""
    async with asyncio.timeout(time_out):
        body = await client.uaclient.protocol.send_request(request, time_out)
    answer: Any = ua.ua_binary.struct_from_binary(response, body)
    answer.ResponseHeader.ServiceResult.check()
    return answer  # type: ignore[no-any-return]


async def _limit(client: Client, node: int) -> int:
    """One of the server's operation limits; 0 or nothing means it has none."""
    try:
        value = await client.get_node(ua.NodeId(node)).read_value()
    except ua.UaStatusCodeError:
        return _DEFAULT_LIMIT
    return min(int(value), _DEFAULT_LIMIT) if value else _DEFAULT_LIMIT


async def _data_types(client: Client, source: OpcuaSource, tags: Sequence[int], per_read: int) -> dict[int, str]:
    """Each tag's data type, as far as the server says: equal ones side by side make equal strides."""
    nodes: list[tuple[int, Any]] = []
    for i in tags:
        try:
            nodes.append((i, ua.NodeId.from_string(source.tags[i].address)))
        except (ua.UaError, ValueError):
            continue
    types: dict[int, str] = {}
    for chunk in chunks(nodes, per_read):
        values = await client.uaclient.read_attributes([node for _, node in chunk], ua.AttributeIds.DataType)
        types |= {i: str(value.Value.Value) for (i, _), value in zip(chunk, values, strict=True) if value.Value}
    return types


def chunks(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    """``items``, at most ``size`` at a time."""
    return (items[at : at + size] for at in range(0, len(items), size))
