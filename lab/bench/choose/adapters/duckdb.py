"""DuckDB over Parquet files (its documentation: "Reading and writing Parquet files", "Parquet tips")."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lab.bench.choose.adapters.installed import module
from lab.bench.data import Columns, Minutes, Raw
from lab.bench.disk_usage import folder_bytes
from schema.queries import load


class DuckDb:
    """A contestant. It runs in this process, and a write is a file: what is there twice stays there twice."""

    name = "DuckDB over Parquet"
    installation = "PyPI duckdb"
    settings = "a Parquet file (zstd) a write, sorted into one when it settles; durable: file and folder are fsynced"

    def __init__(self, folder: Path | None) -> None:
        self._started = AsyncExitStack()
        self._duckdb = module("duckdb", folder)

    def available(self) -> str | None:
        """Whether it can be imported."""
        return None if self._duckdb else "duckdb can't be imported"

    async def start(self, folder: Path) -> None:
        """Folders for the files."""
        self._folder = folder / "samples"
        self._folder.mkdir()
        self._metadata = folder / "metadata"
        self._metadata.mkdir()
        self._numbers = count()
        self._connection = self._duckdb.connect()
        self._started.callback(self._connection.close)

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """A file of channels; and one of no samples, so that there is one."""
        rows = pa.table({"id": np.arange(1, len(names) + 1, dtype=np.int32), "name": list(names), "unit": list(units)})
        await asyncio.to_thread(self._store, self._metadata, rows)
        none = np.empty(0)
        await self.write(Columns(none.astype(np.int32), none.astype(np.int64), none, none.astype(np.uint32)), 0)

    async def write(self, columns: Columns, client: int) -> None:
        """A file."""
        names = ("channel", "time", "value", "status")
        await asyncio.to_thread(self._store, self._folder, pa.table({n: getattr(columns, n) for n in names}))

    def _store(self, folder: Path, rows: Any) -> None:
        """Whole or not at all."""
        number = next(self._numbers)
        partial = folder / f"{number}.partial"
        cursor = self._connection.cursor()
        cursor.register("rows", rows)
        cursor.execute(load("choose")["duckdb_copy_rows"].format(path=partial))
        cursor.close()
        for path in (partial, folder):
            if path == folder:
                partial.rename(folder / f"{number}.parquet")
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    async def wait_until_visible(self) -> None:
        """No wait: acknowledged samples are visible."""

    async def settle(self, before: int) -> None:
        """All files into one, by channel and time: its row groups are skipped by their least and greatest channel."""
        files = sorted(self._folder.glob("*.parquet"))
        whole = self._folder / "whole.partial"
        query = load("choose")["duckdb_merge_files"].format(folder=self._folder, path=whole)
        await asyncio.to_thread(self._connection.cursor().execute, query)
        for file in files:
            file.unlink()
        whole.rename(self._folder / f"{next(self._numbers)}.parquet")

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """Samples as numpy columns."""
        found = await self._ask("duckdb_raw", channel, first, last)
        return Raw(found["time"], found["value"], found["status"])

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """Aggregates of samples whose status is not Bad."""
        found = await self._ask("duckdb_by_minute", channel, first, last)
        return Minutes(found["minute"], found["mean"])

    async def _ask(self, name: str, channel: int, first: int, last: int) -> Any:
        query = load("choose")[name].format(folder=self._folder, channel=channel, first=first, last=last)
        return await asyncio.to_thread(lambda: self._connection.cursor().execute(query).fetchnumpy())

    async def size(self) -> int:
        """The files."""
        return folder_bytes(self._folder, self._metadata)

    async def stop(self) -> None:
        """Close it."""
        await self._started.aclose()
