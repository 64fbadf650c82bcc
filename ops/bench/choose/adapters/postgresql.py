"""Plain PostgreSQL, with the binaries and settings that plantlog's own server has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import asyncpg
import numpy as np
from numpy.typing import NDArray

from ingest.writer.copy_stream import COLUMNS, copy_stream
from ops.bench.choose.data import Columns, Minutes, Raw
from ops.paths import state_folder
from ops.postgres.binaries import find
from ops.postgres.bootstrap import maintenance_dsn
from ops.postgres.server import Server
from schema.queries import load

_EPOCH_US = 946_684_800_000_000  # PostgreSQL counts from 2000-01-01
_HEAD, _TAIL = 19, 2  # bytes around the rows of a binary COPY
_CONNECTIONS = 16


def _row(*fields: str) -> np.dtype[np.void]:
    """Of a binary COPY: each field has its length before it."""
    with_lengths = [part for i, field in enumerate(fields) for part in ((f"length {i}", ">i4"), (str(i), field))]
    return np.dtype([("fields", ">i2"), *with_lengths])


_RAW, _MINUTE = _row(">i8", ">f8", ">i4"), _row(">i8", ">f8")


async def answer(pool: asyncpg.Pool[Any], query: str, row: np.dtype[np.void]) -> list[NDArray[Any]]:
    """The fields of a query's rows as columns, by binary COPY: what is measured is the database, not a driver."""
    got = bytearray()

    async def take(data: bytes) -> None:
        got.extend(data)

    await pool.copy_from_query(query.strip().removesuffix(";"), output=take, format="binary")
    rows = np.frombuffer(got, row, offset=_HEAD, count=(len(got) - _HEAD - _TAIL) // row.itemsize)
    fields = [rows[name] for name in row.names or () if name.isdecimal()]
    return [field.astype(field.dtype.newbyteorder("=")) for field in fields]


async def ask_raw(pool: asyncpg.Pool[Any], query: str) -> Raw:
    """Time, value and status."""
    time, value, status = await answer(pool, query, _RAW)
    return Raw(time + _EPOCH_US, value, status.view(np.uint32))


async def ask_minutes(pool: asyncpg.Pool[Any], query: str) -> Minutes:
    """Minute and mean."""
    minute, mean = await answer(pool, query, _MINUTE)
    return Minutes(minute + _EPOCH_US, mean)


async def copy(pool: asyncpg.Pool[Any], schema: str, table: str, columns: Columns) -> None:
    """Binary COPY of ``columns``, whose channels are the table's."""
    stream = copy_stream(columns.channel, columns.time, columns.value, columns.status)
    source = cast(Any, stream)
    await pool.copy_to_table(table, schema_name=schema, source=source, columns=COLUMNS, format="binary")


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
        return None if find(state_folder()) else "there is no PostgreSQL 17 with TimescaleDB"

    async def start(self, folder: Path) -> None:
        """A server of its own."""
        server = await asyncio.to_thread(Server(folder / "server").__enter__)
        self._started.push_async_callback(asyncio.to_thread, server.stop)
        dsn = maintenance_dsn(server.owner_dsn)
        self._pool: asyncpg.Pool[Any] = await asyncpg.create_pool(dsn, min_size=1, max_size=_CONNECTIONS)
        self._started.push_async_callback(self._pool.close)

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """Two tables."""
        await self._pool.execute(load("choose")["postgresql_create"])
        await self._pool.execute(load("choose")["postgresql_name_channels"], names, units)

    async def write(self, columns: Columns, client: int) -> None:
        """COPY; what is there already refuses it whole, and goes through a staging table then."""
        try:
            await copy(self._pool, "public", "samples", columns)
        except asyncpg.UniqueViolationError:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute(load("choose")["postgresql_stage"])
                stream = copy_stream(columns.channel, columns.time, columns.value, columns.status)
                await connection.copy_to_table("staged", source=cast(Any, stream), columns=COLUMNS, format="binary")
                await connection.execute(load("choose")["postgresql_merge"])

    async def seen(self) -> None:
        """What is acknowledged is seen."""

    async def settle(self, before: int) -> None:
        """As autovacuum leaves it."""
        await self._pool.execute(load("choose")["postgresql_analyze"])

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """By its key."""
        query = load("choose")["postgresql_raw"].format(channel=channel, first=first, last=last)
        return await ask_raw(self._pool, query)

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """Of statuses that are not Bad."""
        query = load("choose")["postgresql_by_minute"].format(channel=channel, first=first, last=last)
        return await ask_minutes(self._pool, query)

    async def size(self) -> int:
        """Tables and indexes; its log is used again."""
        return int(await self._pool.fetchval(load("choose")["postgresql_size"]))

    async def stop(self) -> None:
        """End it."""
        await self._started.aclose()
