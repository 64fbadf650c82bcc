"""The processes of an appliance: their commands, and the settings and code whose change restarts them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import psutil

from ingest.addresses import OPCUA_PORT
from ingest.config import https, processes
from ingest.config.files import named_files
from ingest.config.model import Plant, ServerOptions
from ingest.config.snapshot import in_force
from ingest.config.sources import PushSource, Source
from ingest.errors import OperationError
from ops import health
from ops.appliance.supervisor import Program
from ops.deployment import Deployment
from ops.paths import CHECKOUT, State
from ops.ports import PortRequirement, check, check_distinct
from ops.postgres.archive import Archive
from ops.postgres.binaries import shared_root_file_system
from ops.postgres.cluster import ARCHIVE_FILE
from ops.postgres.listening import Listening

_OTHER_PORTS = "stop that program, or choose other ports for the simulated plant with up --port"


def postgres(state: State, plant: Plant | None = None) -> Program:
    """The state folder's own database server; ``plant``: of its appliance."""
    rootfs = shared_root_file_system(state.root)
    archive = Archive.load(state.root / "postgres" / ARCHIVE_FILE)
    settings = [archive.repository.encode()] if archive is not None and archive.archiving else []
    if plant is not None and (listens := Listening.of(plant, state.root)) is not None:
        settings.append(repr(listens).encode())
    digest = _digest(settings) if settings else ""
    environment = _environment(digest) | ({"PLANTLOG_ROOTFS": str(rootfs)} if rootfs else {})
    command = _python("ops.postgres", "--state", str(state.root))
    return Program("postgres", command, environment, stop_signal="INT", stop_seconds=60)  # INT: fast shutdown


def load_options(deployment: Deployment) -> list[str]:
    """What the simulator is told of a generated plant."""
    if deployment.channels is None:
        return []
    return ["--channels", str(deployment.channels), "--hz", f"{deployment.hz:g}"]


def simulator(deployment: Deployment, plant: Plant, state: State) -> Program:
    """The simulator that serves the plant."""
    opcua = [_address(source).port or OPCUA_PORT for source in plant.opcua_sources()]
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
    collector_settings = [plant.spool.model_dump(), plant.alarms.model_dump()]
    push = plant.push.model_dump(include={"host", "port", "plain_http"})
    settings_of: dict[str, list[Any]] = {
        "writer": [plant.writer.model_dump(), plant.redundancy.member, state.dsn_file("ingest").read_text()],
        "collector-opcua": collector_settings,
        "collector-modbus": collector_settings,
        "collector-push": [*collector_settings, push, _tls(plant, plant.push), state.dsn_file("ingest").read_text()],
        "notifier": [_notifier_settings(plant), plant.redundancy.member, state.dsn_file("ingest").read_text()],
    }
    return [
        Program(
            name,
            _python("ingest", name.removeprefix("collector-"), "--state", str(state.root)),
            _environment(_digest([json.dumps([_health(plant), *settings]).encode()]), "ingest", "schema"),
        )
        for name in health.processes(plant)
        if (settings := settings_of.get(processes.base_name(name))) is not None
    ]


def maintenance(plant: Plant, state: State) -> Program:
    """The process that keeps the database in shape, and reports the certificate of all servers.

    It reads its options from the database: only its health page and that certificate are told.
    """
    options = plant.model_dump(include={"storage", "sealing", "retention"})
    shown = None if https.certificate_file(plant, state.root) is None else plant.tls.model_dump(mode="json")
    settings = json.dumps([_health(plant), options, processes.collectors(plant, "modbus"), shown])
    environment = _environment(
        _digest([settings.encode(), *(state.dsn_file(role).read_bytes() for role in ("maintenance", "owner"))]),
        *("ingest", "schema", "ops"),
    )
    command = _python("ops.maintenance", "--state", str(state.root))
    return Program("maintenance", command, environment)


def viewer(plant: Plant, state: State) -> Program:
    """The process that shows the dashboards."""
    settings = json.dumps([_health(plant), plant.viewer.model_dump(mode="json"), _tls(plant, plant.viewer)])
    command = _python("dashboards.viewer", "--state", str(state.root))
    digest = _digest([settings.encode(), state.dsn_file("reader").read_bytes()])
    return Program("viewer", command, _environment(digest, "ingest", "schema", "dashboards"))


