"""TransferSubscriptions (OPC 10000-4, 5.14.7): a new session takes over the subscriptions of an old one."""

from __future__ import annotations

import logging

from asyncua import Client, ua

from ingest.config.sources import OpcuaSource
from ingest.opcua.service import call
from ingest.opcua.subscription_state import SubscriptionState

log = logging.getLogger(__name__)


async def transfer(client: Client, source: OpcuaSource, state: SubscriptionState) -> dict[int, frozenset[int]]:
    """Transfer all of ``state``. Returns the available sequence numbers by id of each transferred one.

    Initial values are not requested: every change is in a notification.
    """
    ids = list(state.subscriptions)
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


async def delete(client: Client, source: OpcuaSource, ids: list[int]) -> None:
    """Delete subscriptions of this session; errors are ignored."""
    request = ua.DeleteSubscriptionsRequest()
    request.Parameters.SubscriptionIds = ids
    try:
        await call(client, request, ua.DeleteSubscriptionsResponse, source.time_out)
    except ua.UaStatusCodeError as error:
        log.info("source %s: cannot delete old subscriptions: %s", source.name, type(error).__name__)
