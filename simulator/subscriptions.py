"""Subscriptions that survive their connection as required by OPC 10000-4, 5.14, where asyncua's server does not.

In asyncua, transferred subscriptions wait for publish requests of the old connection and never publish again; a
republished message is dropped without acknowledgement; a missing one is answered with an empty one; and
a full queue drops values without setting Overflow.

Notifications with many numbers are encoded as columns instead of value by value: a DataChangeNotification (OPC 10000-4,
7.25.2) of Doubles in OPC UA Binary (OPC 10000-6, 5.2) has items of equal size, so that numpy can fill in handles,
values and timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from asyncua import ua
from asyncua.common.utils import ServiceError
from asyncua.server.internal_subscription import InternalSubscription
from asyncua.server.monitored_item_service import MonitoredItemService
from asyncua.server.subscription_service import SubscriptionService
from numpy.typing import NDArray

from core.samples import Samples

_OVERFLOW = 0x0480  # InfoType DataValue and Overflow (OPC 10000-4, 7.39.1)
_DATA_CHANGE = ua.NodeId(ua.ObjectIds.DataChangeNotification_Encoding_DefaultBinary)
_DOUBLE = 11  # built-in type of a Variant
_VALUE, _STATUS, _SOURCE_TIME, _SERVER_TIME = 0x01, 0x02, 0x04, 0x08  # encoding mask of a DataValue
_EPOCH = 116_444_736_000_000_000  # 1970 in steps of 100 ns since 1601
_BEGIN = [("handle", "<u4"), ("mask", "u1"), ("type", "u1"), ("value", "<f8")]
_TIMES = [("source", "<i8"), ("server", "<i8")]
_GOOD = np.dtype([*_BEGIN, *_TIMES])  # Good status is omitted
_OTHER = np.dtype([*_BEGIN, ("status", "<u4"), *_TIMES])


@dataclass(slots=True)
class Transit:
    """Fate of published messages. ``sent again``: clients can get a lost one by Republish."""

    loss: Literal["no", "sent again", "gone"] = "no"
    lost: int = 0  # messages so far


class _Items(MonitoredItemService):  # type: ignore[misc]
    """Detects changes of its items."""

    changed = True

    def _commit_monitored_item(self, result: Any, item: Any) -> None:
        self.changed = True
        super()._commit_monitored_item(result, item)

    def _modify_monitored_item(self, params: Any) -> Any:
        self.changed = True
        return super()._modify_monitored_item(params)

    async def _set_monitoring_mode(self, mode: Any, mid: int) -> Any:
        self.changed = True
        return await super()._set_monitoring_mode(mode, mid)

    def _delete_monitored_items(self, mid: int) -> Any:
        self.changed = True
        return super()._delete_monitored_items(mid)


class _Subscription(InternalSubscription):  # type: ignore[misc]
    def __init__(
        self, transit: Transit, tags: Mapping[Any, int], result: Any, aspace: Any, *of: Any, **options: Any
    ) -> None:
        super().__init__(result, aspace, *of, **options)
        self._transit = transit
        self._items = self.monitored_item_srv = _Items(self, aspace)
        self._tags = tags
        self._numbers = UnpublishedValues(max(tags.values(), default=-1) + 1)

    @property
    def unpublished(self) -> UnpublishedValues:
        """The unpublished numbers."""
        if self._items.changed:
            self._items.changed = False
            self._numbers.monitor(
                Item(item.monitored_item_id, self._tags[item.read_value_id.NodeId], item.client_handle, item.queue_size)
                for item in self._items._monitored_items.values()
                if item.mode == ua.MonitoringMode.Reporting
                and item.read_value_id.NodeId in self._tags
                and item.read_value_id.AttributeId == ua.AttributeIds.Value
            )
        return self._numbers

    def has_published_results(self) -> bool:
        """Return whether there is something to publish now, at least a keep-alive."""
        return bool(self._publishing_enabled and self.unpublished) or bool(super().has_published_results())

    def _pop_triggered_datachanges(self, result: Any) -> None:
        super()._pop_triggered_datachanges(result)
        if self.unpublished:
            body = ua.ExtensionObject(_DATA_CHANGE, self.unpublished.take())
            result.NotificationMessage.NotificationData.append(body)

    async def publish_results(self, requestdata: Any = None) -> bool:
        """Publish, or simulate the loss of the message in transit, with or without keeping it for Republish."""
        publishes = self._publishing_enabled and (self._triggered_datachanges or self.unpublished)
        if publishes and self._transit.loss != "no":
            number = self._pop_publish_result().NotificationMessage.SequenceNumber
            self._transit.lost += 1
            if self._transit.loss == "gone":
                self._not_acknowledged_results.pop(number, None)
            return False
        return bool(await super().publish_results(requestdata))

    async def _enqueue_event(self, mid: int, eventdata: Any, size: int, queue: dict[int, list[Any]]) -> None:
        """Drop the oldest value of a full queue, and set Overflow on the next one."""
        unpublished = queue.get(mid)
        if unpublished is not None and size and len(unpublished) >= size:
            del unpublished[: len(unpublished) - size + 1]
            if unpublished:
                unpublished[0] = _overflowed(unpublished[0])
            else:
                eventdata = _overflowed(eventdata)
            unpublished.append(eventdata)
            return
        await super()._enqueue_event(mid, eventdata, size, queue)

    def republish(self, nb: int) -> Any:
        """Republish a message, which is kept until acknowledged. Raises ServiceError if it is not available."""
        result = self._not_acknowledged_results.get(nb)
        if result is None:
            raise ServiceError(ua.StatusCodes.BadMessageNotAvailable)
        return result.NotificationMessage


class Subscriptions(SubscriptionService):  # type: ignore[misc]
    """The subscription service of the simulator's server."""

    def __init__(self, aspace: Any, iserver: Any, transit: Transit, tags: Mapping[Any, int]) -> None:
        """``tags``: node id → index, of tags published as columns."""
        super().__init__(aspace, iserver)
        self._transit = transit
        self._tags = tags

    def offer(self, numbers: Samples) -> None:
        """Publish values of tags to all monitoring subscriptions."""
        for subscription in self.subscriptions.values():
            subscription.unpublished.offer(numbers)

    async def create_subscription(
        self, params: Any, callback: Any, session_id: Any, request_callback: Any = None
    ) -> Any:
        """Create a subscription of ours instead of asyncua's; publishing interval at least 10 ms."""
        result = ua.CreateSubscriptionResult()
        result.RevisedPublishingInterval = max(10.0, params.RequestedPublishingInterval)
        result.RevisedLifetimeCount = self._clamp_lifetime_count(params.RequestedLifetimeCount)
        result.RevisedMaxKeepAliveCount = self._clamp_keep_alive_count(params.RequestedMaxKeepAliveCount)
        self._sub_id_counter += 1
        result.SubscriptionId = self._sub_id_counter
        subscription = _Subscription(
            self._transit,
            self._tags,
            result,
            self.aspace,
            callback,
            session_id,
            request_callback=request_callback,
            delete_callback=lambda: self.subscriptions.pop(result.SubscriptionId, None),
            no_acks_limit=self.iserver.max_unacked_messages_per_subscription,
            max_queue_size=self.iserver.max_monitored_item_queue_size,
            publishing_enabled=params.PublishingEnabled,
        )
        await subscription.start()
        self.subscriptions[result.SubscriptionId] = subscription
        return result

    async def transfer_subscriptions(self, params: Any, session_id: Any, callback: Any) -> list[Any]:
        """Transfer subscriptions to another session, and use its publish requests for them."""
        results = await super().transfer_subscriptions(params, session_id, callback)
        for number, result in zip(params.SubscriptionIds, results, strict=True):
            subscription = self.subscriptions.get(int(number))
            if subscription is not None and result.StatusCode.is_good():
                subscription.pub_request_callback = callback.__self__.get_publish_request
        return results  # type: ignore[no-any-return]

    def republish(self, params: Any) -> Any:
        """Republish one message. Raises ServiceError if subscription or message do not exist."""
        if params.SubscriptionId not in self.subscriptions:
            raise ServiceError(ua.StatusCodes.BadSubscriptionIdInvalid)
        return self.subscriptions[params.SubscriptionId].republish(params.RetransmitSequenceNumber)

    async def resend(self, _: Any, number: Any) -> Any:
        """Server.ResendData (OPC 10000-5, 9.2): publish the current value of every item."""
        subscription = self.subscriptions.get(number.Value)
        if subscription is None:
            return ua.StatusCode(ua.StatusCodes.BadSubscriptionIdInvalid)
        for mid, item in list(subscription.monitored_item_srv._monitored_items.items()):
            value = self.aspace.read_attribute_value(item.read_value_id.NodeId, item.read_value_id.AttributeId)
            notification = ua.MonitoredItemNotification(ClientHandle=item.client_handle, Value=value)
            await subscription.enqueue_datachange_event(mid, notification, item.queue_size)
        return ua.StatusCode(0)

    async def get_monitored_items(self, _: Any, number: Any) -> Any:
        """Server.GetMonitoredItems (OPC 10000-5, 9.1): the handles of server and client of every item."""
        subscription = self.subscriptions.get(number.Value)
        if subscription is None:
            return ua.StatusCode(ua.StatusCodes.BadSubscriptionIdInvalid)
        items = subscription.monitored_item_srv._monitored_items
        columns = [*items], [item.client_handle for item in items.values()]
        return [ua.Variant(column, ua.VariantType.UInt32, is_array=True) for column in columns]

    async def forget(self) -> None:
        """Drop all subscriptions, like a restarted server."""
        await self.delete_subscriptions(list(self.subscriptions))


