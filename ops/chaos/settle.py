"""When the faults are over: until what was published before is in the table, or on record as missing."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from pathlib import Path

import asyncpg

from ingest.errors import OperationError
from ops.chaos.gateway import Gateway
from ops.paths import State
from schema.queries import load

_SECONDS = 300.0
_LOOK_SECONDS = 0.5


async def settle(state: State, reader_dsn: str, gateway: Gateway | None, us: int) -> float:
    """Return once every channel has a value in the table that is dated later than ``us``, and nothing older waits.

    Nor may a gap be open: a fault of the last moment is noticed only a while after.

    The seconds that this took. Raises OperationError where it takes too long: then something hangs.
    """
    started = time.monotonic()
    while left := await waiting(state, reader_dsn, gateway, us):
        if time.monotonic() - started > _SECONDS:
            raise OperationError(f"not over after {_SECONDS:.0f} s: {'; '.join(left)}")
        await asyncio.sleep(_LOOK_SECONDS)
    return time.monotonic() - started


async def waiting(state: State, reader_dsn: str, gateway: Gateway | None, us: int) -> list[str]:
    """What is still waited for, in words."""
    if gateway is not None and gateway.oldest <= us:
        return [f"the gateway has {gateway.waiting} batches that nobody took"]
    files = [path for path in sorted(state.spool.glob("*.sqlite")) if _oldest(path) <= us]
    if files:
        return [f"batches wait in {path.name}" for path in files]
    try:
        connection = await asyncpg.connect(reader_dsn)
    except (OSError, asyncpg.PostgresError) as error:
        return [f"the database: {error}"]
    try:
        behind = await connection.fetch(load("chaos")["behind"], us)
        still = await connection.fetchval(load("chaos")["open"])
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return [f"the database: {error}"]
    finally:
        connection.terminate()
    late = [f"{row['channels']} channels of source {row['name']} have nothing since" for row in behind]
    return [*late, *([f"{still} gaps are open"] if still else [])]


def _oldest(spool: Path) -> float:
    """When the oldest batch in a spool file was received (µs); infinite where it is empty."""
    try:
        connection = sqlite3.connect(f"file:{spool}?mode=ro", uri=True)
        try:
            (oldest,) = connection.execute(load("spool")["oldest_received"]).fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return 0.0
    return math.inf if oldest is None else float(oldest)
