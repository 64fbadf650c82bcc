"""Rate limit for login attempts, to prevent brute-force attacks."""

from __future__ import annotations

import time
from collections import OrderedDict

_MAX_FAILURES = 10  # wrong passwords before the next attempt has to wait
_RETRY_SECONDS = 2.0  # per further attempt
_MAX_KEYS = 10_000  # remembered


class LoginAttempts:
    """Wrong passwords by address and name, so that nobody locks out others who share an address.

    Who has to wait cannot log in with the right password either, so learns nothing.
    """

    def __init__(self) -> None:
        self._wrong: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()  # used attempts, monotonic s

    def wait(self, address: str, name: str) -> float:
        """Seconds until the next attempt; 0: now."""
        return max(0.0, (self._used((address, name)) - _MAX_FAILURES + 1) * _RETRY_SECONDS)

    def record_failure(self, address: str, name: str) -> None:
        """Count a wrong password, or one that is not checked yet."""
        key = address, name
        self._wrong[key] = self._used(key) + 1, time.monotonic()
        self._wrong.move_to_end(key)
        if len(self._wrong) > _MAX_KEYS:
            self._wrong.popitem(last=False)

    def withdraw_failure(self, address: str, name: str) -> None:
        """The last one was right."""
        key = address, name
        if key in self._wrong:
            self._wrong[key] = max(0.0, self._used(key) - 1), time.monotonic()

    def _used(self, key: tuple[str, str]) -> float:
        used, at = self._wrong.get(key, (0.0, 0.0))
        return max(0.0, used - (time.monotonic() - at) / _RETRY_SECONDS)
