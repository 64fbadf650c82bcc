"""Subscriptions and monitored items: one subscription per publishing interval, items grouped by data type.

A new session takes over the subscriptions of an old one (TransferSubscriptions, OPC 10000-4, 5.14.7).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from asyncua import Client, ua

from core.config.sources import OpcuaSource
from core.errors import SourceError
from core.opcua.namespaces import Namespaces
from core.opcua.service import call, call_server_method, checked, index_range_of, read
from core.opcua.structure import other_dimensions
from core.timestamps import now_us
from ingest.opcua.decode.decoded import FIRST_STRUCTURE
from ingest.opcua.decode.members import MemberChannel
from ingest.opcua.subscription.sequence import SequenceTracker
from ingest.opcua.subscription.subscription_state import Item, Parameters, Refusal, Subscription, SubscriptionState
from ingest.opcua.subscription.tags import Tags

log = logging.getLogger(__name__)

MARKER_HANDLE = FIRST_STRUCTURE - 1  # client handle of the marker item; no channel has it
PROBE_HANDLE = FIRST_STRUCTURE - 2  # the same, of the item that shows whether a subscription publishes

_Request: TypeAlias = tuple[list[int], int | None, Any]  # channels, their shared handle if any, and the request


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
            state.refused[channel] = Refusal(address, str(error), *tags.target_of(channel)[1:])
    time_out = tags.source.time_out
    types = await _read(client, node_ids, ua.AttributeIds.DataType, state, time_out)
    elements = {c: node for c, node in node_ids.items() if index_range_of(tags.tag(c)) is not None}
    for channel, rank in (await _read(client, elements, ua.AttributeIds.ValueRank, state, time_out)).items():
        if isinstance(rank, int) and rank > 1:  # some servers send an element all the same
            reason = f"an array of {rank} dimensions{other_dimensions(rank)}"
            state.refused[channel] = Refusal(tags.tag(channel).address, reason, *tags.target_of(channel)[1:])
            del node_ids[channel]
    structured = {tags.tag(c).address: node for c, node in node_ids.items() if tags.tag(c).member}
    await state.structures.read(client, time_out, structured)
    by_interval: dict[float, list[int]] = {}
    for channel in sorted(channels, key=lambda c: (str(types.get(c, "")), tags.position(c))):
        by_interval.setdefault(parameters(tags, channel)[0], []).append(channel)
    for interval, members in by_interval.items():
        subscription = state.by_interval(interval)
        if subscription is None:
            subscription = await create_subscription(client, tags.source, interval)
            state.subscriptions[subscription.id] = subscription
        requests = _requests(tags, node_ids, state, subscription.key, [c for c in members if c in node_ids])
        await _create_items(client, tags, namespaces, state, subscription, requests)


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


def _requests(
    tags: Tags, node_ids: Mapping[int, ua.NodeId], state: SubscriptionState, key: int, channels: Sequence[int]
) -> list[_Request]:
    """A request for each channel, or for all that share a whole value; ``key``: of their subscription."""
    shared: dict[str, list[int]] = {}
    for channel in channels:
        if tags.tag(channel).reads_whole:
            shared.setdefault(tags.tag(channel).address, []).append(channel)
    requests: list[_Request] = []
    for channel in channels:
        tag = tags.tag(channel)
        together, handle = shared.get(tag.address, [channel]) if tag.reads_whole else [channel], None
        if channel != together[0]:
            continue
        if tag.reads_whole:
            handle, state.handles = FIRST_STRUCTURE + state.handles % FIRST_STRUCTURE, state.handles + 1
            members = [MemberChannel(c, tags.tag(c).path) for c in together]
            state.structures.monitor(handle, tag.address, members)  # values may come before the answer
        index_range = None if state.whole_arrays else index_range_of(tag)
        request = ua.MonitoredItemCreateRequest(
            ItemToMonitor=ua.ReadValueId(
                NodeId=node_ids[channel], AttributeId=ua.AttributeIds.Value, IndexRange=index_range
            ),
            MonitoringMode=ua.MonitoringMode.Reporting,
            RequestedParameters=_monitoring(
                key ^ (channel if handle is None else handle), parameters(tags, channel)[1]
            ),
        )
        requests.append((together, handle, request))
    return requests


def _monitoring(handle: int, requested: Parameters, before: Parameters | None = None) -> Any:
    """MonitoringParameters (OPC 10000-4, 7.21); ``before``: the current ones of the item."""
    sampling, queue_size, discard_oldest, deadband = requested
    monitoring = ua.MonitoringParameters(
        ClientHandle=handle,
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
    requests: Sequence[_Request],
) -> None:
    async def create_some(portion: Sequence[_Request]) -> Sequence[Any] | None:
        time_out = tags.source.time_out + len(portion) * 0.01
        return await request_items(client, subscription, [item for *_, item in portion], time_out, divisible=True)

    subscription.requested = frozenset(together[0] if handle is None else handle for together, handle, _ in requests)
    results = await state.creating.results(
        requests, create_some, lambda code: ua.MonitoredItemCreateResult(StatusCode=ua.StatusCode(code))
    )
    for (together, handle, _), result in zip(requests, results, strict=True):
        for channel in together:
            address, index, member = attributes = tags.target_of(channel)
            if not result.StatusCode.is_good():
                state.refused[channel] = Refusal(address, result.StatusCode.name, *attributes[1:])
                continue
            subscription.items[channel] = Item(
                result.MonitoredItemId,
                address,
                parameters(tags, channel)[1],
                result.RevisedQueueSize,
                namespaces.index(address),
                index,
                index is not None and state.whole_arrays,
                member,
                handle,
            )
            state.definitions[channel] = tags.definition(channel)
            state.refused.pop(channel, None)
    subscription.requested = frozenset()


async def modify(
    client: Client, tags: Tags, state: SubscriptionState, channels_of: Mapping[int, Sequence[int]]
) -> None:
    """Modify items (subscription → channels) to match their tags; queued values are kept.

    Items that the server does not modify stay unchanged.
    """
    for number, channels in channels_of.items():
        subscription = state.subscriptions[number]
        requested = [(channel, subscription.items[channel], parameters(tags, channel)[1]) for channel in channels]

        async def modify_some(
            portion: Sequence[tuple[int, Item, Parameters]], subscription: Subscription = subscription
        ) -> Sequence[Any] | None:
            request = ua.ModifyMonitoredItemsRequest()
            request.Parameters.SubscriptionId = subscription.id
            request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
            request.Parameters.ItemsToModify = [
                ua.MonitoredItemModifyRequest(
                    item.id,
                    _monitoring(
                        subscription.key ^ (channel if item.handle is None else item.handle), new, item.parameters
                    ),
                )
                for channel, item, new in portion
            ]
            time_out = tags.source.time_out + len(portion) * 0.01
            answer: Any = await call(client, request, ua.ModifyMonitoredItemsResponse, time_out, divisible=True)
            return answer.Results  # type: ignore[no-any-return]

        results = await state.modifying.results(
            requested, modify_some, lambda code: ua.MonitoredItemModifyResult(StatusCode=ua.StatusCode(code))
        )
        for (channel, item, new), result in zip(requested, results, strict=True):
            revised = result.RevisedQueueSize if result.StatusCode.is_good() else item.queue_size
            if not result.StatusCode.is_good():
                log.warning(
                    "%s: the server did not modify the monitored item: %s",
                    tags.tag(channel).name,
                    result.StatusCode.name,
                )
            subscription.items[channel] = replace(item, parameters=new, queue_size=revised)


async def request_items(
    client: Client,
    subscription: Subscription,
    items: Sequence[Any],
    time_out: float,
    timestamps: ua.TimestampsToReturn = ua.TimestampsToReturn.Both,
    *,
    divisible: bool = False,
) -> Sequence[Any] | None:
    """The server's results of one call that creates monitored items."""
    request = ua.CreateMonitoredItemsRequest()
    request.Parameters.SubscriptionId = subscription.id
    request.Parameters.TimestampsToReturn = timestamps
    request.Parameters.ItemsToCreate = items
    answer: Any = await call(client, request, ua.CreateMonitoredItemsResponse, time_out, divisible=divisible)
    return answer.Results  # type: ignore[no-any-return]


