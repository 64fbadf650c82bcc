"""``plantlog up``: make what is missing, start what does not run, wait until it works, say what runs where."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ingest.config import snapshot
from ingest.config.load import load_with_digests
from ingest.config.model import OpcuaSource, Plant
from ingest.errors import OperationError
from ingest.registry import Registry
from ops import database, health, ports, programs, strays
from ops.alone import alone
from ops.database import Database
from ops.deployment import Deployment, Running
from ops.paths import CHECKOUT, EXAMPLE, State
from ops.register import register
from ops.steps import Step, Steps
from ops.supervisor import STARTED, Program, Supervisor

_CERTIFICATE_SECONDS = 60.0
_ALIVE_SECONDS = 30.0
_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of ``plantlog up``; None: not given."""

    config: Path | None = None
    channels: int | None = None
    hz: float | None = None
    port: int | None = None
    simulator: bool | None = None
    take_over: bool = False


def up(asked: Asked, console: Console) -> None:
    """Bring the appliance up. Safe to run again, whatever runs, stopped or was killed."""
    state = State.current()
    state.claim()
    steps = Steps(console)
    with exclusive(state, console):
        deployment = choose(state, asked)
        with steps.step("check the configuration") as step:
            plant, digests = _checked(deployment, state, step)
        with steps.step("provide the database's programs and cluster") as step:
            used = database.provide(state, step.say)
            step.result = "server of PLANTLOG_DSN" if used.cluster is None else "PostgreSQL 17 with TimescaleDB"
        with steps.step("start the supervisor") as step:
            supervisor = _supervised(state, used, deployment, plant, step)
        with steps.step("start the database") as step:
            if used.cluster is not None:
                supervisor.start_program("postgres")
            step.result = f"{used.where}, {asyncio.run(used.prepare(asked.take_over))}"
        with steps.step("register sources and channels") as step:
            # A server of our own in the state folder has nobody else's.
            take_over = asked.take_over or used.cluster is not None
            registered = asyncio.run(register(plant, used.dsn("owner"), state, take_over))
            registered.tell(step)
            wanted = _programs(deployment, plant, used, registered.registry, state)
            snapshot.save(state.root, deployment.config, digests, plant)
            changed = [name for name in supervisor.update(wanted) if name != "postgres"]
            if changed:
                step.say(f"changed, so started anew: {', '.join(changed)}")
            deployment.save(state)
            Running(plant.name, plant.health, tuple(health.processes(plant))).save(state)
        if deployment.simulator:
            with steps.step("start the simulator") as step:
                supervisor.start_program("simulator")
                _trust_simulator(plant, state, supervisor)
        with steps.step("start writer, collectors and maintenance") as step:
            for name in health.processes(plant):
                supervisor.start_program(name)
            _until_alive(plant, supervisor, state)
        with steps.step("wait until everything is connected") as step:
            _until_ready(plant, step)
    _tell(deployment, plant, used, state, console)


@contextmanager
def exclusive(state: State, console: Console) -> Iterator[None]:
    """One ``up`` or ``down`` at a time for a state folder."""
    said = "another plantlog command works on this state folder: waiting for it"
    with alone(state.root, lambda: console.print(said, highlight=False)):
        yield


def choose(state: State, asked: Asked) -> Deployment:
    """What was asked for now; no plant was named: the same as the last time, or the example."""
    if asked.hz is not None and asked.channels is None:
        raise OperationError("--hz goes with --channels")
    if asked.channels is not None or asked.port is not None:
        if asked.config is not None:
            raise OperationError("--channels and --port make a plant of their own: leave --config away")
        served = asked.simulator is not False
        return Deployment(state.plant / "plant.toml", served, asked.channels, asked.hz or 1.0, asked.port)
    last = Deployment.load(state)
    if asked.config is None and last is not None:
        return last if asked.simulator is None else replace(last, simulator=asked.simulator)
    chosen = (asked.config or EXAMPLE).absolute()
    return Deployment(chosen, chosen == EXAMPLE if asked.simulator is None else asked.simulator)


def _checked(deployment: Deployment, state: State, step: Step) -> tuple[Plant, dict[str, str]]:
    if deployment.generated:
        load_mode = deployment.channels and f" of {deployment.channels:,} channels at {deployment.hz:g} Hz"
        step.say(f"making the simulator's plant{load_mode or ''} in {state.plant}")
        _export(deployment, state)
    plant, digests = load_with_digests(deployment.config)
    tags = sum(len(source.tags) for source in plant.sources)
    step.result = f"{deployment.config}: plant {plant.name}, {len(plant.sources)} sources, {tags:,} channels"
    return plant, digests


