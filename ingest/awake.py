"""Time-outs by time in which this process ran.

A process that is starved or suspended finds its time-outs over when it goes on, and what the other side said meanwhile
unread. So time is counted in short steps: what one took longer than it should have is no silence of the other side.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

_STEPS = 4  # of a time-out, at least
_STEP = 0.5  # s, at most
_LAST_DATA_RECV = slice(52, 56)  # of struct tcp_info (linux/tcp.h): ms since data came


async def within(seconds: float, work: Awaitable[T]) -> T:
    """What ``work`` returns. It is cancelled, and TimeoutError raised, after so many seconds in which we ran."""
    task = asyncio.ensure_future(work)
    step = min(seconds / _STEPS, _STEP)
    try:
        left = seconds
        while left > 0 and not task.done():
            # What came is read before a time-out is looked at: asyncio asks for events first, then for timers.
            await asyncio.wait((task,), timeout=min(step, left))
            left -= step
        if task.done():
            return task.result()
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=seconds)
        if not task.cancelled():
            task.exception()  # it is known
    raise TimeoutError(f"nothing within {seconds:g} s")


async def slept(seconds: float) -> float:
    """Sleep. Returns how much longer (s) that took: what others did not do in this time proves nothing."""
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    await asyncio.sleep(seconds)
    return max(0.0, loop.time() - due)


def unread(connection: asyncio.BaseTransport) -> float:
    """Seconds for which what came last over TCP lay there before we read it, as the kernel knows; to some ms."""
    info = connection.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECV.stop)
    return int.from_bytes(info[_LAST_DATA_RECV], sys.byteorder) / 1000
