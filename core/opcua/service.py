"""Service calls of a session, with deadlines and within the server's operation limits, also unannounced ones.

A server that refuses a call as too large gets smaller ones; one that refuses a call for the moment gets it again.
Neither ends the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from asyncua import Client, ua
from asyncua.ua import uaerrors

from core.config.sources import OpcuaTag
from core.errors import SourceError

T = TypeVar("T")
R = TypeVar("R")
CallWith: TypeAlias = Callable[[Sequence[T]], Awaitable[Sequence[R] | None]]

log = logging.getLogger(__name__)

DEFAULT_LIMIT = 1000  # operations per call if the server has no limit
# Not BadResponseTooLarge, which `session` raises: the connection is closed then.
TOO_LARGE = (uaerrors.BadTooManyOperations, uaerrors.BadEncodingLimitsExceeded, uaerrors.BadRequestTooLarge)
REFUSED = (  # by a server that may answer the same call a moment later
    *TOO_LARGE,
    *(uaerrors.BadServerTooBusy, uaerrors.BadTcpServerTooBusy, uaerrors.BadResourceUnavailable),
    *(uaerrors.BadOutOfMemory, uaerrors.BadTcpNotEnoughResources, uaerrors.BadInternalError),
)
_MAX_TRIES = 6
_PAUSE = 0.05  # s, before the second try; twice as long before each further one


async def send(client: Client, request: Any, time_out: float, *, divisible: bool = False) -> Any:
    """The response's body; a refused call is repeated, but not one that is too large and ``divisible``.

    Raises ua.UaError, OSError or TimeoutError.
    """
    tries = 1
    while True:
        try:
            return await client.uaclient.protocol.send_request(request, time_out)
        except REFUSED as error:
            if tries == _MAX_TRIES or (divisible and isinstance(error, TOO_LARGE)):
                raise
        await asyncio.sleep(_PAUSE * 2 ** (tries - 1))
        tries += 1


async def call(client: Client, request: Any, response: type[T], time_out: float, *, divisible: bool = False) -> T:
    """The response of one service call, see :func:`send`."""
    body = await send(client, request, time_out, divisible=divisible)
    answer: Any = ua.ua_binary.struct_from_binary(response, body)
    answer.ResponseHeader.ServiceResult.check()
    return answer  # type: ignore[no-any-return]


async def call_server_method(client: Client, method: int, subscription: int, time_out: float) -> ua.CallMethodResult:
    """The result of a method of the Server object that takes a subscription id (OPC 10000-5, 9.1 and 9.2).

    Raises UaStatusCodeError and what :func:`send` raises.
    """
    request = ua.CallRequest()
    request.Parameters.MethodsToCall = [
        ua.CallMethodRequest(
            ObjectId=ua.NodeId(ua.ObjectIds.Server),
            MethodId=ua.NodeId(method),
            InputArguments=[ua.Variant(subscription, ua.VariantType.UInt32)],
        )
    ]
    return (await call(client, request, ua.CallResponse, time_out)).Results[0]


class Operations:
    """The operations of one service in a session: as many in a call as the server accepts, several calls at a time."""

    def __init__(self, size: int = DEFAULT_LIMIT, in_flight: int = 1) -> None:
        self.size = size  # operations per call
        self.in_flight = in_flight  # calls
        self._accepted = 1  # operations, of the largest call that was not refused

    def limit(self, size: int) -> None:
        """Set the maximum number of operations in a call that the server announces."""
        self.size = min(self.size, size)

    async def results(self, items: Sequence[T], call_with: CallWith[T, R], refused: Callable[[int], R]) -> list[R]:
        """The result of each item. ``call_with`` makes one call, ``divisible``, with some of them.

        ``refused``: returns the result of an item whose call the server keeps refusing, from the status code.

        Raises ua.UaError, OSError, TimeoutError or SourceError.
        """
        results: list[Any] = [None] * len(items)
        begin = 0

        async def work() -> None:
            nonlocal begin
            while begin < len(items):
                at, part = begin, items[begin : begin + self.size]
                begin += len(part)
                results[at : at + len(part)] = await self._part(part, call_with, refused)

        workers = [asyncio.create_task(work()) for _ in range(self.in_flight)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        return results

    async def _part(self, part: Sequence[T], call_with: CallWith[T, R], refused: Callable[[int], R]) -> Sequence[R]:
        tries = 1
        while True:
            try:
                results = checked(await call_with(part), part)
            except REFUSED as error:
                too_large = isinstance(error, TOO_LARGE)
                if too_large and len(part) > self._accepted:  # otherwise the size is not the reason
                    self.limit(-(-len(part) // 2))
                    log.info("the server refuses %d operations in a call: %s", len(part), type(error).__name__)
                    parts: list[R] = []
                    while len(parts) < len(part):
                        parts += await self._part(part[len(parts) :][: self.size], call_with, refused)
                    return parts
                if not too_large or tries == _MAX_TRIES:
                    return [refused(error.code)] * len(part)
            else:
                self._accepted = max(self._accepted, len(part))
                return results
            await asyncio.sleep(_PAUSE * 2 ** (tries - 1))
            tries += 1


def checked(results: Sequence[R] | None, requested: Sequence[Any]) -> Sequence[R]:
    """The results, one for each operation. Raises SourceError if there are more or fewer."""
    if len(results or ()) != len(requested):
        raise SourceError(f"the server returned {len(results or ())} results for {len(requested)} operations")
    return results or ()


async def operation_limit(client: Client, node: int, time_out: float) -> int:
    """An operation limit of the server; 0 or null: no limit."""
    try:
        value = await read_value(client, node, time_out)
    except ua.UaStatusCodeError:
        return DEFAULT_LIMIT
    return min(int(value), DEFAULT_LIMIT) if value else DEFAULT_LIMIT


async def read_value(client: Client, node: int, time_out: float) -> Any:
    """The value of a node of namespace 0. Raises ua.UaError, OSError or TimeoutError."""
    (result,) = await read(client, [(ua.NodeId(node), ua.AttributeIds.Value)], time_out)
    result.StatusCode.check()
    return None if result.Value is None else result.Value.Value


async def read(
    client: Client, nodes: Sequence[tuple[ua.NodeId, Any]], time_out: float, *, divisible: bool = False
) -> Sequence[Any]:
    """The DataValues, without timestamps, of (node id, attribute). Raises ua.UaError, OSError or TimeoutError."""
    request = ua.ReadRequest()
    request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Neither
    request.Parameters.NodesToRead = [ua.ReadValueId(NodeId=node, AttributeId=attribute) for node, attribute in nodes]
    answer: Any = await call(client, request, ua.ReadResponse, time_out, divisible=divisible)
    return checked(answer.Results, nodes)


def chunks(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    """Split ``items`` into chunks of at most ``size``."""
    return (items[at : at + size] for at in range(0, len(items), size))


def index_range_of(tag: OpcuaTag) -> str | None:
    """The IndexRange (OPC 10000-4, 7.27) of a tag; None: the value is read as it is.

    A matrix is read whole, too: some servers send a wrong element of it, or a Good one that does not exist.
    """
    return None if tag.reads_whole else tag.index


async def sends_whole_arrays(client: Client, time_out: float) -> bool:
    """Return whether the server ignores or rejects an IndexRange. Raises ua.UaError, OSError or TimeoutError.

    Tried with the NamespaceArray, which has at least two elements.
    """
    request = ua.ReadRequest()
    request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Neither
    request.Parameters.NodesToRead = [
        ua.ReadValueId(
            NodeId=ua.NodeId(ua.ObjectIds.Server_NamespaceArray), AttributeId=ua.AttributeIds.Value, IndexRange="1"
        )
    ]
    answer = await call(client, request, ua.ReadResponse, time_out)
    (result,) = answer.Results
    value = None if result.Value is None else result.Value.Value
    return not (result.StatusCode.is_good() and isinstance(value, list) and len(value) == 1)
