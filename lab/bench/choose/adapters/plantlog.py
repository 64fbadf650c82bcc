"""plantlog: its own spool, writer, schema and server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

import asyncpg
import numpy as np

from core.batch import SampleBatch
from core.errors import OperationError
from core.paths import state_folder
from core.timestamps import now_us
from ingest.spool.append import Spool
from lab.bench.choose.adapters.binary_copy import ask_minutes, ask_raw, copy
from lab.bench.data import Columns, Minutes, Raw
from lab.bench.server import private
from ops.maintenance.packing import compress_before, pack_before
from ops.postgres.binaries import find
from schema.queries import load

_SPOOL_BYTES = 8 * 1024**3
_IN_FLIGHT = 800_000  # rows that are durable and not yet in the table: two transactions of the writer
_POLL_SECONDS = 0.01
_END_SECONDS = 60.0
_EPOCH = np.datetime64(0, "us")
_CLOSE = {"packed": pack_before, "columnstore": compress_before}


class Plantlog:
    """A contestant: samples stay rows, or closed days are packed or columnstored.

    Each client is a collector with a spool of its own; the writer is a process of its own, as in the appliance.
    Maintenance does not run: rollups, seals and retention come on top.
    """

    installation = "this checkout, and Debian packages postgresql-17 and postgresql-17-timescaledb"

    def __init__(self, form: Literal["rows", "packed", "columnstore"], *, spooled: bool = True) -> None:
        self.name = f"plantlog {form}" if spooled else f"plantlog {form}, plain COPY"
        way = "spool and writer; durable: in the spool, fsynced," if spooled else "binary COPY; durable: committed"
        self.settings = f"{way} when it acknowledges"
        self._form = form
        self._started = AsyncExitStack()
        self._spooled = spooled

    def available(self) -> str | None:
        """Whether the server is there; the columnstore is of TimescaleDB Community."""
        binaries = find(state_folder())
        if binaries is None:
            return "PostgreSQL 17 with TimescaleDB is not installed"
        if self._form == "columnstore" and not list(
            binaries.root.glob("usr/lib/postgresql/17/lib/timescaledb-tsl-*.so")
        ):
            return "TimescaleDB here is the Apache-2 edition; the columnstore is in its Community edition"
        return None

    async def start(self, folder: Path) -> None:
        """A migrated database on a server of its own."""
        server = ExitStack()
        self._database = await asyncio.to_thread(server.enter_context, private(folder))
        self._started.push_async_callback(asyncio.to_thread, server.close)
        self._pool: asyncpg.Pool[Any] = await asyncpg.create_pool(self._database.owner_dsn, min_size=1, max_size=16)
        self._started.push_async_callback(self._pool.close)
        self._spools: dict[int, Spool] = {}
        self._pending_rows = 0
        self._writer: asyncio.subprocess.Process | None = None

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """The channels, and the writer."""
        rows = await self._pool.fetch(load("choose")["plantlog_insert_channels"], "bench", names, units)
        ids = np.array([row["id"] for row in rows], np.int32)
        if not np.array_equal(ids, np.arange(ids[0], ids[0] + len(ids))):
            raise OperationError("the benchmark requires consecutive channel ids: use a separate database")
        self._source, self._before = int(rows[0]["source_id"]), int(ids[0]) - 1
        if self._spooled:
            command = [
                sys.executable,
                "-m",
                "lab.bench.choose.writer_process",
                str(self._database.folder),
                self._database.ingest_dsn,
            ]
            self._writer = await asyncio.create_subprocess_exec(*command)
            self._started.push_async_callback(self._end_writer, self._writer)

    async def write(self, columns: Columns, client: int) -> None:
        """Durable in the client's spool; it waits where the writer is two transactions behind."""
        ids = columns.channel + np.int32(self._before)
        if not self._spooled:
            await copy(self._pool, "plant", "samples_raw", Columns(ids, columns.time, columns.value, columns.status))
            return
        if client not in self._spools:
            self._spools[client] = Spool(self._database.folder / f"client{client}.sqlite", _SPOOL_BYTES)
            self._started.push_async_callback(self._spools[client].close)
        batch = SampleBatch(self._source, now_us(), ids, columns.time, columns.value, columns.status)
        await self._spools[client].append(batch)
        self._pending_rows += len(columns)
        while self._pending_rows > _IN_FLIGHT:
            self._pending_rows = await self._depth()
            if self._pending_rows > _IN_FLIGHT:
                await asyncio.sleep(_POLL_SECONDS)

    async def _depth(self) -> int:
        if self._writer is not None and self._writer.returncode is not None:
            raise OperationError(f"the writer exited with {self._writer.returncode}")
        return sum([(await spool.depth())[1] for spool in self._spools.values()])

    async def wait_until_visible(self) -> None:
        """Wait until the spools are empty: then acknowledged samples are in the table."""
        while await self._depth():
            await asyncio.sleep(_POLL_SECONDS)
        self._pending_rows = 0

    async def settle(self, before: int) -> None:
        """Run maintenance of closed days. It drops an emptied chunk in a later run if a query, or autovacuum,
        began before it was emptied."""
        if self._form in _CLOSE:
            day = (_EPOCH + np.timedelta64(before, "us")).item().replace(tzinfo=UTC)
            await self._close(day)
            async with asyncio.timeout(_END_SECONDS):
                while await self._pool.fetchval(load("choose")["plantlog_is_open"], day):
                    await asyncio.sleep(_POLL_SECONDS)
                    await self._close(day)
        await self._pool.execute(load("choose")["plantlog_vacuum"])

    async def _close(self, day: datetime) -> None:
        async with self._pool.acquire() as connection:
            await _CLOSE[self._form](cast("asyncpg.Connection[Any]", connection), day)

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """Samples by ``samples_between``."""
        return await ask_raw(self._pool, self._query("plantlog_raw", channel, first, last))

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """Aggregates from samples, not from the rollups, as everyone else."""
        return await ask_minutes(self._pool, self._query("plantlog_by_minute", channel, first, last))

    def _query(self, name: str, channel: int, first: int, last: int) -> str:
        return load("choose")[name].format(channel=channel + self._before, first=first, last=last)

    async def size(self) -> int:
        """Samples in all forms and channels, with indexes and TOAST; the log is used again."""
        return int(await self._pool.fetchval(load("choose")["plantlog_size"]))

    async def stop(self) -> None:
        """End the writer, then the server."""
        await self._started.aclose()

    async def _end_writer(self, writer: asyncio.subprocess.Process) -> None:
        """End the writer once it has written what is still in the spools."""
        with suppress(ProcessLookupError):
            writer.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await writer.wait()
        except TimeoutError:
            writer.kill()
            await writer.wait()
