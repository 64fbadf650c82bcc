"""Methods of conditions on the server (OPC 10000-9, 5.5.7 and 5.7.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncua import Client, ua

from core.errors import OperationError
from ingest.opcua.session.service import call

_TYPE = ua.NodeId(ua.ObjectIds.ConditionType)
_REFRESH = ua.NodeId(ua.ObjectIds.ConditionType_ConditionRefresh)
_ACKNOWLEDGE = ua.NodeId(ua.ObjectIds.AcknowledgeableConditionType_Acknowledge)
_LOCALE = "en"  # open62541 drops a comment without a locale
_REASONS = {
    "BadConditionBranchAlreadyAcked": "it is acknowledged on the server already",
    "BadEventIdUnknown": "the server has a newer state of it: look at the list again",
    "BadUserAccessDenied": "the server does not allow plantlog's user to acknowledge it",
    "BadConditionDisabled": "it is disabled on the server",
    "BadNodeIdUnknown": "the server does not have the condition any more",
    "BadMethodInvalid": "the server cannot acknowledge it",
}


async def refresh(client: Client, subscription_id: int, time_out: float) -> str:
    """Call ConditionRefresh. Returns the name of the status code. Raises OSError or TimeoutError."""
    return await _call(client, _TYPE, _REFRESH, [ua.Variant(subscription_id, ua.VariantType.UInt32)], time_out)


async def acknowledge(client: Client, condition: ua.NodeId, event_id: bytes, comment: str, time_out: float) -> None:
    """Call Acknowledge. Raises OperationError with the reason if the server has not done it."""
    arguments = [
        ua.Variant(event_id, ua.VariantType.ByteString),
        ua.Variant(ua.LocalizedText(comment, _LOCALE), ua.VariantType.LocalizedText),
    ]
    try:
        status = await _call(client, condition, _ACKNOWLEDGE, arguments, time_out)
    except (OSError, TimeoutError):
        raise OperationError("the server does not answer: look at the list again") from None
    if status != "Good":
        reason = _REASONS.get(status, "the server refused")
        raise OperationError(f"{reason} ({status})")


async def _call(client: Client, node: ua.NodeId, method: ua.NodeId, arguments: Sequence[Any], time_out: float) -> str:
    request = ua.CallRequest()
    request.Parameters.MethodsToCall = [
        ua.CallMethodRequest(ObjectId=node, MethodId=method, InputArguments=list(arguments))
    ]
    try:
        (result,) = (await call(client, request, ua.CallResponse, time_out)).Results
    except ua.UaStatusCodeError as error:
        return str(ua.StatusCode(error.code).name)
    return str(result.StatusCode.name)
