"""QuestDB (its documentation: "InfluxDB Line Protocol", "Deduplication", "CREATE TABLE", "cairo.commit.mode")."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from core.errors import OperationError
from lab.bench.choose.adapters.installed import program
from lab.bench.choose.adapters.server_process import Http, Lines, Process
from lab.bench.data import Columns, Minutes, Raw
from ops.ports import free_ports
from schema.queries import load

_POLL_SECONDS = 0.01


class QuestDb:
    """A contestant. Written to by line protocol over HTTP, asked over PostgreSQL's protocol."""

    name = "QuestDB"
    installation = "Maven artifact org.questdb:questdb (a jar), and Java 17 or newer"
    settings = "line protocol over HTTP, deduplicated by key; durable: commit mode sync (nosync is its default)"

    def __init__(self, folder: Path | None) -> None:
        self._started = AsyncExitStack()
        self._java = program(("java",), None)
        self._jar = next(iter(sorted(folder.glob("questdb*.jar"), reverse=True)), None) if folder else None

    def available(self) -> str | None:
        """Whether Java and the jar are there."""
        if not self._java:
            return "Java is not installed"
        return None if self._jar else "no folder with questdb*.jar is given"

    async def start(self, folder: Path) -> None:
        """With its configuration in the environment."""
        port = free_ports(2)
        environment = {
            "QDB_HTTP_BIND_TO": f"127.0.0.1:{port}",
            "QDB_HTTP_MIN_ENABLED": "false",
            "QDB_PG_NET_BIND_TO": f"127.0.0.1:{port + 1}",
            "QDB_LINE_TCP_ENABLED": "false",
            "QDB_TELEMETRY_ENABLED": "false",
            "QDB_CAIRO_COMMIT_MODE": "sync",
        }
        command = [str(self._java), "-p", str(self._jar), "-m", "io.questdb/io.questdb.ServerMain", "-n"]
        process = Process([*command, "-d", str(folder)], folder / "log", {**os.environ, **environment})
        self._started.push_async_callback(process.stop)
        self._http = Http(port)
        self._started.push_async_callback(self._http.close)
        await process.until(lambda: self._http.ask("/ping"))
        self._pool: asyncpg.Pool[Any] = await asyncpg.create_pool(
            f"postgresql://admin:quest@127.0.0.1:{port + 1}/qdb",
            min_size=1,
            max_size=4,  # its documented default
        )
        self._started.push_async_callback(self._pool.close)

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """A table by day, with its write-ahead log; names and units are symbols."""
        self._names = names
        self._lines = Lines(names, units)
        await self._http.ask("/exec", query=load("choose")["questdb_create_table"])

    async def write(self, columns: Columns, client: int) -> None:
        """A request; its INT is signed."""
        await self._http.post("/write", self._lines.encode(columns, signed=True), precision="u")

    async def wait_until_visible(self) -> None:
        """The log is applied to the table behind the answer."""
        while True:
            found = json.loads(await self._http.ask("/exec", query=load("choose")["questdb_select_wal_state"]))
            applied, suspended = found["dataset"][0]
            if suspended:
                raise OperationError("the table is suspended")
            if applied:
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def settle(self, before: int) -> None:
        """A partition keeps room for more until the next one begins: a sample of the next day, of another channel."""
        one = Columns(np.array([len(self._names)], np.int32), np.array([before]), np.zeros(1), np.zeros(1, np.uint32))
        await self.write(one, 0)
        await self.wait_until_visible()

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """Over PostgreSQL's protocol."""
        rows = await self._pool.fetch(load("choose")["questdb_raw"], self._names[channel - 1], first, last)
        time, value, status = zip(*rows, strict=True) if rows else ((), (), ())
        values = np.array([np.nan if v is None else v for v in value], np.float64)
        return Raw(np.array(time, np.int64), values, np.array(status, np.int32).view(np.uint32))

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """``avg`` leaves out what has no value."""
        rows = await self._pool.fetch(load("choose")["questdb_by_minute"], self._names[channel - 1], first, last)
        minute, mean = zip(*rows, strict=True) if rows else ((), ())
        return Minutes(np.array(minute, np.int64), np.array(mean, np.float64))

    async def size(self) -> int:
        """Closed partitions; its log is trimmed behind, and symbols are kilobytes in files of 16 MiB."""
        return int(await self._pool.fetchval(load("choose")["questdb_size"]))

    async def stop(self) -> None:
        """End it."""
        await self._started.aclose()
