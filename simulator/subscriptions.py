"""Subscriptions that outlive their connection as OPC 10000-4, 5.14 wants it, where asyncua's server falls short.

Its transferred subscriptions go on asking the old connection for publish requests and are never published again; a
message that was republished is gone although nobody acknowledged it; a missing one is answered with an empty one; and
a full queue drops values without telling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from asyncua import ua
from asyncua.common.utils import ServiceError
from asyncua.server.internal_subscription import InternalSubscription
from asyncua.server.monitored_item_service import MonitoredItemService
from asyncua.server.subscription_service import SubscriptionService

from simulator.prepared import Item, Numbers, Waiting

_OVERFLOW = 0x0480  # InfoType DataValue and Overflow (OPC 10000-4, 7.39.1)
_DATA_CHANGE = ua.NodeId(ua.ObjectIds.DataChangeNotification_Encoding_DefaultBinary)

Loses: TypeAlias = Callable[[], Literal["no", "sent again", "gone"]]


class _Items(MonitoredItemService):  # type: ignore[misc]
    """Knows when its items are other ones than before."""

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
        self, loses: Loses, tags: Mapping[Any, int], result: Any, aspace: Any, *of: Any, **options: Any
    ) -> None:
        super().__init__(result, aspace, *of, **options)
        self.loses = loses
        self._items = self.monitored_item_srv = _Items(self, aspace)
        self._tags = tags
        self._numbers = Waiting(max(tags.values(), default=-1) + 1)

    @property
    def waiting(self) -> Waiting:
        """The numbers that are not yet published."""
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
        """Whether there is something to publish now, if only that we live."""
        return bool(self._publishing_enabled and self.waiting) or bool(super().has_published_results())

    def _pop_triggered_datachanges(self, result: Any) -> None:
        super()._pop_triggered_datachanges(result)
        if self.waiting:
            body = ua.ExtensionObject(_DATA_CHANGE, self.waiting.take())
            result.NotificationMessage.NotificationData.append(body)

    async def publish_results(self, requestdata: Any = None) -> bool:
        """Publish, or lose the message on the way: it is kept to be sent again, or not even that."""
        loses = self.loses()
        if loses != "no" and self._publishing_enabled and (self._triggered_datachanges or self.waiting):
            number = self._pop_publish_result().NotificationMessage.SequenceNumber
            if loses == "gone":
                self._not_acknowledged_results.pop(number, None)
            return False
        return bool(await super().publish_results(requestdata))

    async def _enqueue_event(self, mid: int, eventdata: Any, size: int, queue: dict[int, list[Any]]) -> None:
        """Drop the oldest of a full queue, and say so on the value that became the oldest."""
        waiting = queue.get(mid)
        if waiting is not None and size and len(waiting) >= size:
            del waiting[: len(waiting) - size + 1]
            if waiting:
                waiting[0] = _overflowed(waiting[0])
            else:
                eventdata = _overflowed(eventdata)
            waiting.append(eventdata)
            return
        await super()._enqueue_event(mid, eventdata, size, queue)

    def republish(self, nb: int) -> Any:
        """The message stays until it is acknowledged. Raises ServiceError where it is gone."""
        result = self._not_acknowledged_results.get(nb)
        if result is None:
            raise ServiceError(ua.StatusCodes.BadMessageNotAvailable)
        return result.NotificationMessage


class Subscriptions(SubscriptionService):  # type: ignore[misc]
    """The service that the simulator's server uses."""

    def __init__(self, aspace: Any, iserver: Any, loses: Loses, tags: Mapping[Any, int]) -> None:
        """``tags``: node id → index, of those whose values are offered together."""
        super().__init__(aspace, iserver)
        self._loses = loses
        self._tags = tags

    def offer(self, numbers: Numbers) -> None:
        """Publish values of tags to all who monitor them."""
        for subscription in self.subscriptions.values():
            subscription.waiting.offer(numbers)

    async def create_subscription(
        self, params: Any, callback: Any, session_id: Any, request_callback: Any = None
    ) -> Any:
        """Like the original's, with a subscription that tells its overflows; never faster than 10 ms."""
        result = ua.CreateSubscriptionResult()
        result.RevisedPublishingInterval = max(10.0, params.RequestedPublishingInterval)
        result.RevisedLifetimeCount = self._clamp_lifetime_count(params.RequestedLifetimeCount)
        result.RevisedMaxKeepAliveCount = self._clamp_keep_alive_count(params.RequestedMaxKeepAliveCount)
        self._sub_id_counter += 1
        result.SubscriptionId = self._sub_id_counter
        subscription = _Subscription(
            self._loses,
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
        """Hand subscriptions over to another session, and its publish requests to them."""
        results = await super().transfer_subscriptions(params, session_id, callback)
        for number, result in zip(params.SubscriptionIds, results, strict=True):
            subscription = self.subscriptions.get(int(number))
            if subscription is not None and result.StatusCode.is_good():
                subscription.pub_request_callback = callback.__self__.get_publish_request
        return results  # type: ignore[no-any-return]

    def republish(self, params: Any) -> Any:
        """One message again. Raises ServiceError where subscription or message is not there."""
        if params.SubscriptionId not in self.subscriptions:
            raise ServiceError(ua.StatusCodes.BadSubscriptionIdInvalid)
        return self.subscriptions[params.SubscriptionId].republish(params.RetransmitSequenceNumber)

    async def resend(self, _: Any, number: Any) -> Any:
        """Server.ResendData (OPC 10000-5, 9.2): every item's present value once more."""
        subscription = self.subscriptions.get(number.Value)
        if subscription is None:
            return ua.StatusCode(ua.StatusCodes.BadSubscriptionIdInvalid)
        for mid, item in list(subscription.monitored_item_srv._monitored_items.items()):
            value = self.aspace.read_attribute_value(item.read_value_id.NodeId, item.read_value_id.AttributeId)
            notification = ua.MonitoredItemNotification(ClientHandle=item.client_handle, Value=value)
            await subscription.enqueue_datachange_event(mid, notification, item.queue_size)
        return ua.StatusCode(0)

    async def forget(self) -> None:
        """Lose all subscriptions, as a server does that was started again."""
        await self.delete_subscriptions(list(self.subscriptions))


def _overflowed(notification: Any) -> Any:
    """The notification with the Overflow bit. The value itself is shared and must stay as it is."""
    value = notification.Value
    code = 0 if value.StatusCode is None else value.StatusCode.value
    marked = ua.DataValue(value.Value, ua.StatusCode(code | _OVERFLOW), value.SourceTimestamp, value.ServerTimestamp)
    return replace(notification, Value=marked)
