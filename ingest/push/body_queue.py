"""Processes bodies one at a time in order of arrival, and rejects those that would wait longer than their clients.

Python processes one body at a time, however many threads there are, and each thread delays the event loop, which needs
the interpreter lock: with six busy threads it responds 20 times per second, rejections included. So there is one. If a
body is stored after its client has timed out, the client does not know and repeats it: under overload, most
work would be wasted. So a body that would wait too long is rejected before any work is done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from ingest.push.body import BodyRefused

_MAX_PER_GATEWAY = 8  # bodies of one gateway at once: limits memory
_SLOW_SECONDS = 0.5  # if a body waits longer, each gateway is limited to one
_MAX_WAIT_SECONDS = 2.0  # maximum wait of a body; client timeouts are 5 s (Telegraf) or 10 s (InfluxDB)
_RETRY_AFTER_SECONDS = 1  # Retry-After

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")


class BodyQueue:
    """The queue of all gateways of a process."""

    def __init__(self) -> None:
        self._next_lock = asyncio.Lock()  # held by the next body to start
        self._work_lock = asyncio.Lock()
        self._waiting_since: dict[object, float] = {}  # time.monotonic() of waiting bodies, in order

    def check_room(self, in_progress: int) -> None:
        """Raises BodyRefused if a gateway with that many bodies in progress must not send another one now.

        If the queue is slow, each gateway may send one, however many others send.
        """
        first = next(iter(self._waiting_since.values()), None)
        is_slow = first is not None and time.monotonic() - first > _SLOW_SECONDS
        if in_progress >= (1 if is_slow else _MAX_PER_GATEWAY):
            bodies = "1 body is" if in_progress == 1 else f"{in_progress} bodies are"
            raise BodyRefused(503, f"{bodies} already being processed", _RETRY_AFTER_SECONDS)

    async def run_first(self, work: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """Run the first step for a body in a thread. Raises BodyRefused if it would have to wait too long."""
        body = object()
        self._waiting_since[body] = time.monotonic()
        try:
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                await self._next_lock.acquire()
        except TimeoutError:
            message = f"the server is busy: the body waited for {_MAX_WAIT_SECONDS:g} s"
            raise BodyRefused(503, message, _RETRY_AFTER_SECONDS) from None
        finally:
            del self._waiting_since[body]
        try:
            return await self.run_next(work, *arguments)
        finally:
            self._next_lock.release()

    async def run_next(self, work: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """Run another step for a started body, before any other body except the next one."""
        async with self._work_lock:
            return await asyncio.to_thread(work, *arguments)
