"""Wait, after the faults, until everything published is in the table or recorded as a gap."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from pathlib import Path

from core.database import FAILURES, connect
from core.errors import OperationError
from core.paths import State
from lab.chaos.gateway import Gateway
from schema.queries import load

_TIMEOUT = 300.0
_POLL_SECONDS = 0.5


async def await_idle(state: State, reader_dsn: str, gateway: Gateway | None, us: int) -> float:
    """Return once every channel has a value in the table that is dated later than ``us``, and nothing older waits.

    Nor may a gap be open: a fault of the last moment is noticed only a while after.

    The seconds that this took. Raises OperationError where it takes too long: then something hangs.
    """
    started = time.monotonic()
    while pending_now := await pending(state, reader_dsn, gateway, us):
        if time.monotonic() - started > _TIMEOUT:
            raise OperationError(f"not idle after {_TIMEOUT:.0f} s: {'; '.join(pending_now)}")
        await asyncio.sleep(_POLL_SECONDS)
    return time.monotonic() - started


async def pending(state: State, reader_dsn: str, gateway: Gateway | None, us: int) -> list[str]:
    """Describe what is still waited for."""
    if gateway is not None and gateway.oldest <= us:
        return [f"the gateway has {gateway.waiting} batches that were not accepted"]
    return waiting(state, us, load("spool")["select_min_received_at"]) or await not_stored(reader_dsn, us)


def waiting(state: State, us: int, query: str) -> list[str]:
    """The spool files that have something older, in words. ``query``: the time (µs) of the oldest that counts."""
    return [f"batches wait in {path}" for path in sorted(state.spool.glob("*.sqlite")) if _oldest(path, query) <= us]


async def not_stored(reader_dsn: str, us: int) -> list[str]:
    """Describe what the database does not have yet."""
    try:
        connection = await connect(reader_dsn, "plantlog chaos")
    except FAILURES as error:
        return [f"the database: {error}"]
    try:
        stale_sources = await connection.fetch(load("chaos")["select_stale_sources"], us)
        open_gaps = await connection.fetchval(load("chaos")["count_open_gaps"])
    except FAILURES as error:
        return [f"the database: {error}"]
    finally:
        connection.terminate()
    late = [f"{row['channels']} channels of source {row['name']} have no samples since" for row in stale_sources]
    return [*late, *([f"{open_gaps} gaps are open"] if open_gaps else [])]


def _oldest(spool: Path, query: str) -> float:
    """Time when the oldest batch in a spool file was received (µs); infinite where it is empty."""
    try:
        connection = sqlite3.connect(f"file:{spool}?mode=ro", uri=True)
        try:
            (oldest,) = connection.execute(query).fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return 0.0
    return math.inf if oldest is None else float(oldest)
