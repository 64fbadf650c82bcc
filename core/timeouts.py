"""Timeouts that count only the time in which this process ran, and cancellation that is never lost.

A process that was starved or suspended would find its timeouts expired while the peer's data is still unread. So time
is counted in short steps: the excess of a step does not count as silence of the peer.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_STEPS = 4  # of a time-out, at least
_STEP = 0.5  # s, at most
_LAST_DATA_RECV = slice(52, 56)  # of struct tcp_info (linux/tcp.h): ms since data came


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Return the result of ``work``. Cancel it and raise TimeoutError after ``seconds`` of running time."""
    task = asyncio.ensure_future(work)
    step = min(seconds / _STEPS, _STEP)
    try:
        left = seconds
        while left > 0 and not task.done():
            # Received data is read before a timeout is checked: asyncio handles events first, then timers.
            await asyncio.wait((task,), timeout=min(step, left))
            left -= step
        if task.done():
            return task.result()
    finally:
        await _end(task, seconds)
    raise TimeoutError(f"no response within {seconds:g} s")


class Watchdog:
    """Call ``on_expiry`` after ``seconds`` of running time without a reset."""

    def __init__(self, seconds: float, on_expiry: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._on_expiry = on_expiry
        self._step = min(seconds / _STEPS, _STEP)
        self._timer = self._loop.call_later(self._step, self._tick)
        self.reset()

    def reset(self) -> None:
        """Start counting again from now."""
        self._left, self._last_tick = self._seconds, self._loop.time()

    def cancel(self) -> None:
        """Stop: ``on_expiry`` will not be called."""
        self._timer.cancel()

    def _tick(self) -> None:
        before, self._last_tick = self._last_tick, self._loop.time()
        self._left -= min(self._last_tick - before, self._step)
        if self._left > 0:
            self._timer = self._loop.call_later(min(self._left, self._step), self._tick)
        else:
            self._on_expiry()


async def sleep_overrun(seconds: float) -> float:
    """Sleep for ``seconds``; return the excess (s) of the sleep, in which silence of a peer proves nothing."""
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    await asyncio.sleep(seconds)
    return max(0.0, loop.time() - due)


def unread_seconds(connection: asyncio.BaseTransport) -> float:
    """Time (s) that the last data received over TCP waited in the kernel before we read it; accurate to some ms.

    0 if the transport has no socket.
    """
    tcp = connection.get_extra_info("socket")
    if tcp is None:
        return 0.0
    info = tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECV.stop)
    return int.from_bytes(info[_LAST_DATA_RECV], sys.byteorder) / 1000


_CANCEL_AGAIN_SECONDS = 30.0  # longer than an orderly end takes


async def run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work`` and raise what it raises. Cancelling the caller cancels ``work``, without fail.

    A plain ``await`` can lose it: a TaskGroup (Python 3.11) in which a task fails at that moment raises that
    error instead, and ``wait_for`` returns a result that arrives at that moment.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    finally:
        await _end(task, _CANCEL_AGAIN_SECONDS)
    task.result()


async def _end(task: asyncio.Future[Any], again: float) -> None:
    """Cancel until it has ended. ``again``: s, until it is cancelled once more."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=again)
    if not task.cancelled():
        task.exception()  # who cancels does not ask for it, and asyncio would report it as an error
