"""The plants that chaos reads: the simulator under load, or a server that is not ours, as processes of their own.

Each keeps its ground truth in the simulator's form, and can be killed, suspended and started anew.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from asyncua import Client

from core.errors import OperationError
from core.paths import CHECKOUT
from simulator.export import export
from simulator.plants import LoadPlant, opcua_channels

_HOST = "127.0.0.1"
_START_SECONDS = 120.0
_TRUTH_BYTES = 2**40  # everything is compared in the end
_HISTORY = 300  # values of a node that the simulator remembers
# Found out soon, tried again soon: a fault of seconds is to be over seconds later.
OPCUA = 'time_out = "2s"\nbackoff_max = "2s"\nkeep_alive = "2s"'
_MODBUS = 'backoff_max = "2s"'


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the plant: those of its relays, and its own."""

    opcua_relay: int
    opcua: int
    modbus_relay: int
    modbus: int
    control: int
    viewer: int
    health: int  # and as many behind it as processes have


class PlantProcess(ABC):
    """A plant that is served by a child process."""

    has_modbus: bool

    def __init__(self, folder: Path, ports: Ports) -> None:
        self.folder = folder
        self.truth = folder / "truth"
        self._ports = ports
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Id of the process that runs."""
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def configure(self, config: Path) -> None:
        """Write the part of plant.toml that names its sources, and their tag lists, into that folder."""

    async def certificate(self) -> bytes | None:
        """Certificate of the server (DER), which an operator would trust; None: it has none."""
        return None

    @abstractmethod
    async def start(self) -> None:
        """Start; returns when it serves. Raises OperationError where it does not."""

    async def fail(self, fault: str, target: str, seconds: float, value: float | None) -> None:
        """Tell it to fail. Raises OperationError where it can't be told."""
        raise OperationError(f"this plant does not support {fault}")

    async def kill(self) -> None:
        """Kill the server by SIGKILL."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _start_error(self, log: Path) -> OperationError:
        last_lines = log.read_text(errors="replace").splitlines()[-8:] if log.exists() else []
        return OperationError("\n".join(("the plant did not start:", *last_lines)))


class Simulated(PlantProcess):
    """The simulator, with a load of its own."""

    def __init__(self, folder: Path, ports: Ports, channels: int, hz: float) -> None:
        super().__init__(folder, ports)
        self._channels, self._hz = channels, hz
        self.has_modbus = opcua_channels(channels) < channels

    def configure(self, config: Path) -> None:
        """Configure it as the simulator exports it, at the ports of the relays."""
        plant = LoadPlant(self._channels, self._hz)
        ports = (self._ports.opcua_relay, self._ports.modbus_relay)
        export(
            plant, config, _HOST, *ports, secure=False, health_port=self._ports.health, viewer_port=self._ports.viewer
        )
        path = config / "plant.toml"
        text = path.read_text().replace('kind = "opcua"', f'kind = "opcua"\n{OPCUA}')
        path.write_text(text.replace('kind = "modbus"', f'kind = "modbus"\n{_MODBUS}'))

    async def start(self) -> None:
        """Returns when its control answers and its server listens."""
        log = self.folder.parent / "simulator.log"
        load = ("--channels", str(self._channels), "--hz", f"{self._hz:g}", "--history", str(_HISTORY))
        truth = ("--truth-bytes", str(_TRUTH_BYTES))
        ports = {"control": self._ports.control, "opcua": self._ports.opcua, "modbus": self._ports.modbus}
        with log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "simulator", "run", "--state", str(self.folder), *load, *truth),
                *(part for name, port in ports.items() for part in (f"--{name}-port", str(port))),
                cwd=CHECKOUT,
                env={"PYTHONPATH": str(CHECKOUT)},
                stdout=output,
                stderr=output,
            )
        async with asyncio.timeout(_START_SECONDS):
            while not await _listens(self._ports.opcua):
                if self._process.returncode is not None:
                    raise self._start_error(log)
                await asyncio.sleep(0.1)

    async def fail(self, fault: str, target: str, seconds: float, value: float | None) -> None:
        """Inject a fault into the simulator, through its control API."""
        payload = {"target": target, "fault": fault, "seconds": seconds, "value": value}
        url = f"http://{_HOST}:{self._ports.control}/fault"
        async with aiohttp.ClientSession() as session, session.post(url, json=payload) as answer:
            if answer.status != 200:
                raise OperationError(f"fault {fault} on {target}: {await answer.text()}")


_PEERS = CHECKOUT / "tests" / "peers"
_NODE_MS = 200  # between two values of a node
_KINDS = {"Double": "analog", "Float": "analog", "Int32": "analog", "Boolean": "discrete", "String": "text"}
_NODES_PER_KIND = 20  # nodes of a kind


class NodeOpcua(PlantProcess):
    """node-opcua's server over a secured channel: 100 nodes, five new values of each a second."""

    has_modbus = False

    def __init__(self, folder: Path, ports: Ports) -> None:
        super().__init__(folder, ports)
        self._names = [f"{kind}{i}" for kind in _KINDS for i in range(_NODES_PER_KIND)]

    def configure(self, config: Path) -> None:
        """One source, with all nodes."""
        (config / "tags").mkdir(parents=True, exist_ok=True)
        lines = [f"node/{name},ns=1;s={name},{_kind(name)}" for name in self._names]
        (config / "tags" / "opcua.csv").write_text("\n".join(("name,address,kind", *lines)) + "\n")
        address = f"opc.tcp://{_HOST}:{self._ports.opcua_relay}"
        # Its certificate names the machine, not the address that the wire is at.
        accept = 'accept = ["wrong-host"]'
        source = f'[[source]]\nname = "node-opcua"\nkind = "opcua"\naddress = "{address}"\n{accept}\n{OPCUA}'
        head = f'[plant]\nname = "node"\n[health]\nport = {self._ports.health}\n[viewer]\nport = {self._ports.viewer}\n'
        # Sampled faster than it publishes, or values are replaced before they are seen.
        sampling = 'publishing_interval = "500ms"\nsampling_interval = "50ms"\nqueue_size = 1000'
        (config / "plant.toml").write_text(f'{head}\n{source}\n{sampling}\ntags = "tags/opcua.csv"\n')

    async def start(self) -> None:
        """Returns when it says that it is ready."""
        if shutil.which("node") is None or not (_PEERS / "node_modules").exists():
            raise OperationError(f"node-opcua is not installed: run `npm ci --ignore-scripts` in {_PEERS}")
        log = self.folder.parent / "node-opcua.log"
        self.folder.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *("node", "opcua-server.js", str(self._ports.opcua), str(self.folder)),
                *("node", str(len(self._names)), str(_NODE_MS)),
                cwd=_PEERS,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        output = self._process.stdout
        assert output is not None
        async with asyncio.timeout(_START_SECONDS):
            while (line := await output.readline()).strip() != b"ready":
                if not line:
                    raise self._start_error(log)

    async def certificate(self) -> bytes | None:
        """Certificate that it shows to whoever asks for its endpoints."""
        endpoints = await Client(f"opc.tcp://{_HOST}:{self._ports.opcua}").connect_and_get_server_endpoints()
        return next(bytes(e.ServerCertificate) for e in endpoints if e.ServerCertificate)


def _kind(name: str) -> str:
    """The channel kind of a node's name."""
    return next(kind for prefix, kind in _KINDS.items() if name.startswith(prefix))


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(_HOST, port)
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True