def wanted(deployment: Deployment, plant: Plant, state: State, *, own_database: bool) -> list[Program]:
    """All processes of the appliance."""
    return [
        *([postgres(state, plant)] if own_database else []),
        *([simulator(deployment, plant, state)] if deployment.simulator else []),
        *ingest(plant, state),
        maintenance(plant, state),
        viewer(plant, state),
    ]


def ports(deployment: Deployment, plant: Plant) -> dict[str, list[PortRequirement]]:
    """Process → the ports that it listens on."""
    requirements = {
        name: [
            PortRequirement(
                plant.health.host,
                processes.port(name, plant.health),
                name,
                f"choose another port in [health] of {deployment.config}, or use up --port for the simulated plant",
            )
        ]
        for name in health.processes(plant)
    }
    if plant.push_sources():
        option = f"choose another port in [push] of {deployment.config}"
        requirements["collector-push"].append(
            PortRequirement(plant.push.host, plant.push.port, "collector-push", option)
        )
    option = f"choose another port in [viewer] of {deployment.config}, or use up --port for the simulated plant"
    requirements["viewer"].append(PortRequirement(plant.viewer.host, plant.viewer.port, "viewer", option))
    if deployment.simulator:
        control = PortRequirement(
            plant.health.host, health.control_port(plant.health), "the simulator's control", _OTHER_PORTS
        )
        simulated = map(_simulator_port, (source for source in plant.sources if not isinstance(source, PushSource)))
        requirements["simulator"] = [control, *{(one.host, one.port): one for one in simulated}.values()]
    return requirements


def check_ports(
    wanted: Mapping[str, Sequence[PortRequirement]], running: Mapping[str, int | None], state: State
) -> None:
    """Raise OperationError if another program listens where a process is to listen that does not do so yet, or if two
    processes are to listen on one port.

    ``wanted``: of :func:`ports`; ``running``: processes that run, and their ids.
    """
    check_distinct(chain.from_iterable(wanted.values()))
    starting = [port for name, required in wanted.items() if name not in running for port in required]
    check(starting)
    last = Deployment.load(state)
    try:
        current = in_force(state.root, tags_of=())
    except OperationError:  # of another version
        return
    if last is None or current is None:
        return
    before = {(port.host, port.port) for required in ports(last, current.plant).values() for port in required}
    moved = [port for name in running for port in wanted.get(name, ()) if (port.host, port.port) not in before]
    ours: set[int] = set()
    for pid in (pid for name, pid in running.items() if pid is not None and name != "postgres" and moved):
        with suppress(psutil.NoSuchProcess):
            ours |= {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    check(moved, ours)


def _simulator_port(source: Source) -> PortRequirement:
    address = _address(source)
    what = f"the simulator (source {source.name})"
    return PortRequirement(address.hostname or "", address.port or OPCUA_PORT, what, _OTHER_PORTS)


def _address(source: Source) -> SplitResult:
    return urlsplit(source.address)


def _python(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", *arguments]


def _environment(digest: str = "", *packages: str) -> dict[str, str]:
    """What a process needs; the supervisor restarts it where any of this has changed."""
    environment = {"PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}
    if digest:
        libraries = (sys.version.encode(), (CHECKOUT / "requirements.lock").read_bytes())
        settings_of = (digest.encode(), *libraries, *_code(packages))
        environment["PLANTLOG_READS"] = _digest(settings_of)
    return environment


def code_digest() -> str:
    """Digest of all that ``up`` runs, and that it brings into the database."""
    return _digest(_code(("ingest", "schema", "ops")))


def _code(packages: Iterable[str]) -> Iterator[bytes]:
    for package in packages:
        yield from (path.read_bytes() for path in sorted((CHECKOUT / package).rglob("*")) if _is_code(path))


def _is_code(path: Path) -> bool:
    return path.suffix in (".py", ".sql", ".json", ".js", ".css", ".html") and path.is_file()


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def _health(plant: Plant) -> list[Any]:
    """The options of the health page."""
    return [plant.health.model_dump(), _tls(plant, plant.health)]


def _tls(plant: Plant, server: ServerOptions) -> Any:
    """Those of its certificate, if the server has one. New contents of the files need no restart."""
    return plant.tls.model_dump(mode="json") if server.scheme == "https" else None


def _notifier_settings(plant: Plant) -> Any:
    """All that the notifier reads of the configuration and the files that it names."""
    options = plant.notify
    if options is None:
        return None
    return [plant.name, options.model_dump(mode="json"), _digest(path.read_bytes() for path in named_files(options))]
