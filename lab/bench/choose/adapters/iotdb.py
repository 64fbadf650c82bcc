"""Apache IoTDB 2, table model (its documentation: "Standalone deployment", "Python native API", "WAL settings")."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np

from lab.bench.choose.adapters.installed import module, program
from lab.bench.choose.adapters.iotdb_nodes import start
from lab.bench.data import Columns, Minutes, Raw
from lab.bench.disk_usage import folder_bytes
from schema.queries import load


class IoTDb:
    """A contestant. Its client library is not made for asyncio: a thread and a session for each client."""

    name = "IoTDB 2"
    installation = "Maven artifacts org.apache.iotdb:iotdb-server and iotdb-confignode (jars), Java, PyPI apache-iotdb"
    settings = "tablets of the table model; durable: wal_mode SYNC (ASYNC is its default)"

    def __init__(self, folder: Path | None) -> None:
        self._started = AsyncExitStack()
        self._folder = folder
        self._java = program(("java",), None)
        self._jars = {path.parent for path in folder.rglob("iotdb-server-*.jar")} if folder else set()

    def available(self) -> str | None:
        """Whether Java, the jars and the client library are there; the latter may be in the folder ``python``."""
        if not self._java or not self._jars or self._folder is None:
            return "Java is not installed" if not self._java else "no folder with iotdb-server-*.jar is given"
        return None if module("iotdb.table_session", self._folder / "python") else "the module iotdb can't be imported"

    async def start(self, folder: Path) -> None:
        """A ConfigNode and a DataNode."""
        self._data = folder / "data" / "datanode"
        self._thread_local = threading.local()
        self._port = await start(str(self._java), next(iter(self._jars)), folder, self._started)
        await self._execute("CREATE DATABASE bench")

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """A table; names are tags, units attributes of them."""
        self._names, self._units = np.array(names, object), np.array(units, object)
        await self._execute(load("choose")["iotdb_create_table"])

    async def write(self, columns: Columns, client: int) -> None:
        """A tablet."""
        await asyncio.to_thread(self._insert, columns)

    def _insert(self, columns: Columns) -> None:
        kinds, column = (
            module("iotdb.utils.IoTDBConstants", None).TSDataType,
            module("iotdb.utils.Tablet", None).ColumnType,
        )
        place = columns.channel - 1
        tablet = module("iotdb.utils.NumpyTablet", None).NumpyTablet(
            "samples",
            ["channel", "unit", "value", "status"],
            [kinds.STRING, kinds.STRING, kinds.DOUBLE, kinds.INT32],
            [self._names[place], self._units[place], columns.value, columns.status.view(np.int32)],
            np.ascontiguousarray(columns.time),
            column_types=[column.TAG, column.ATTRIBUTE, column.FIELD, column.FIELD],
        )
        self._session().insert(tablet)

    def _session(self) -> Any:
        """Session of this thread."""
        if not hasattr(self._thread_local, "session"):
            client = module("iotdb.table_session", None)
            login = {"username": "root", "password": "root"}  # its documented default, on loopback
            settings = client.TableSessionConfig([f"127.0.0.1:{self._port}"], database="bench", **login)
            self._thread_local.session = client.TableSession(settings)
            self._started.callback(self._thread_local.session.close)
        return self._thread_local.session

    async def wait_until_visible(self) -> None:
        """No wait: acknowledged samples are visible."""

    async def settle(self, before: int) -> None:
        """Memory tables are flushed to TsFiles."""
        await self._execute("FLUSH")

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """Samples as a data frame."""
        found = await self._ask("iotdb_raw", channel, first, last)
        return Raw(found[0].astype(np.int64), found[1].astype(float), found[2].astype(np.int32).view(np.uint32))

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """Aggregates of samples whose status is not Bad."""
        found = await self._ask("iotdb_by_minute", channel, first, last)
        return Minutes(found[0].astype(np.int64), found[1].astype(float))

    async def _ask(self, name: str, channel: int, first: int, last: int) -> list[Any]:
        query = load("choose")[name].format(name=self._names[channel - 1], first=first, last=last)

        def ask() -> list[Any]:
            with self._session().execute_query_statement(query) as answer:
                frame = answer.todf()
                return [frame[column].to_numpy() for column in frame.columns]

        return await asyncio.to_thread(ask)

    async def _execute(self, statement: str) -> None:
        await asyncio.to_thread(lambda: self._session().execute_non_query_statement(statement))

    async def size(self) -> int:
        """TsFiles and the schema; its logs are trimmed behind."""
        return folder_bytes(self._data / "data", self._data / "system" / "schema")

    async def stop(self) -> None:
        """End both nodes."""
        await self._started.aclose()
