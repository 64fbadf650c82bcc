"""Exponential backoff between attempts.

Waits are numbers, not sleeps around a call: they continue across sessions and polls, or are stored in the database.
"""

from __future__ import annotations

import math
import random

_JITTER = 0.5
REFUSED = (10.0, 600.0)  # s, first and longest wait after a refusal


class Backoff:
    """Waits (s) between attempts: ``first``, each twice the one before, at most ``longest``; see :func:`jittered`."""

    def __init__(self, first: float, longest: float, jitter: float = _JITTER) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self._wait = first

    def next(self, longest: float = math.inf) -> float:
        """The next wait (s), at most ``longest``; the ones after it grow from there."""
        wait = min(self._wait, self._longest, longest)
        self._wait = 2 * wait
        return jittered(wait, self._jitter)

    def reset(self) -> None:
        """Start again with ``first``: an attempt succeeded."""
        self._wait = self._first


def after_refusal() -> Backoff:
    """Waits before a request that a device or a server has refused is repeated."""
    return Backoff(*REFUSED, jitter=0)


def exponential(failures: int, first: float, longest: float) -> float:
    """The wait (s) after a number of ``failures`` in a row, without jitter."""
    return min(longest, first * 2.0 ** min(failures - 1, 60))


def jittered(wait: float, jitter: float = _JITTER) -> float:
    """``wait`` less a random part of it, up to ``jitter`` (0 to 1), so that clients do not return at the same time."""
    return wait * random.uniform(1 - jitter, 1)
