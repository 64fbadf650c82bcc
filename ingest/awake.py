"""Time-outs by time in which this process ran.

A process that is starved or suspended finds its time-outs over when it goes on, and what the other side said meanwhile
unread. So time is counted in short steps: what one took longer than it should have is no silence of the other side.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
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


class Patience:
    """Calls ``over`` once so many seconds are over in which this process ran, and nobody began anew."""

    def __init__(self, seconds: float, over: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._over = over
        self._step = min(seconds / _STEPS, _STEP)
        self._timer = self._loop.call_later(self._step, self._look)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Something came: the seconds count from now."""
        self._left, self._looked = self._seconds, self._loop.time()

    def end(self) -> None:
        """Nothing is waited for any more."""
        self._timer.cancel()

    def _look(self) -> None:
        before, self._looked = self._looked, self._loop.time()
        self._left -= min(self._looked - before, self._step)
        if self._left > 0:
            self._timer = self._loop.call_later(min(self._left, self._step), self._look)
        else:
            self._over()


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
