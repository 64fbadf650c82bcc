"""Rate limit of a gateway, in lines per second."""

from __future__ import annotations

import time


class RateLimit:
    """A token bucket for one second of lines. A single body may overdraw it, so that no body is too large."""

    def __init__(self, lines_a_second: int) -> None:
        self.rate = lines_a_second
        self._level = float(lines_a_second)
        self._at = time.monotonic()

    def wait(self) -> float:
        """Seconds until the next body is accepted; 0: now."""
        now = time.monotonic()
        self._level = min(float(self.rate), self._level + (now - self._at) * self.rate)
        self._at = now
        return 0.0 if self._level > 0 else -self._level / self.rate

    def take(self, lines: int) -> None:
        """Count the lines of an accepted body."""
        self._level -= lines
