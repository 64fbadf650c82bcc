"""Whether rollups that were made while things failed are what their samples give, and what of them a writer closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import asyncpg

from core.errors import OperationError
from core.timestamps import now_us
from history.rollups.verify import Difference, verify_at
from ingest.writer.transaction.counts import MINUTE_US
from schema.queries import load

_TIMEOUT = 300.0
_CLOSING_SECONDS = 240.0  # in which a writer that nobody ends closes a whole minute
_POLL_SECONDS = 1.0


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
    differences: Sequence[Difference] = ()
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
    connection = await asyncpg.connect(dsn)
    try:
        (row,) = await connection.fetch(load("chaos")["select_closed_minutes"])
        return ClosedMinutes(row["minutes"], row["rows"])
    finally:
        await connection.close()


async def wait_until_made(dsn: str, us: int) -> None:
    """Wait until every minute that had begun by ``us`` has rollups. Raises OperationError where it takes too long."""
    connection = await asyncpg.connect(dsn)
    began = time.monotonic()
    try:
        while rows_left := await connection.fetchval(load("chaos")["count_dirty_minutes"], us):
            if time.monotonic() - began > _TIMEOUT:
                raise OperationError(f"{rows_left} rows of rollup_dirty are left after {_TIMEOUT:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        await connection.close()


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
