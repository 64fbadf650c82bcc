"""TransferSubscriptions (OPC 10000-4, 5.14.7): a new session takes over what an old one had."""

from __future__ import annotations

import logging

from asyncua import Client, ua

from ingest.config.model import OpcuaSource
from ingest.opcua.items import Subscribed, call

log = logging.getLogger(__name__)


async def transfer(client: Client, source: OpcuaSource, subscribed: Subscribed) -> dict[int, frozenset[int]]:
    """Take over all of ``subscribed``: by id of those that were had, the sequence numbers that the server holds.

    Initial values are not asked for: nothing changed that is not in a notification.
    """
    ids = list(subscribed.subscriptions)
    if not ids:
        return {}
    request = ua.TransferSubscriptionsRequest()
    request.Parameters.SubscriptionIds = ids
    request.Parameters.SendInitialValues = False
    try:
        answer = await call(client, request, ua.TransferSubscriptionsResponse, source.time_out)
    except ua.UaStatusCodeError as error:
        log.info("source %s: subscriptions can't be transferred: %s", source.name, type(error).__name__)
        return {}
    had: dict[int, frozenset[int]] = {}
    for number, result in zip(ids, answer.Parameters.Results, strict=True):
        if result.StatusCode.is_good():
            had[number] = frozenset(result.AvailableSequenceNumbers or ())
        else:
            log.info("source %s: subscription %d is lost: %s", source.name, number, result.StatusCode.name)
    return had


async def delete(client: Client, source: OpcuaSource, ids: list[int]) -> None:
    """Delete subscriptions of this session that are not wanted any more; a refusal does not matter."""
    request = ua.DeleteSubscriptionsRequest()
    request.Parameters.SubscriptionIds = ids
    try:
        await call(client, request, ua.DeleteSubscriptionsResponse, source.time_out)
    except ua.UaStatusCodeError as error:
        log.info("source %s: old subscriptions stay until they end: %s", source.name, type(error).__name__)
