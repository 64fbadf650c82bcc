"""IoTDB's two nodes, as its start scripts start them, which the jars come without."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from lab.bench.choose.adapters.server_process import Process, listens
from ops.ports import free_ports

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


async def start(java: str, jars: Path, folder: Path, started: AsyncExitStack) -> int:
    """A ConfigNode and a DataNode with their data in ``folder``, which ``started`` ends; the port of clients."""
    first = free_ports(7)
    (folder / "conf").mkdir()
    (folder / "conf" / "iotdb-system.properties").write_text(_SETTINGS.format(*range(first, first + 7)))
    for name, (main, memory) in _NODES.items():
        options = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
        options += [f"-Xmx{memory}", f"-XX:MaxDirectMemorySize={memory}", "-Dfile.encoding=UTF-8"]
        options += [f"-D{name}_HOME={folder}", f"-D{name}_CONF={folder / 'conf'}"]
        command = [java, *options, "-cp", f"{jars}/*", f"org.apache.iotdb.{main}", "-s"]
        environment = {**os.environ, f"{name}_HOME": str(folder), f"{name}_CONF": str(folder / "conf")}
        process = Process(command, folder / f"{name}.log", environment)
        started.push_async_callback(process.stop)
        await process.until(partial(listens, first if name == "CONFIGNODE" else first + 2))
    return first + 2
