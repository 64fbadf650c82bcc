"""How long to wait between two attempts to connect."""

from __future__ import annotations

import random

_OFTEN_SECONDS = 30.0  # for so long an address that refuses is tried about once a second
_OFTEN_WAIT = 1.0  # s


class Backoff:
    """Doubling waits with jitter, so that many clients of a busy server don't come all at once.

    An address that refuses the connection has nobody behind it who could be busy: most often a server that starts anew.
    It is tried about once a second at first.
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest = shortest  # s
        self._longest = longest  # s
        self._wait = shortest
        self._since: float | None = None  # s, monotonic: of the first attempt since a session was had

    def had_session(self, seconds: float) -> None:
        """A session was had for so long. One that ends soon goes on with longer waits."""
        self._since = None
        if seconds > self._longest:
            self._wait = self._shortest

    def wait(self, now: float, refused: bool) -> float:
        """Seconds until the next attempt; ``refused``: the last one was refused by the address itself."""
        self._since = now if self._since is None else self._since
        often = refused and now - self._since < _OFTEN_SECONDS
        longest = min(_OFTEN_WAIT, self._longest) if often else self._longest
        wait = min(self._wait, longest)
        self._wait = min(2 * self._wait, longest)
        return wait * random.uniform(0.5, 1.0)


def refused(group: BaseExceptionGroup[BaseException]) -> bool:
    """Whether an attempt ended because nobody listens."""
    return any(isinstance(error.__cause__, ConnectionRefusedError) for error in group.exceptions)
