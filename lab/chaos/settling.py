"""Wait, after the faults, until everything published is in the table or recorded as a gap, and rollups are made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from core.database import FAILURES, connected
from core.errors import OperationError
from core.paths import State
from core.timestamps import MINUTE_US, now_us
from history.rollups import RollupDifference, verify_at
from ingest.spool.waiting import settled, waiting
from lab.chaos.gateway import Gateway
from schema.queries import load

_TIMEOUT = 300.0
_POLL_SECONDS = 0.5
_CLOSING_SECONDS = 240.0  # in which a writer that nobody ends closes a whole minute


async def await_idle(state: State, reader_dsn: str, gateway: Gateway | None, us: int) -> float:
    """Return once every channel has a value in the table that is dated later than ``us``, and nothing older waits.

    Nor may a gap be open: a fault of the last moment is noticed only a while after.

    The seconds that this took. Raises OperationError where it takes too long: then something hangs.
    """
    seconds, left = await settled(lambda: pending(state, reader_dsn, gateway, us), _TIMEOUT)
    if left:
        raise OperationError(f"not idle after {_TIMEOUT:.0f} s: {'; '.join(left)}")
    return seconds


async def pending(state: State, reader_dsn: str, gateway: Gateway | None, us: int) -> list[str]:
    """Describe what is still waited for."""
    if gateway is not None and gateway.oldest <= us:
        return [f"the gateway has {gateway.waiting} batches that were not accepted"]
    return waiting(state.spool, us, load("spool")["select_min_received_at"]) or await not_stored(reader_dsn, us)


async def not_stored(reader_dsn: str, us: int) -> list[str]:
    """Describe what the database does not have yet."""
    try:
        async with connected(reader_dsn, "plantlog chaos") as connection:
            stale_sources = await connection.fetch(load("chaos")["select_stale_sources"], us)
            open_gaps = await connection.fetchval(load("chaos")["count_open_gaps"])
    except FAILURES as error:
        return [f"the database: {error}"]
    late = [f"{row['channels']} channels of source {row['name']} have no samples since" for row in stale_sources]
    return [*late, *([f"{open_gaps} gaps are open"] if open_gaps else [])]


@dataclass(frozen=True, slots=True)
class ClosedMinutes:
    """Minutes that writers closed."""

    minutes: int = 0
    rows: int = 0  # of channels


@dataclass(frozen=True, slots=True)
class RollupResult:
    """Result of the comparison."""

    closed: ClosedMinutes = ClosedMinutes()  # while things failed
    closed_after: ClosedMinutes = ClosedMinutes()  # until all was made
    seconds: float = 0.0  # from the last fault until all was made
    differences: Sequence[RollupDifference] = ()
    due: bool = False  # a writer had the time to close some

    @property
    def failures(self) -> list[str]:
        """Describe what must not be."""
        wrong = [f"{len(self.differences):,} differences between rollups and samples"] if self.differences else []
        if self.due and not self.closed_after.minutes:
            wrong.append("the writer closed no minute of the rollups, so this was not tested")
        return wrong


async def closed(dsn: str) -> ClosedMinutes:
    """Minutes that are closed by now."""
    async with connected(dsn, "plantlog chaos") as connection:
        (row,) = await connection.fetch(load("chaos")["select_closed_minutes"])
        return ClosedMinutes(row["minutes"], row["rows"])


async def wait_until_made(dsn: str, us: int) -> None:
    """Wait until every minute that had begun by ``us`` has rollups. Raises OperationError where it takes too long."""
    began = time.monotonic()
    async with connected(dsn, "plantlog chaos") as connection:
        while dirty := await connection.fetchval(load("chaos")["count_dirty_minutes"], us):
            if time.monotonic() - began > _TIMEOUT:
                raise OperationError(f"{dirty} rows of rollup_dirty are left after {_TIMEOUT:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)


async def rollups(
    dsn: str, during: ClosedMinutes, us: int, due: bool, end: Callable[[], Awaitable[None]] | None = None
) -> RollupResult:
    """Wait until the minutes that were over by ``us`` are made, and compare all of them with their samples.

    ``due``: a writer had the time to close some. The first is waited for, and minutes up to it are compared as well,
    the one of ``us`` among them. ``end``: what ends the plant in between, so that comparing has the machine for itself.
    """
    began = time.monotonic()
    us -= 0 if due else MINUTE_US
    while due and not (await closed(dsn)).minutes and time.monotonic() - began < _CLOSING_SECONDS:
        await asyncio.sleep(_POLL_SECONDS)
        us = max(us, now_us() - MINUTE_US)
    await wait_until_made(dsn, us)
    seconds = time.monotonic() - began
    if end is not None:
        await end()
    result = await verify_at(dsn)
    return RollupResult(during, await closed(dsn), seconds, result.differences, due)
