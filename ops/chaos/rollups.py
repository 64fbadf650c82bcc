"""Whether rollups that were made while things failed are what their samples give, and what of them a writer closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from ingest.errors import OperationError
from ops.rollups.verify import Difference, verify_at
from schema.queries import load

_SECONDS = 300.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Closed:
    """What writers closed."""

    minutes: int = 0
    rows: int = 0  # of channels


@dataclass(frozen=True, slots=True)
class Rollups:
    """How they came out."""

    closed: Closed = Closed()  # while things failed
    closed_after: Closed = Closed()  # until all was made
    seconds: float = 0.0  # from the last fault until all was made
    differences: Sequence[Difference] = ()

    @property
    def failures(self) -> list[str]:
        """What must not be, in words."""
        return [f"{len(self.differences):,} differences between rollups and samples"] if self.differences else []


async def closed(dsn: str) -> Closed:
    """By now."""
    connection = await asyncpg.connect(dsn)
    try:
        (row,) = await connection.fetch(load("chaos")["closed"])
        return Closed(row["minutes"], row["rows"])
    finally:
        await connection.close()


async def made(dsn: str, us: int) -> float:
    """Seconds until every minute that had begun by ``us`` was made. Raises OperationError where it takes too long."""
    connection = await asyncpg.connect(dsn)
    began = time.monotonic()
    try:
        while left := await connection.fetchval(load("chaos")["unmade"], us):
            if time.monotonic() - began > _SECONDS:
                raise OperationError(f"{left} rows of rollup_dirty are left after {_SECONDS:.0f} s")
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await connection.close()
    return time.monotonic() - began


async def rollups(dsn: str, during: Closed, us: int) -> Rollups:
    """Wait until the minutes that had begun by ``us`` are made, and compare all of them with their samples."""
    seconds = await made(dsn, us)
    verified = await verify_at(dsn)
    return Rollups(during, await closed(dsn), seconds, verified.differences)
