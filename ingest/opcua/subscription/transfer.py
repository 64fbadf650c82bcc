"""TransferSubscriptions (OPC 10000-4, 5.14.7): a new session takes over the subscriptions of an old one."""

from __future__ import annotations

import logging

from asyncua import Client, ua

from core.config.sources import OpcuaSource
from ingest.opcua.session.service import call, call_server_method
from ingest.opcua.subscription.subscription_state import Subscription, SubscriptionState

log = logging.getLogger(__name__)


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
        known = subscription.handles
        handles = result.OutputArguments[1].Value or ()
        subscription.prove(any(handle ^ subscription.key in known for handle in handles))


async def delete(client: Client, source: OpcuaSource, ids: list[int]) -> None:
    """Delete subscriptions of this session; errors are ignored."""
    request = ua.DeleteSubscriptionsRequest()
    request.Parameters.SubscriptionIds = ids
    try:
        await call(client, request, ua.DeleteSubscriptionsResponse, source.time_out)
    except ua.UaStatusCodeError as error:
        log.info("source %s: cannot delete old subscriptions: %s", source.name, type(error).__name__)