async def create_marker(
    client: Client, source: OpcuaSource, subscription: Subscription, handle: int = MARKER_HANDLE
) -> int | None:
    """Create an item with a client handle that no channel has; its first value follows all values queued by others.

    Returns its id; None if the server rejects it.
    """
    node = ua.ReadValueId(NodeId=ua.NodeId(ua.ObjectIds.Server_ServerStatus_State), AttributeId=ua.AttributeIds.Value)
    item = ua.MonitoredItemCreateRequest(
        ItemToMonitor=node,
        MonitoringMode=ua.MonitoringMode.Reporting,
        RequestedParameters=_monitoring(subscription.key ^ handle, (subscription.interval, 1, True, 0.0)),
    )
    (result,) = checked(await request_items(client, subscription, [item], source.time_out), [item])
    return int(result.MonitoredItemId) if result.StatusCode.is_good() else None


async def remove(
    client: Client, source: OpcuaSource, state: SubscriptionState, channels_of: Mapping[int, Sequence[int]]
) -> None:
    """Delete the items of channels (subscription → channels). One that other channels share stays on the server."""
    for number, channels in channels_of.items():
        subscription = state.subscriptions[number]
        remaining = {channel: item for channel, item in subscription.items.items() if channel not in set(channels)}
        shared = {item.id for item in remaining.values()}
        deleted = {subscription.items[channel].id for channel in channels} - shared
        await delete_items(client, source, state, number, sorted(deleted))
        subscription.items = remaining
    state.structures.monitor_only(state.shared_items())


