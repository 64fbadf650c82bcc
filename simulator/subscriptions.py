"""Subscriptions that outlive their connection as OPC 10000-4, 5.14 wants it, where asyncua's server falls short.

Its transferred subscriptions go on asking the old connection for publish requests and are never published again; a
message that was republished is gone although nobody acknowledged it; a missing one is answered with an empty one; and
a full queue drops values without telling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from asyncua import ua
from asyncua.common.utils import ServiceError
from asyncua.server.internal_subscription import InternalSubscription
from asyncua.server.subscription_service import SubscriptionService

_OVERFLOW = 0x0480  # InfoType DataValue and Overflow (OPC 10000-4, 7.39.1)

Loses: TypeAlias = Callable[[], Literal["no", "sent again", "gone"]]


class _Subscription(InternalSubscription):  # type: ignore[misc]
    loses: Loses

    async def publish_results(self, requestdata: Any = None) -> bool:
        """Publish, or lose the message on the way: it is kept to be sent again, or not even that."""
        loses = self.loses()
        if loses != "no" and self._publishing_enabled and self._triggered_datachanges:
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

    def __init__(self, aspace: Any, iserver: Any, loses: Loses) -> None:
        super().__init__(aspace, iserver)
        self._loses = loses

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
        subscription.loses = self._loses
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
