"""The processes of an appliance: what each runs, and what must change for it to be started anew."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ingest import processes
from ingest.config.files import named
from ingest.config.model import Plant, PushSource, Source
from ops import health
from ops.deployment import Deployment
from ops.paths import CHECKOUT, State
from ops.ports import Wanted
from ops.supervisor import Program

_OPCUA_PORT = 4840  # of an address without one (OPC 10000-6, 7.2)
_OTHER_PORTS = "end that, or choose other ports for the simulator's plant with up --port"


def postgres(state: State) -> Program:
    """The state folder's own database server."""
    rootfs = os.environ.get("PLANTLOG_ROOTFS")
    environment = _environment() | ({"PLANTLOG_ROOTFS": rootfs} if rootfs else {})
    command = _python("ops.postgres", "--state", str(state.root))
    return Program("postgres", command, environment, stop_signal="INT", stop_seconds=60)  # INT: fast shutdown


def load_options(deployment: Deployment) -> list[str]:
    """What the simulator is told of a generated plant."""
    if deployment.channels is None:
        return []
    return ["--channels", str(deployment.channels), "--hz", f"{deployment.hz:g}"]


def simulator(deployment: Deployment, plant: Plant, state: State) -> Program:
    """The simulator that serves the plant."""
    opcua = [_address(source).port or _OPCUA_PORT for source in plant.opcua_sources()]
    modbus = [_address(source).port or 0 for source in plant.modbus_sources()]
    command = _python(
        *(
            "simulator",
            "run",
            "--state",
            str(state.simulator),
            "--control-port",
            str(health.control_port(plant.health)),
        ),
        *(("--opcua-port", str(opcua[0])) if opcua else ()),
        *(("--modbus-port", str(min(modbus))) if modbus else ()),
        *load_options(deployment),
    )
    return Program("simulator", command, _environment(_digest([]), "simulator"))


def ingest(plant: Plant, state: State) -> list[Program]:
    """Writer and collectors, in the order in which they start."""
    collected = [plant.spool.model_dump(), plant.alarms.model_dump()]
    read: dict[str, list[Any]] = {
        "writer": [plant.writer.model_dump(), state.dsn_file("ingest").read_text()],
        "collector-opcua": collected,
        "collector-modbus": collected,
        "collector-push": [*collected, plant.push.host, plant.push.port, state.dsn_file("ingest").read_text()],
        "notifier": [_read_by_notifier(plant), state.dsn_file("ingest").read_text()],
    }
    return [
        Program(
            name,
            _python("ingest", name.removeprefix("collector-"), "--state", str(state.root)),
            _environment(_digest([json.dumps([plant.health.model_dump(), *said]).encode()]), "ingest", "schema"),
        )
        for name in health.processes(plant)
        if (said := read.get(processes.first_of(name))) is not None
    ]


def maintenance(plant: Plant, state: State) -> Program:
    """The process that keeps the database in shape. It reads its options from there: only its health page is told."""
    options = plant.model_dump(include={"storage", "sealing", "retention"})
    said = json.dumps([plant.health.model_dump(), options, processes.collectors(plant, "modbus")])
    environment = _environment(
        _digest([said.encode(), *(state.dsn_file(role).read_bytes() for role in ("maintenance", "owner"))]),
        *("ingest", "schema", "ops/maintenance", "ops/evidence"),
    )
    command = _python("ops.maintenance", "--state", str(state.root))
    return Program("maintenance", command, environment)


def viewer(plant: Plant, state: State) -> Program:
    """The process that shows the dashboards."""
    said = json.dumps([plant.health.model_dump(), plant.viewer.model_dump(mode="json")])
    secrets = [path.read_bytes() for path in (state.dsn_file("reader"), plant.viewer.token_file) if path is not None]
    command = _python("dashboards.viewer", "--state", str(state.root))
    return Program("viewer", command, _environment(_digest([said.encode(), *secrets]), "ingest", "dashboards"))


def ports(deployment: Deployment, plant: Plant) -> dict[str, list[Wanted]]:
    """Process → the ports that it listens on."""
    wanted = {
        name: [
            Wanted(
                plant.health.host,
                processes.port(name, plant.health),
                name,
                f"choose another port under [health] in {deployment.config}, or up --port for the simulator's plant",
            )
        ]
        for name in health.processes(plant)
    }
    if plant.push_sources():
        option = f"choose another port under [push] in {deployment.config}"
        wanted["collector-push"].append(Wanted(plant.push.host, plant.push.port, "collector-push", option))
    option = f"choose another port under [viewer] in {deployment.config}, or up --port for the simulator's plant"
    wanted["viewer"].append(Wanted(plant.viewer.host, plant.viewer.port, "viewer", option))
    if deployment.simulator:
        control = Wanted(plant.health.host, health.control_port(plant.health), "the simulator's control", _OTHER_PORTS)
        wanted["simulator"] = [
            control,
            *(_served(source) for source in plant.sources if not isinstance(source, PushSource)),
        ]
    return wanted


def _served(source: Source) -> Wanted:
    address = _address(source)
    what = f"the simulator (source {source.name})"
    return Wanted(address.hostname or "", address.port or _OPCUA_PORT, what, _OTHER_PORTS)


def _address(source: Source) -> SplitResult:
    return urlsplit(source.address)


def _python(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", *arguments]


def _environment(digest: str = "", *packages: str) -> dict[str, str]:
    """What a process needs; the supervisor restarts it where any of this has changed."""
    code = [path for package in packages for path in sorted((CHECKOUT / package).rglob("*")) if _is_code(path)]
    environment = {"PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}
    if digest:
        libraries = (sys.version.encode(), (CHECKOUT / "requirements.lock").read_bytes())
        read = (digest.encode(), *libraries, *(path.read_bytes() for path in code))
        environment["PLANTLOG_READS"] = _digest(read)
    return environment


def _is_code(path: Path) -> bool:
    return path.suffix in (".py", ".sql", ".json", ".js", ".css", ".html") and path.is_file()


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def _read_by_notifier(plant: Plant) -> Any:
    """All that the notifier reads of the configuration and the files that it names."""
    options = plant.notify
    if options is None:
        return None
    return [plant.name, options.model_dump(mode="json"), _digest(path.read_bytes() for path in named(options))]
