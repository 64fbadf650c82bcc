"""Servers that are not plantlog's own, as child processes with a truth of their own: installed or built on first use.

Each is started as ``PORT FOLDER PREFIX COUNT``, OPC UA servers with the milliseconds between two values of a node
behind that, devices with options of their own. It writes what it publishes, from its own data and before anybody can
see it, into ``FOLDER/truth`` in the form of the simulator's (``simulator.truth``), so that ``simulator.compare`` and
``published`` read it. It prints ``ready``, obeys the lines of its standard input, answers each with ``done``, and ends
with it: ``add`` (one more channel), ``rate MS`` (0: silence), ``burst N`` (N values of each node at once); devices know
``add``, and libmodbus ``delay MS`` and ``close 1``; the simulator knows none. With the options ``serial=DEVICE unit=N``
libmodbus is one unit on a serial line.

Channel i of an OPC UA server is ``PREFIX/Double0``, then ``Float0``, ``Int320``, ``Boolean0``, ``String0``, ``Double1``
…, and its node id ends in ``s=Double0`` …; every round has another value, and each third one of the numbers 7 is
Uncertain, of node-opcua's also each of the numbers 20. Channel i of a device is ``PREFIX/unit1/c0`` …, float32 in
holding register 700 + 2 i, another value with each answer.

node-opcua's and open62541's servers also have an array ``s=Array`` of four Doubles, without a truth: r, r + 0.25,
r + 0.5 and r + 0.75 in round r. open62541's has a constant ``s=ScalarBoolean`` … of each scalar built-in type, and the
command ``events N``: N events of the Server object at once, of the severities 1 to N.

OPC UA servers have a structure ``s=Drive``, without a truth: On and Mode (a Boolean, an enumeration: r modulo 2 and 3),
Motor (a structure: Speed, r, and Name, "step r"), Torque (r + 0.5, only in odd rounds), Temperatures (as the array),
Extra (a union: Text, as the name, in odd rounds, else Number, r). Their array ``s=Drives`` has a drive of this round
and one of the next, their ``s=Matrix`` 2 × 3 Doubles: r, r + 0.125, … r + 0.625.

The servers ``conditions`` (node-opcua; only variables ``s=Double0`` … in ``s=Area``), ``milo`` and
``open62541-conditions`` (built with conditions, without security) have two conditions of each Double: Limit0 and, at
higher values, Hot0; and a log of their events, ``FOLDER/events.jsonl``. Commands: ``high K``, ``hot K`` and
``normal K`` (value of Double K), ``simple N`` (N events), ``required`` (RefreshRequiredEvent).
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from asyncua import Client
from pydantic import TypeAdapter

from core.config.sources import OpcuaTag
from core.paths import CHECKOUT
from simulator.truth import read_truth
from tests import certificates
from tests.peer_builds import device, milo, node, open62541, open62541_conditions
from tests.ports import free_port

_SECONDS = 120  # to start or to do what it is told
FIRST_REGISTER = 700
NODE_KINDS = {"Double": "analog", "Float": "analog", "Int32": "analog", "Boolean": "discrete", "String": "text"}


@dataclass(frozen=True, slots=True)
class Kind:
    """``command`` installs or builds it where needed; ``node``: what an OPC UA server's node ids begin with."""

    command: Callable[[], list[str]]
    node: str = ""


KINDS: Mapping[str, Kind] = {
    "milo": Kind(milo, "ns=2;s="),
    "open62541": Kind(open62541, "ns=1;s="),
    "open62541-conditions": Kind(open62541_conditions, "ns=1;s="),
    "node-opcua": Kind(lambda: node("opcua-server.js"), "ns=1;s="),
    "conditions": Kind(lambda: node("conditions-server.js"), "ns=1;s="),
    "libmodbus": Kind(device),
    "modbus-serial": Kind(lambda: node("modbus-server.js")),
    "simulator": Kind(lambda: _simulated("opcua"), "ns=2;s=simulator."),
    "simulator-plc": Kind(lambda: _simulated("modbus")),
}


def _simulated(via: str) -> list[str]:
    return [sys.executable, "-P", "-m", "tests.simulator_peer", via]


def listens(port: int) -> bool:
    """Return whether a port of 127.0.0.1 has a listener."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def opcua_tags(name: str, count: int) -> list[OpcuaTag]:
    """The first channels of a server, without its prefix."""
    nodes = [(f"{list(NODE_KINDS)[i % 5]}{i // 5}", list(NODE_KINDS.values())[i % 5]) for i in range(count)]
    rows = [{"name": n, "address": KINDS[name].node + n, "kind": kind} for n, kind in nodes]
    return TypeAdapter(list[OpcuaTag]).validate_python(rows)


class Peer:
    """A server that can be commanded, killed and started again."""

    def __init__(
        self,
        name: str,
        folder: Path,
        count: int,
        *options: str,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``folder`` is its own; ``name`` is of :data:`KINDS` and the prefix of its channels."""
        self.name = name
        self.folder = folder
        self.port = port or free_port()
        self._arguments = (str(self.port), str(folder), name, str(count), *options)
        self._environment = environment or {}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def truth(self) -> Path:
        """Ground truth for ``simulator.compare``."""
        return self.folder / "truth"

    @property
    def pid(self) -> int:
        """Id of its process."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when it serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if KINDS[self.name].node and not (self.folder / "pki" / "cert.der").exists():
            certificates.make(self.folder / "pki")
        command = await asyncio.to_thread(KINDS[self.name].command)
        with (self.folder / "peer.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*command, *self._arguments),
                cwd=CHECKOUT,
                env={**os.environ, "PYTHONPATH": str(CHECKOUT), **self._environment},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        await self._said("ready")

    async def tell(self, command: str) -> None:
        """Returns when it has done that."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        await self._said("done")

    async def kill(self) -> None:
        """SIGKILL."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._process._transport.close()  # type: ignore[attr-defined]  # else its pipe outlives the loop
        self._process = None

    async def certificate(self) -> bytes:
        """An OPC UA server's (DER), as it shows it to whoever asks for its endpoints."""
        client = Client(f"opc.tcp://127.0.0.1:{self.port}", timeout=_SECONDS)
        endpoints = await client.connect_and_get_server_endpoints()
        return next(bytes(e.ServerCertificate) for e in endpoints if e.ServerCertificate)

    def published(self) -> dict[tuple[str, int], tuple[object, int]]:
        """(name without prefix, µs) → (value, status); numbers as float."""
        truth = read_truth(self.truth)
        numbers = {
            (truth.names[row["tag"]].partition("/")[2], int(row["time"])): (float(row["value"]), int(row["status"]))
            for rows in truth.rows.values()
            for row in rows
        }
        texts = {(t.name.partition("/")[2], t.time): (t.text, t.status) for t in truth.texts}
        return {**numbers, **texts}

    async def _said(self, word: str) -> None:
        assert self._process is not None
        output = self._process.stdout
        assert output is not None
        async with asyncio.timeout(_SECONDS):
            line = (await output.readline()).decode().strip()
        log = self.folder / "peer.log"
        assert line == word, f"{self.name} said {line!r}: {log.read_text(errors='replace')[-2000:]}"


@asynccontextmanager
async def peer(name: str, folder: Path, count: int, *options: str) -> AsyncIterator[Peer]:
    """Running inside the block."""
    running = Peer(name, folder, count, *options)
    try:
        await running.start()
        yield running
    finally:
        await running.kill()
