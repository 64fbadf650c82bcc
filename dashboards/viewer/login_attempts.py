"""Rate limit for login attempts, to prevent brute-force attacks."""

from __future__ import annotations

import time
from collections import OrderedDict

_MAX_FAILURES = 10  # wrong passwords per address before it has to wait
_RETRY_SECONDS = 2.0  # per further attempt
_MAX_ADDRESSES = 10_000  # remembered


class LoginAttempts:
    """Wrong passwords by address. A blocked address cannot log in with the right one either, so learns nothing."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address → used attempts, monotonic s

    def wait(self, address: str) -> float:
        """Seconds until the address may try again; 0: now."""
        return max(0.0, (self._used(address) - _MAX_FAILURES + 1) * _RETRY_SECONDS)

    def record_failure(self, address: str) -> None:
        """Count a wrong password, or one that is not checked yet."""
        self._wrong[address] = self._used(address) + 1, time.monotonic()
        self._wrong.move_to_end(address)
        if len(self._wrong) > _MAX_ADDRESSES:
            self._wrong.popitem(last=False)

    def withdraw_failure(self, address: str) -> None:
        """The last one was right."""
        if address in self._wrong:
            self._wrong[address] = max(0.0, self._used(address) - 1), time.monotonic()

    def _used(self, address: str) -> float:
        used, at = self._wrong.get(address, (0.0, 0.0))
        return max(0.0, used - (time.monotonic() - at) / _RETRY_SECONDS)
