"""ClickHouse, embedded as chDB (its documentation: "ReplacingMergeTree", "Compression codecs", chDB's "Python table
engine", "fsync_after_insert")."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lab.bench.choose.adapters.installed import module
from lab.bench.data import Columns, Minutes, Raw
from schema.queries import load


class ClickHouse:
    """A contestant. It runs in this process: nothing goes over a network."""

    name = "ClickHouse (chDB)"
    installation = "PyPI chdb"
    settings = (
        "inserted from Arrow, ReplacingMergeTree read with FINAL; durable: fsync_after_insert = 1 (0 is its default)"
    )

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._started = AsyncExitStack()

    def available(self) -> str | None:
        """Whether it can be imported."""
        return None if module("chdb.session", self._folder) else "chdb can't be imported"

    async def start(self, folder: Path) -> None:
        """A session of its own."""
        self._data = folder / "data"
        self._session = module("chdb.session", self._folder).Session(str(self._data))
        self._started.push_async_callback(asyncio.to_thread, self._session.close)

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """Partitions by day, ordered by channel and time; a table of channels beside it."""
        for part in ("database", "samples", "channel"):
            await self._execute(load("choose")[f"clickhouse_create_{part}"])
        rows = pa.table({"id": np.arange(1, len(names) + 1, dtype=np.int32), "name": list(names), "unit": list(units)})
        await self._execute(load("choose")["clickhouse_insert_channels"], rows)

    async def write(self, columns: Columns, client: int) -> None:
        """An insert, one after another: chDB finds the columns by their variable's name, and mixes up two at once."""
        names = ("channel", "time", "value", "status")
        await self._execute(
            load("choose")["clickhouse_insert_samples"], pa.table({n: getattr(columns, n) for n in names})
        )

    async def wait_until_visible(self) -> None:
        """No wait: acknowledged samples are visible."""

    async def settle(self, before: int) -> None:
        """Parts are merged into one a day."""
        await self._execute(load("choose")["clickhouse_optimize"])

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """Samples as Arrow."""
        found = await self._ask("clickhouse_raw", channel, first, last)
        return Raw(found["time"].to_numpy(), found["value"].to_numpy(), found["status"].to_numpy())

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """Aggregates of samples whose status is not Bad."""
        found = await self._ask("clickhouse_by_minute", channel, first, last)
        return Minutes(found["minute"].to_numpy(), found["mean"].to_numpy())

    async def _ask(self, name: str, channel: int, first: int, last: int) -> Any:
        query = load("choose")[name].format(channel=channel, first=first, last=last)
        answer = await asyncio.to_thread(self._session.query, query, "Arrow")
        return pa.ipc.open_file(pa.BufferReader(answer.bytes())).read_all()

    async def _execute(self, query: str, rows: Any = None) -> None:
        """``rows`` is read by that name from the query."""
        await asyncio.to_thread(self._locked, query, rows)

    def _locked(self, query: str, rows: Any) -> None:
        with self._lock:
            self._session.query(query)

    async def size(self) -> int:
        """Size of the active parts of both tables; merged ones are deleted minutes later."""
        answer = await asyncio.to_thread(self._session.query, load("choose")["clickhouse_size"].strip()[:-1], "CSV")
        return int(answer.bytes())

    async def stop(self) -> None:
        """End the session."""
        await self._started.aclose()
