"""The processes of an appliance: their commands, and a digest of the settings and code whose change restarts them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import psutil

from core.addresses import OPCUA_PORT
from core.config import processes
from core.config.files import digest
from core.config.model import Plant
from core.config.processes import processes_of
from core.config.settings import settings_of
from core.config.snapshot import in_force
from core.config.sources import PushSource, Source
from core.errors import OperationError
from core.paths import CHECKOUT, State
from ops import health
from ops.appliance.supervisor import Program
from ops.deployment import Deployment
from ops.ports import PortRequirement, check, check_distinct
from ops.postgres.archive import ArchiveSettings
from ops.postgres.binaries import find
from ops.postgres.cluster import ARCHIVE_FILE
from ops.postgres.listening import Listening

# Module, and the packages that it imports
_INGEST = "ingest", "core", "ingest", "schema"
_STARTED_BY = {
    "notifier": ("ops.notifier", "core", "ingest", "ops", "schema"),
    "maintenance": ("ops.maintenance", "core", "history", "ingest", "ops", "schema"),
    "viewer": ("dashboards.viewer", "core", "dashboards", "history", "ingest", "schema"),
}
_OTHER_PORTS = "stop that program, or choose other ports for the simulated plant with up --port"


def postgres(state: State, plant: Plant | None = None, *, planned: bool = False) -> Program:
    """The state folder's own database server; ``plant``: of its appliance.

    ``planned``: as it will be with the plant's [backup], if the repository is accepted.
    """
    archive = ArchiveSettings.load(state.root / "postgres" / ARCHIVE_FILE)
    archives_to = archive.repository if archive is not None and archive.archiving else None
    if planned and plant is not None and plant.backup.repository != (archive and archive.repository):
        archives_to = plant.backup.repository
    settings = [] if archives_to is None else [archives_to.encode()]
    if plant is not None and (listens := Listening.of_plant(plant, state.root)) is not None:
        settings.append(repr(listens).encode())
    environment = _environment(_digest(settings) if settings else "")
    if (binaries := find(state.root)) is not None:
        environment["PLANTLOG_PROGRAMS"] = str(binaries.root)  # it is restarted with those of another version
    command = _python("ops.postgres", "--state", str(state.root))
    return Program("postgres", command, environment, stop_signal="INT", stop_seconds=60)  # INT: fast shutdown


def load_options(deployment: Deployment) -> list[str]:
    """Options of a generated plant for the simulator."""
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


def process(name: str, plant: Plant, state: State) -> Program:
    """A process of plantlog, which is restarted with other settings, other secrets or other code."""
    settings = settings_of(name, plant)
    module, *packages = _STARTED_BY.get(name, _INGEST)
    arguments = [name.removeprefix("collector-")] if module == "ingest" else []
    read = [str(digest(path)).encode() for path in settings.files(state.root)]
    return Program(
        name,
        _python(module, *arguments, "--state", str(state.root)),
        _environment(_digest([settings.model_dump_json().encode(), *read]), *packages),
    )


def all_programs(
    deployment: Deployment, plant: Plant, state: State, *, own_database: bool, planned: bool = False
) -> list[Program]:
    """All processes of the appliance; ``planned``: as of :func:`postgres`."""
    return [
        *([postgres(state, plant, planned=planned)] if own_database else []),
        *([simulator(deployment, plant, state)] if deployment.simulator else []),
        *(process(name, plant, state) for name in processes_of(plant)),
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
        for name in processes_of(plant)
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
        requirements["simulator"] = [
            control,
            *{(requirement.host, requirement.port): requirement for requirement in simulated}.values(),
        ]
    return requirements


def check_ports(
    required: Mapping[str, Sequence[PortRequirement]],
    running: Mapping[str, int | None],
    state: State,
    orphans: Collection[int] = (),
) -> None:
    """Raise OperationError if another program listens where a process is to listen that does not do so yet, or if two
    processes are to listen on one port.

    ``required``: by process, as :func:`ports` returns them; ``running``: processes that run, and their ids;
    ``orphans``: ids of processes that are to end before.
    """
    check_distinct(chain.from_iterable(required.values()))
    check([port for name, listening in required.items() if name not in running for port in listening], orphans)
    last = Deployment.load(state)
    try:
        current = in_force(state.root, tags_of=())
    except OperationError:  # of another version
        return
    if last is None or current is None:
        return
    before = {(port.host, port.port) for listening in ports(last, current.plant).values() for port in listening}
    moved = [port for name in running for port in required.get(name, ()) if (port.host, port.port) not in before]
    check(moved, _with_children(pid for name, pid in running.items() if name != "postgres"))


def check_ports_again(required: Mapping[str, Sequence[PortRequirement]], running: Mapping[str, int | None]) -> None:
    """Raise OperationError if a program has taken a port since :func:`check_ports`, so that a process has exited."""
    check([port for listening in required.values() for port in listening], _with_children(running.values()))


def _with_children(pids: Iterable[int | None]) -> set[int]:
    processes: set[int] = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if pid is not None:
                processes |= {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    return processes


def _simulator_port(source: Source) -> PortRequirement:
    address = _address(source)
    user_of_port = f"the simulator (source {source.name})"
    return PortRequirement(address.hostname or "", address.port or OPCUA_PORT, user_of_port, _OTHER_PORTS)


def _address(source: Source) -> SplitResult:
    return urlsplit(source.address)


def _python(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", *arguments]


def _environment(settings: str = "", *packages: str) -> dict[str, str]:
    """Environment of a process; the supervisor restarts it where any of this has changed."""
    environment = {"PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}
    if settings:
        libraries = (sys.version.encode(), (CHECKOUT / "requirements.lock").read_bytes())
        environment["PLANTLOG_READS"] = _digest((settings.encode(), *libraries, *map(_code, packages)))
    return environment


def code_digest() -> str:
    """Digest of all that ``up`` runs, and that it brings into the database."""
    return _digest(map(_code, ("core", "history", "ingest", "ops", "schema")))


@cache
def _code(package: str) -> bytes:
    """Digest of a package; most processes have the same ones."""
    return _digest(path.read_bytes() for path in sorted((CHECKOUT / package).rglob("*")) if _is_code(path)).encode()


def _is_code(path: Path) -> bool:
    return path.suffix in (".py", ".sql", ".json", ".js", ".css", ".html") and path.is_file()


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]
