"""Apache IoTDB 2, table model (its documentation: "Standalone deployment", "Python native API", "WAL settings")."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ops.bench.choose.adapters.serving import Process, folder_bytes, listens
from ops.bench.choose.data import Columns, Minutes, Raw
from ops.bench.choose.find import module, program
from ops.ports import free_ports
from schema.queries import load

_SETTINGS = """
cluster_name=bench
timestamp_precision=us
wal_mode=SYNC
cn_internal_address=127.0.0.1
cn_internal_port={0}
cn_consensus_port={1}
cn_seed_config_node=127.0.0.1:{0}
dn_rpc_address=127.0.0.1
dn_rpc_port={2}
dn_internal_address=127.0.0.1
dn_internal_port={3}
dn_mpp_data_exchange_port={4}
dn_schema_region_consensus_port={5}
dn_data_region_consensus_port={6}
dn_seed_config_node=127.0.0.1:{0}
"""
_NODES = {"CONFIGNODE": ("confignode.service.ConfigNode", "512M"), "IOTDB": ("db.service.DataNode", "2G")}
_OPENED = ("util.concurrent", "lang", "util", "nio", "io", "net")


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
            return "there is no java" if not self._java else "no folder with iotdb-server-*.jar is given"
        return None if module("iotdb.table_session", self._folder / "python") else "the module iotdb can't be imported"

    async def start(self, folder: Path) -> None:
        """A ConfigNode and a DataNode."""
        first = free_ports(7)
        self._port = first + 2
        self._data = folder / "data" / "datanode"
        (folder / "conf").mkdir()
        (folder / "conf" / "iotdb-system.properties").write_text(_SETTINGS.format(*range(first, first + 7)))
        self._here = threading.local()
        for name, (main, memory) in _NODES.items():
            options = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
            options += [f"-Xmx{memory}", f"-XX:MaxDirectMemorySize={memory}", "-Dfile.encoding=UTF-8"]
            options += [f"-D{name}_HOME={folder}", f"-D{name}_CONF={folder / 'conf'}"]
            path = f"{next(iter(self._jars))}/*"
            command = [str(self._java), *options, "-cp", path, f"org.apache.iotdb.{main}", "-s"]
            environment = {**os.environ, f"{name}_HOME": str(folder), f"{name}_CONF": str(folder / "conf")}
            process = Process(command, folder / f"{name}.log", environment)
            self._started.push_async_callback(process.stop)
            await process.until(partial(listens, first if name == "CONFIGNODE" else self._port))
        await self._do("CREATE DATABASE bench")

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """A table; names are tags, units attributes of them."""
        self._names, self._units = np.array(names, object), np.array(units, object)
        await self._do(load("choose")["iotdb_create"])

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
        """That of this thread."""
        if not hasattr(self._here, "session"):
            client = module("iotdb.table_session", None)
            login = {"username": "root", "password": "root"}  # its documented default, on loopback
            settings = client.TableSessionConfig([f"127.0.0.1:{self._port}"], database="bench", **login)
            self._here.session = client.TableSession(settings)
            self._started.callback(self._here.session.close)
        return self._here.session

    async def seen(self) -> None:
        """What is acknowledged is seen."""

    async def settle(self, before: int) -> None:
        """Memory tables are flushed to TsFiles."""
        await self._do("FLUSH")

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """As a data frame."""
        found = await self._ask("iotdb_raw", channel, first, last)
        return Raw(found[0].astype(np.int64), found[1].astype(float), found[2].astype(np.int32).view(np.uint32))

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """Of statuses that are not Bad."""
        found = await self._ask("iotdb_by_minute", channel, first, last)
        return Minutes(found[0].astype(np.int64), found[1].astype(float))

    async def _ask(self, name: str, channel: int, first: int, last: int) -> list[Any]:
        query = load("choose")[name].format(name=self._names[channel - 1], first=first, last=last)

        def ask() -> list[Any]:
            with self._session().execute_query_statement(query.strip().removesuffix(";")) as answer:
                frame = answer.todf()
                return [frame[column].to_numpy() for column in frame.columns]

        return await asyncio.to_thread(ask)

    async def _do(self, statement: str) -> None:
        text = statement.strip().removesuffix(";")
        await asyncio.to_thread(lambda: self._session().execute_non_query_statement(text))

    async def size(self) -> int:
        """TsFiles and the schema; its logs are trimmed behind."""
        return folder_bytes(self._data / "data", self._data / "system" / "schema")

    async def stop(self) -> None:
        """End both nodes."""
        await self._started.aclose()
