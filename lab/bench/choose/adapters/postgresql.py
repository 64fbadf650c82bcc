"""Plain PostgreSQL, with the binaries and settings that plantlog's own server has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg

from core.paths import state_folder
from lab.bench.choose.adapters.binary_copy import ask_minutes, ask_raw, copy
from lab.bench.data import Columns, Minutes, Raw
from ops.postgres.binaries import find
from ops.postgres.bootstrap import maintenance_dsn
from ops.postgres.server import Server
from schema.queries import load

_CONNECTIONS = 16


class PostgreSql:
    """A contestant: one table with its key, no partitions."""

    name = "PostgreSQL"
    installation = "Debian package postgresql-17"
    settings = "binary COPY into a table with its key, settings as plantlog's; durable: synchronous_commit = on"

    def __init__(self, folder: Path | None) -> None:
        """It is found where plantlog finds its own server, whatever ``folder`` is."""
        self._started = AsyncExitStack()

    def available(self) -> str | None:
        """Whether the binaries are there."""
        return None if find(state_folder()) else "PostgreSQL 17 with TimescaleDB is not installed"

    async def start(self, folder: Path) -> None:
        """A server of its own."""
        server = await asyncio.to_thread(Server(folder / "server").__enter__)
        self._started.push_async_callback(asyncio.to_thread, server.stop)
        dsn = maintenance_dsn(server.owner_dsn)
        self._pool: asyncpg.Pool[Any] = await asyncpg.create_pool(dsn, min_size=1, max_size=_CONNECTIONS)
        self._started.push_async_callback(self._pool.close)

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """Two tables."""
        await self._pool.execute(load("choose")["postgresql_create_tables"])
        await self._pool.execute(load("choose")["postgresql_insert_channels"], names, units)

    async def write(self, columns: Columns, client: int) -> None:
        """COPY; what is there already refuses it whole, and goes through a staging table then."""
        try:
            await copy(self._pool, "public", "samples", columns)
        except asyncpg.UniqueViolationError:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute(load("choose")["postgresql_create_staging"])
                await copy(connection, None, "staged", columns)
                await connection.execute(load("choose")["postgresql_insert_staged"])

    async def wait_until_visible(self) -> None:
        """No wait: acknowledged samples are visible."""

    async def settle(self, before: int) -> None:
        """Leave the table as autovacuum would."""
        await self._pool.execute(load("choose")["postgresql_vacuum"])

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """Samples by their key."""
        query = load("choose")["postgresql_raw"].format(channel=channel, first=first, last=last)
        return await ask_raw(self._pool, query)

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """Aggregates of samples whose status is not Bad."""
        query = load("choose")["postgresql_by_minute"].format(channel=channel, first=first, last=last)
        return await ask_minutes(self._pool, query)

    async def size(self) -> int:
        """Tables and indexes; its log is used again."""
        return int(await self._pool.fetchval(load("choose")["postgresql_size"]))

    async def stop(self) -> None:
        """End it."""
        await self._started.aclose()
