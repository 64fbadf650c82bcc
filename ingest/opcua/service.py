"""Service calls of a session, with deadlines and within the server's operation limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from asyncua import Client, ua

T = TypeVar("T")

DEFAULT_LIMIT = 1000  # operations per call if the server has no limit


async def call(client: Client, request: Any, response: type[T], time_out: float) -> T:
    """Await one service call with a deadline. Raises ua.UaError, OSError or TimeoutError."""
    body = await client.uaclient.protocol.send_request(request, time_out)
    answer: Any = ua.ua_binary.struct_from_binary(response, body)
    answer.ResponseHeader.ServiceResult.check()
    return answer  # type: ignore[no-any-return]


async def operation_limit(client: Client, node: int) -> int:
    """One of the server's operation limits; 0 or null: no limit."""
    try:
        value = await client.get_node(ua.NodeId(node)).read_value()
    except ua.UaStatusCodeError:
        return DEFAULT_LIMIT
    return min(int(value), DEFAULT_LIMIT) if value else DEFAULT_LIMIT


def chunks(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    """Split ``items`` into chunks of at most ``size``."""
    return (items[at : at + size] for at in range(0, len(items), size))