def _overflowed(notification: Any) -> Any:
    """A copy of the notification with the Overflow bit. The value object is shared and must not be changed."""
    value = notification.Value
    code = 0 if value.StatusCode is None else value.StatusCode.value
    marked = ua.DataValue(value.Value, ua.StatusCode(code | _OVERFLOW), value.SourceTimestamp, value.ServerTimestamp)
    return replace(notification, Value=marked)


class Item(NamedTuple):
    """A reporting monitored item."""

    id: int
    tag: int
    handle: int  # client handle
    queue_size: int


class UnpublishedValues:
    """Values of a subscription's items that are not published yet."""

    def __init__(self, tags: int) -> None:
        """``tags``: number of tags of the server."""
        self._place = np.full(tags, -1, np.int64)  # tag → index in the offered values
        self._id, self._tag, self._handle, self._size, self._queued = (
            np.empty(0, np.int64) for _ in range(5)
        )  # of items
        self._blocks: list[Samples] = []  # in order of time; their channels are indices of items

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def monitor(self, items: Iterable[Item]) -> None:
        """Serve these items from now on; queued values of others are dropped."""
        before, columns = self._id, np.array(sorted(items), np.int64).reshape(-1, 4).T
        self._id, self._tag, self._handle, self._size = columns
        now = np.where(np.isin(before, self._id), np.searchsorted(self._id, before), -1)
        blocks = [replace(block, channel=now[block.channel].astype(np.int32)) for block in self._blocks]
        self._blocks = [kept for block in blocks if len(kept := block.part(block.channel >= 0))]
        self._queued = np.zeros(len(self._tag), np.int64)
        for block in self._blocks:
            self._queued[block.channel] += 1

    def offer(self, numbers: Samples) -> None:
        """Queue values, whose channels are tags, for the items that monitor these.

        A full queue drops its oldest value and sets Overflow.
        """
        self._place[numbers.channel] = np.arange(len(numbers))
        place = self._place[self._tag]
        self._place[numbers.channel] = -1
        items = np.flatnonzero(place >= 0)
        if not len(items):
            return
        self._blocks.append(replace(numbers.part(place[items]), channel=items.astype(np.int32)))
        self._queued[items] += 1
        over = items[self._queued[items] > self._size[items]]
        if len(over):
            self._drop(over)

    def take(self) -> bytes:
        """The body of a DataChangeNotification with all queued values."""
        blocks, self._blocks = self._blocks, []
        self._queued[:] = 0
        count = sum(map(len, blocks))
        items = [part for block in blocks for part in self._encoded(block)]
        return b"".join((count.to_bytes(4, "little"), *items, b"\xff\xff\xff\xff"))  # no DiagnosticInfos

    def _drop(self, items: NDArray[np.int64]) -> None:
        """Drop the oldest value of each of ``items`` and set the Overflow bit on the next one."""
        self._queued[items] -= 1
        dropped = marked = np.empty(0, np.int64)
        for k, block in enumerate(self._blocks):
            mark = np.isin(block.channel, np.setdiff1d(dropped, marked))
            status = np.where(mark, block.status | np.uint32(_OVERFLOW), block.status)
            marked = np.union1d(marked, block.channel[mark])
            drop = np.isin(block.channel, np.setdiff1d(items, dropped))
            dropped = np.union1d(dropped, block.channel[drop])
            self._blocks[k] = replace(block, status=status).part(~drop)
            if len(marked) == len(items):
                break
        self._blocks = [block for block in self._blocks if len(block)]

    def _encoded(self, block: Samples) -> tuple[bytes, bytes]:
        """Split into Good ones and others."""
        good = block.status == 0
        if good.all():
            return self._rows(block, _GOOD).tobytes(), b""
        others = self._rows(block.part(~good), _OTHER)
        others["mask"] |= _STATUS
        others["status"] = block.status[~good]
        return self._rows(block.part(good), _GOOD).tobytes(), others.tobytes()

    def _rows(self, block: Samples, dtype: np.dtype[Any]) -> NDArray[Any]:
        rows = np.empty(len(block), dtype)
        rows["handle"], rows["value"], rows["type"] = self._handle[block.channel], block.value, _DOUBLE
        rows["mask"] = _VALUE | _SOURCE_TIME | _SERVER_TIME
        rows["source"] = rows["server"] = block.time * 10 + _EPOCH
        return rows