def _export(deployment: Deployment, state: State) -> None:
    command = [sys.executable, "-P", "-m", "simulator", "export", str(state.plant), *programs.load_options(deployment)]
    if deployment.port is not None:
        # The control's port comes before the health pages'; the devices have as many ports as they need at the end.
        for name, offset in (("health", 1), ("viewer", 7), ("opcua", 8), ("modbus", 9)):
            command += [f"--{name}-port", str(deployment.port + offset)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise OperationError(f"the simulator can't make that plant:\n{run.stdout}{run.stderr}")


def _supervised(state: State, used: Database, deployment: Deployment, plant: Plant, step: Step) -> Supervisor:
    """A supervisor that answers, and no process of ours that it does not know."""
    supervisor = Supervisor(state)
    if not supervisor.answers():
        strays.end(state, step.say)
    running = {p.name for p in supervisor.processes() if p.state in STARTED} if supervisor.answers() else set()
    wanted = programs.ports(deployment, plant)
    ports.check(port for name, needed in wanted.items() if name not in running for port in needed)
    if "postgres" not in running:
        used.settle_port(step.say)
    if not supervisor.answers():
        supervisor.start([programs.postgres(state)] if used.cluster is not None else [])
    return supervisor


def _programs(deployment: Deployment, plant: Plant, used: Database, registry: Registry, state: State) -> list[Program]:
    return [
        *([programs.postgres(state)] if used.cluster is not None else []),
        *([programs.simulator(deployment, plant, state)] if deployment.simulator else []),
        *programs.ingest(plant, registry, state),
        programs.maintenance(plant, state),
        programs.viewer(plant, state),
    ]


def _trust_simulator(plant: Plant, state: State, supervisor: Supervisor) -> None:
    """Wait for the simulator's certificate, where the plant is read over a secure channel, and trust it."""
    if not any(isinstance(source, OpcuaSource) and not source.insecure for source in plant.sources):
        return
    certificate = state.simulator / "pki" / "server.der"
    _wait(certificate.exists, _CERTIFICATE_SECONDS, lambda: _failure(supervisor, ["simulator"], state))
    state.trusted.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(certificate, state.trusted / "simulator.der")


def _until_alive(plant: Plant, supervisor: Supervisor, state: State) -> None:
    names = health.processes(plant)
    _wait(
        lambda: all(health.ask(name, plant.health) for name in names),
        _ALIVE_SECONDS,
        lambda: _failure(supervisor, names, state),
    )


def _failure(supervisor: Supervisor, names: list[str], state: State) -> str:
    """Which process does not run, and the last it said."""
    for process in supervisor.processes():
        if process.name in names and process.state != "RUNNING":
            log = state.log / f"{process.name}.log"
            said = log.read_text(errors="replace").splitlines()[-8:] if log.exists() else []
            return "\n".join((f"{process.name} does not run ({process.state} {process.reason}): {log}", *said))
    return f"{', '.join(names)} did not answer in time: see `plantlog logs`"


def _wait(until: Callable[[], Any], seconds: float, why: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        if time.monotonic() > deadline:
            raise OperationError(why())
        time.sleep(_LOOK_SECONDS)


def _until_ready(plant: Plant, step: Step) -> None:
    """A device that is away must not keep the others from being read: after a while we say so and go on."""
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        waiting = [reason for name in health.processes(plant) for reason in _not_ready(name, plant)]
        if not waiting:
            return
        if time.monotonic() > deadline:
            step.result = "not everything is; it goes on in the background"
            for reason in waiting:
                step.say(reason)
            return
        time.sleep(_LOOK_SECONDS)


def _not_ready(name: str, plant: Plant) -> list[str]:
    said = health.ask(name, plant.health)
    if said is None:
        return [f"{name} does not answer"]
    if said["ready"]:
        return []
    if "database" in said:
        return [f"{name}: database {said['database']}", *(f"{t}: {why}" for t, why in said.get("failing", {}).items())]
    return [
        f"source {source['name']} at {source['address']}: {source['state']} {source['reason']}".rstrip()
        for source in said["sources"]
        if source["state"] not in ("connected", "degraded")
    ]


def _tell(deployment: Deployment, plant: Plant, used: Database, state: State, console: Console) -> None:
    served = " (served by the simulator)" if deployment.simulator else ""
    lines = [
        f"Plant [bold]{plant.name}[/]{served} is being logged; configuration {deployment.config}",
        *(f"  {source.name:<24} {source.address}  {len(source.tags):,} channels" for source in plant.sources),
        f"  {'database':<24} {used.where}  (passwords in {state.root / 'secrets'})",
        *(
            f"  {name:<24} http://{plant.health.host}:{health.port(name, plant.health)}/health and /metrics"
            for name in health.processes(plant)
        ),
        f"  {'dashboards':<24} http://{plant.viewer.host}:{plant.viewer.port}/",
        f"  {'state and logs':<24} {state.root}",
        "Look: ./plantlog status · ./plantlog alarms · ./plantlog psql · ./plantlog logs -f · stop: ./plantlog down",
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
