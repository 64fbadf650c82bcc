"""Wait until what was received before a time has left the spool, and is in the table."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

_POLL_SECONDS = 0.5


async def settled(pending: Callable[[], Awaitable[Sequence[str]]], seconds: float) -> tuple[float, Sequence[str]]:
    """Wait until nothing is ``pending``, which describes it. Seconds that this took, and what is left after so many."""
    started = time.monotonic()
    while (left := await pending()) and time.monotonic() - started < seconds:
        await asyncio.sleep(_POLL_SECONDS)
    return time.monotonic() - started, left


def waiting(folder: Path, us: int, query: str) -> list[str]:
    """The spool files that have something older, in words. ``query``: the time (µs) of the oldest that counts."""
    return [f"batches wait in {path}" for path in sorted(folder.glob("*.sqlite")) if _oldest(path, query) <= us]


def _oldest(spool: Path, query: str) -> float:
    """Time of the oldest batch in a spool file (µs), by ``query``; infinite where there is none."""
    try:
        connection = sqlite3.connect(f"file:{spool}?mode=ro", uri=True)
        try:
            (oldest,) = connection.execute(query).fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return 0.0
    return math.inf if oldest is None else float(oldest)
