"""How often somebody may try a token: so seldom that guessing one is hopeless."""

from __future__ import annotations

import time
from collections import OrderedDict

_AT_ONCE = 10  # wrong tokens of one address before it has to wait
_SECONDS = 2.0  # until it may try once more
_ADDRESSES = 10_000  # that are remembered


class Guesses:
    """Wrong tokens by address. Whoever is out of tries gets no answer to a right token, either: he would be told."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address → tries used, monotonic s

    def wait(self, address: str) -> float:
        """Seconds until the address may try; 0: now."""
        return max(0.0, (self._used(address) - _AT_ONCE + 1) * _SECONDS)

    def wrong(self, address: str) -> None:
        """Count a wrong token."""
        self._wrong[address] = self._used(address) + 1, time.monotonic()
        self._wrong.move_to_end(address)
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)

    def _used(self, address: str) -> float:
        used, at = self._wrong.get(address, (0.0, 0.0))
        return max(0.0, used - (time.monotonic() - at) / _SECONDS)
