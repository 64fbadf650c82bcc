"""Waits between connection attempts."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from time import monotonic

from core.backoff import Backoff

_REFUSED_WAIT = 2.0  # s


class ConnectionBackoff:
    """Exponential backoff with jitter, so that the clients of a busy server do not return at the same time.

    If the address refuses connections, no server is there that could be busy: it is tried every two seconds, so that a
    server that is back is connected to at once.
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self._backoff = Backoff(shortest, longest)
        self._longest = longest  # s

    def session_ended(self, seconds: float) -> None:
        """A session ended after this time. If it was short, waits continue to grow."""
        if seconds > self._longest:
            self._backoff.reset()

    def wait(self, refused: bool) -> float:
        """Seconds until the next attempt; ``refused``: the last connection was refused."""
        return self._backoff.next(_REFUSED_WAIT if refused else math.inf)

    async def pause(self, refused: bool, nobody_listens: Callable[[], Awaitable[bool]]) -> None:
        """Sleep until the next attempt, but no longer than until ``nobody_listens``.

        A server that ends is often still listening when its session fails, and would then be waited for as if busy.
        """
        end = monotonic() + self.wait(refused)
        while (rest := end - monotonic()) > 0:
            if rest > _REFUSED_WAIT and await nobody_listens():
                return
            await asyncio.sleep(min(rest, _REFUSED_WAIT))


def connection_refused(group: BaseExceptionGroup[BaseException]) -> bool:
    """Whether an attempt failed because nobody listens."""
    return any(isinstance(error.__cause__, ConnectionRefusedError) for error in group.exceptions)