async def delete_items(
    client: Client, source: OpcuaSource, state: SubscriptionState, subscription: int, items: Sequence[int]
) -> None:
    """Delete items of a subscription by their ids; unknown ones are ignored."""

    async def delete_some(portion: Sequence[int]) -> Sequence[Any] | None:
        request = ua.DeleteMonitoredItemsRequest()
        request.Parameters.SubscriptionId = subscription
        request.Parameters.MonitoredItemIds = list(portion)
        time_out = source.time_out + len(portion) * 0.01
        answer: Any = await call(client, request, ua.DeleteMonitoredItemsResponse, time_out, divisible=True)
        return answer.Results  # type: ignore[no-any-return]

    await state.deleting.results(items, delete_some, ua.StatusCode)


async def _read(
    client: Client, node_ids: Mapping[int, ua.NodeId], attribute: int, state: SubscriptionState, time_out: float
) -> dict[int, Any]:
    """An attribute of each channel's node, if known.

    Of data types: adjacent items of equal type can be decoded together.
    """

    async def read_some(portion: Sequence[ua.NodeId]) -> Sequence[Any]:
        return await read(client, [(node, attribute) for node in portion], time_out, divisible=True)

    values = await state.reading.results(
        list(node_ids.values()), read_some, lambda code: ua.DataValue(StatusCode_=ua.StatusCode(code))
    )
    return {channel: value.Value.Value for channel, value in zip(node_ids, values, strict=True) if value.Value}


async def transfer(client: Client, source: OpcuaSource, state: SubscriptionState) -> dict[int, frozenset[int]]:
    """Transfer what can be ours of ``state``. Returns the available sequence numbers by id of each transferred one.

    Initial values are not requested: every change is in a notification.
    """
    ids = [s.id for s in state.subscriptions.values() if s.is_ours is not False and s.handles]
    if not ids:
        return {}
    request = ua.TransferSubscriptionsRequest()
    request.Parameters.SubscriptionIds = ids
    request.Parameters.SendInitialValues = False
    try:
        answer = await call(client, request, ua.TransferSubscriptionsResponse, source.time_out)
    except ua.UaStatusCodeError as error:
        log.info(
            "source %s: cannot transfer the subscriptions, creating new ones: %s", source.name, type(error).__name__
        )
        return {}
    transferred: dict[int, frozenset[int]] = {}
    for number, result in zip(ids, answer.Parameters.Results, strict=True):
        if result.StatusCode.is_good():
            transferred[number] = frozenset(result.AvailableSequenceNumbers or ())
        else:
            log.info(
                "source %s: the server no longer has subscription %d: %s", source.name, number, result.StatusCode.name
            )
    return transferred


async def prove_ours(client: Client, source: OpcuaSource, subscription: Subscription) -> None:
    """Compare the client handles of its items (GetMonitoredItems, OPC 10000-5, 9.1) with ours.

    Where the server has no such method, the first values prove it. Raises SourceError if it is another client's.
    """
    subscription.is_ours = None
    try:
        method = ua.ObjectIds.Server_GetMonitoredItems
        result = await call_server_method(client, method, subscription.id, source.time_out)
    except ua.UaStatusCodeError:
        return
    if result.StatusCode.is_good() and len(result.OutputArguments) == 2:
        ours = subscription.handles
        handles = result.OutputArguments[1].Value or ()
        subscription.prove(any(handle ^ subscription.key in ours for handle in handles))


async def delete(client: Client, source: OpcuaSource, ids: list[int]) -> None:
    """Delete subscriptions of this session; errors are ignored."""
    request = ua.DeleteSubscriptionsRequest()
    request.Parameters.SubscriptionIds = ids
    try:
        await call(client, request, ua.DeleteSubscriptionsResponse, source.time_out)
    except ua.UaStatusCodeError as error:
        log.info("source %s: cannot delete old subscriptions: %s", source.name, type(error).__name__)
