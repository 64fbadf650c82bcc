"""Waits between connection attempts."""

from __future__ import annotations

import math

from ingest.backoff import Backoff

_FAST_SECONDS = 30.0  # how long an address that refuses connections is tried about once per second
_FAST_WAIT = 1.0  # s


class ConnectionBackoff:
    """Exponential backoff with jitter, so that the clients of a busy server do not return at the same time.

    If the address refuses connections, no server is there that could be busy: usually it is restarting.
    So it is tried about once per second at first.
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self._backoff = Backoff(shortest, longest)
        self._longest = longest  # s
        self._since: float | None = None  # s, monotonic: first attempt since the last session

    def session_ended(self, seconds: float) -> None:
        """A session ended after this time. If it was short, waits continue to grow."""
        self._since = None
        if seconds > self._longest:
            self._backoff.reset()

    def wait(self, now: float, refused: bool) -> float:
        """Seconds until the next attempt; ``refused``: the last connection was refused."""
        self._since = now if self._since is None else self._since
        fast = refused and now - self._since < _FAST_SECONDS
        return self._backoff.next(_FAST_WAIT if fast else math.inf)


def connection_refused(group: BaseExceptionGroup[BaseException]) -> bool:
    """Whether an attempt failed because nobody listens."""
    return any(isinstance(error.__cause__, ConnectionRefusedError) for error in group.exceptions)
