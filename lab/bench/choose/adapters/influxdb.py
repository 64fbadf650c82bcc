"""InfluxDB 1.x over HTTP (its documentation: "Write data with the InfluxDB API", "Use TSI", "[data] settings")."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lab.bench.choose.adapters.installed import program
from lab.bench.choose.adapters.server_process import Http, Lines, Process, csv_columns
from lab.bench.data import Columns, Minutes, Raw
from lab.bench.disk_usage import folder_bytes
from ops.ports import free_ports
from schema.queries import load

_COLD = 5  # s without writes until what is in the WAL is compacted: by default it is 10 minutes, and 4 hours
_CONFIGURATION = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
  dir = "{folder}/meta"
[data]
  dir = "{folder}/data"
  wal-dir = "{folder}/wal"
  index-version = "tsi1"
  query-log-enabled = false
  cache-snapshot-write-cold-duration = "{cold}s"
  compact-full-write-cold-duration = "{cold}s"
[http]
  bind-address = "127.0.0.1:{http}"
  log-enabled = false
[monitor]
  store-enabled = false
"""


class InfluxDb:
    """A contestant."""

    name = "InfluxDB 1"
    installation = "Debian package influxdb"
    settings = "line protocol over HTTP, index tsi1; durable: its log is fsynced before each answer (its default)"

    def __init__(self, folder: Path | None) -> None:
        self._started = AsyncExitStack()
        self._program = program(("influxd",), folder)

    def available(self) -> str | None:
        """Whether the server is there."""
        return None if self._program else "influxd is not installed"

    async def start(self, folder: Path) -> None:
        """With a configuration of its own."""
        port = free_ports(2)
        self._folder = folder
        configuration = folder / "influxdb.conf"
        configuration.write_text(_CONFIGURATION.format(folder=folder, http=port, rpc=port + 1, cold=_COLD))
        process = Process([str(self._program), "-config", str(configuration)], folder / "log")
        self._started.push_async_callback(process.stop)
        self._http = Http(port)
        self._started.push_async_callback(self._http.close)
        await process.until(lambda: self._http.ask("/ping"))

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """A database; series are made when they are written to."""
        self._names = names
        self._lines = Lines(names, units)
        await self._http.post("/query", q="CREATE DATABASE bench")

    async def write(self, columns: Columns, client: int) -> None:
        """A request."""
        await self._http.post("/write", self._lines.encode(columns), db="bench", precision="u")

    async def wait_until_visible(self) -> None:
        """No wait: acknowledged samples are visible."""

    async def settle(self, before: int) -> None:
        """Wait until the log is cold and compacted; it is kept in one file that is empty then."""
        for _ in range(6 * _COLD):
            if folder_bytes(self._folder / "wal") < 64 * 1024:
                break
            await asyncio.sleep(1)
        await asyncio.sleep(_COLD)

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """Samples as CSV, the cheapest form that the API has."""
        found = await self._ask("influxdb_raw", {"value": pa.float64(), "status": pa.int64()}, channel, first, last)
        return Raw(found["time"], found["value"], found["status"].astype(np.uint32))

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """``mean`` leaves out what has no value."""
        found = await self._ask("influxdb_by_minute", {"mean": pa.float64()}, channel, first, last)
        return Minutes(found["time"], found["mean"])

    async def _ask(
        self, name: str, types: dict[str, Any], channel: int, first: int, last: int
    ) -> dict[str, NDArray[Any]]:
        query = load("choose")[name].format(name=self._names[channel - 1], first=first, last=last)
        text = await self._http.ask("/query", "application/csv", db="bench", epoch="u", q=query)
        return csv_columns(text, {"time": pa.int64(), **types})

    async def size(self) -> int:
        """Series files, index, and what is still in the log."""
        return folder_bytes(self._folder / "data", self._folder / "wal", self._folder / "meta")

    async def stop(self) -> None:
        """End it."""
        await self._started.aclose()
