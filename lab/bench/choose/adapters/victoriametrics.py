"""VictoriaMetrics, single node (its documentation: "InfluxDB-compatible agents", "/api/v1/export", "Deduplication")."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.bench.choose.adapters.installed import program
from lab.bench.choose.adapters.server_process import Http, Lines, Process
from lab.bench.data import Columns, Minutes, Raw
from lab.bench.disk_usage import folder_bytes
from ops.ports import free_ports

_MINUTE_MS = 60_000


class VictoriaMetrics:
    """A contestant. A field is a series of its own there: samples_value and samples_status."""

    name = "VictoriaMetrics"
    installation = "Debian package victoria-metrics"
    settings = "line protocol over HTTP, deduplicated by the ms; NOT durable when it answers, but seconds later"

    def __init__(self, folder: Path | None) -> None:
        self._started = AsyncExitStack()
        self._program = program(("victoria-metrics", "victoria-metrics-prod"), folder)

    def available(self) -> str | None:
        """Whether the server is there."""
        return None if self._program else "victoria-metrics is not installed"

    async def start(self, folder: Path) -> None:
        """Ten years are kept: what it gets must not be older than that."""
        port = free_ports(1)
        self._data = folder / "data"
        options = {
            "storageDataPath": str(self._data),
            "httpListenAddr": f"127.0.0.1:{port}",
            "retentionPeriod": "10y",
            "dedup.minScrapeInterval": "1ms",
            "search.disableCache": "true",  # of answers: each is computed, as with everyone else
        }
        process = Process([str(self._program), *(f"-{k}={v}" for k, v in options.items())], folder / "log")
        self._started.push_async_callback(process.stop)
        self._http = Http(port)
        self._started.push_async_callback(self._http.close)
        await process.until(lambda: self._http.ask("/health"))

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """Series are made when they are written to."""
        self._names = names
        self._lines = Lines(names, units)

    async def write(self, columns: Columns, client: int) -> None:
        """A request."""
        await self._http.post("/write", self._lines.encode(columns), precision="u")

    async def wait_until_visible(self) -> None:
        """Otherwise it is seen within a second or more."""
        await self._http.ask("/internal/force_flush")

    async def settle(self, before: int) -> None:
        """Merged into parts, which is done in the background."""
        await self._http.ask("/internal/force_merge")
        await asyncio.sleep(2)
        while b"vm_active_force_merges 0" not in await self._http.ask("/metrics"):
            await asyncio.sleep(0.5)

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """Samples by the export, which gives what is stored; its bounds are milliseconds, both included."""
        bounds = {"start": f"{first / 1e6:.3f}", "end": f"{last / 1e6 - 0.001:.3f}"}
        match = f'{{__name__=~"samples_(value|status)",channel="{self._names[channel - 1]}"}}'
        found: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        for line in (await self._http.ask("/api/v1/export", **{"match[]": match}, **bounds)).splitlines():
            series = json.loads(line.replace(b"Inf", b"Infinity").replace(b"+", b""))
            values = np.array([np.nan if v is None else float(v) for v in series["values"]], np.float64)
            found[series["metric"]["__name__"]] = (np.array(series["timestamps"], np.int64), values)
        none = (np.empty(0, np.int64), np.empty(0))
        time, status = found.get("samples_status", none)
        valued, values = found.get("samples_value", none)
        value = np.full(len(time), np.nan)
        value[np.isin(time, valued)] = values[np.isin(valued, time)]
        return Raw(time * 1000, value, status.astype(np.uint32))

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """Its windows are open at their beginning: each ends a millisecond before the next minute."""
        begin = first // 60_000_000 * _MINUTE_MS
        bounds = {"start": f"{(begin + _MINUTE_MS - 1) / 1e3:.3f}", "end": f"{last / 1e6 - 0.001:.3f}", "step": "60s"}
        query = f'avg_over_time(samples_value{{channel="{self._names[channel - 1]}"}}[1m])'
        found = json.loads(await self._http.ask("/api/v1/query_range", query=query, nocache="1", **bounds))
        points = [point for series in found["data"]["result"] for point in series["values"]]
        ends = np.array([round(float(end) * 1000) for end, _ in points], np.int64)
        means = np.array([float(mean) for _, mean in points], np.float64)
        return Minutes((ends + 1 - _MINUTE_MS) * 1000, means)

    async def size(self) -> int:
        """Data and index."""
        return folder_bytes(self._data)

    async def stop(self) -> None:
        """End it."""
        await self._started.aclose()
