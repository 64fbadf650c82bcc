"""The next start of a job."""

from __future__ import annotations

from core.backoff import exponential

_BACKOFF_MIN = 5.0  # s, after the first failure
_BACKOFF_MAX = 300.0


def next_start(every: float, started: float, ended: float, failures: int, more: bool = False) -> float:
    """Time (s) of the next start, never before ``ended``.

    ``every``: seconds between starts; ``failures``: failed runs in a row up to this one; ``more``: a time slice was
    used up and work is left. A run that takes longer than ``every`` is followed at once, not by all that were missed.
    """
    if failures:
        return ended + backoff(failures)
    return ended if more else max(ended, started + every)


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return exponential(failures, _BACKOFF_MIN, _BACKOFF_MAX)
