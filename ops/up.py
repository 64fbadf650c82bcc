"""``plantlog up``: make what is missing, start what does not run, wait until it works, say what runs where."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from ingest import processes
from ingest.config import snapshot
from ingest.config.load import load_with_digests
from ingest.config.model import OpcuaSource, Plant, PushSource, Source
from ingest.errors import DatabaseError, OperationError
from ingest.registry import Registry
from ops import database, health, ports, programs, strays
from ops.alone import alone
from ops.database import Database
from ops.deployment import Deployment, Running
from ops.meaning import Choice
from ops.paths import CHECKOUT, EXAMPLE, State
from ops.register import register
from ops.steps import Step, Steps
from ops.supervisor import STARTED, Program, Supervisor, is_collector
from ops.waiting import Progress, ended, until_alive, until_configured, until_ready, wait
from ops.words import count

_GONE_SECONDS = 30.0  # of a supervisor and its processes, once they were told to end


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of ``plantlog up``; None: not given."""

    config: Path | None = None
    channels: int | None = None
    hz: float | None = None
    port: int | None = None
    simulator: bool | None = None
    take_over: bool = False
    choice: Choice = field(default_factory=Choice)  # of tags that mean something else than before


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
                if supervisor.of_this_plantlog():
                    supervisor.update([programs.postgres(state)], others=True)
                supervisor.start_program("postgres")
            step.result = f"{used.where}, {_prepared(used, asked.take_over, supervisor, state, step)}"
            for lack in asyncio.run(used.missing()):
                step.say(lack)
        with steps.step("register sources and channels") as step:
            # A server of our own in the state folder has nobody else's.
            take_over = asked.take_over or used.cluster is not None
            registered = asyncio.run(register(plant, used.dsn("owner"), state, take_over, asked.choice))
            registered.tell(step)
            wanted = _programs(deployment, plant, used, registered.registry, state)
            current = snapshot.save(state.root, deployment.config, digests, plant, registered.versions)
            if not supervisor.of_this_plantlog():
                _carried_over(supervisor, wanted, used, state, step)
            else:
                _hand_over(supervisor, plant, state)
                for what, names in zip(("changed, so started anew", "stopped"), supervisor.update(wanted), strict=True):
                    if names:
                        step.say(f"{what}: {', '.join(names)}")
            deployment.save(state)
            Running(plant.name, plant.health, tuple(health.processes(plant))).save(state)
        if deployment.simulator:
            with steps.step("start the simulator") as step:
                supervisor.start_program("simulator")
                _trust_simulator(plant, state, supervisor)
        progress = Progress(supervisor, state, [program.name for program in wanted])
        with steps.step("start writer, collectors and maintenance") as step:
            for name in health.processes(plant):
                supervisor.start_program(name)
            until_alive(plant, progress)
            # They apply another configuration while they run, told by SIGHUP; all others are started anew.
            following = filter(is_collector, health.processes(plant))
            until_configured(list(following), current.number, plant, progress)
        with steps.step("wait until everything is connected") as step:
            until_ready(plant, progress, step, deployment.simulator)
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
        load_mode = deployment.channels and f" of {count(deployment.channels, 'channel')} at {deployment.hz:g} Hz"
        step.say(f"making the simulator's plant{load_mode or ''} in {state.plant}")
        _export(deployment, state)
    plant, digests = load_with_digests(deployment.config)
    tags = sum(len(source.tags) for source in plant.sources)
    step.result = (
        f"{deployment.config}: plant {plant.name}, {count(len(plant.sources), 'source')}, {count(tags, 'channel')}"
    )
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
    if used.cluster is not None and running and "postgres" not in running and not supervisor.of_this_plantlog():
        _end_other(supervisor, state, step)  # the server that it would start may be gone with its checkout
        running = set()
    wanted = programs.ports(deployment, plant)
    ports.check(port for name, needed in wanted.items() if name not in running for port in needed)
    if "postgres" not in running:
        used.settle_port(step.say)
    if not supervisor.answers():
        supervisor.start([programs.postgres(state)] if used.cluster is not None else [])
    return supervisor


def _prepared(used: Database, take_over: bool, supervisor: Supervisor, state: State, step: Step) -> str:
    """Schema and logins are there; in words. What ended says why it did."""
    try:
        return asyncio.run(used.prepare(take_over, step.say))
    except DatabaseError as error:
        for process in supervisor.processes():
            if process.name == "postgres" and process.state != "RUNNING":
                raise OperationError(f"{error}\n{ended(state, process)}") from error
        raise


def _carried_over(supervisor: Supervisor, wanted: list[Program], used: Database, state: State, step: Step) -> None:
    """End what another checkout of plantlog started, in order, and have a supervisor of ours in its place.

    The schema is brought to this version before, while the old collectors still read: they stop for seconds. What the
    spools hold stays there, and the new writer writes it.
    """
    _end_other(supervisor, state, step)
    supervisor.start(wanted)
    if used.cluster is not None:
        supervisor.start_program("postgres")
        _prepared(used, True, supervisor, state, step)  # it was found to be ours before


def _hand_over(supervisor: Supervisor, plant: Plant, state: State) -> None:
    """Where collectors are about to end, those that stay take over what they read, before."""
    last = Running.load(state)
    runs = {
        process.name for process in supervisor.processes() if process.state in STARTED and is_collector(process.name)
    }
    if last is not None and runs > set(filter(is_collector, health.processes(plant))):
        for name in runs:
            if health.ask(name, last.health):  # else it may not know the signal yet
                supervisor.signal(name, signal.SIGHUP)


def _end_other(supervisor: Supervisor, state: State, step: Step) -> None:
    step.say("what runs is of another plantlog: its processes are stopped, and started from this one")
    supervisor.shutdown()
    strays.wait_until_gone(state, _GONE_SECONDS)
    strays.end(state, step.say)


def _programs(deployment: Deployment, plant: Plant, used: Database, registry: Registry, state: State) -> list[Program]:
    return [
        *([programs.postgres(state)] if used.cluster is not None else []),
        *([programs.simulator(deployment, plant, state)] if deployment.simulator else []),
        *programs.ingest(plant, state),
        programs.maintenance(plant, state),
        programs.viewer(plant, state),
    ]


def _trust_simulator(plant: Plant, state: State, supervisor: Supervisor) -> None:
    """Wait for the simulator's certificate, where the plant is read over a secure channel, and trust it."""
    if not any(isinstance(source, OpcuaSource) and not source.insecure for source in plant.sources):
        return
    certificate = state.simulator / "pki" / "server.der"
    wait(certificate.exists, Progress(supervisor, state, ["simulator"]), lambda: "the simulator makes no certificate")
    state.trusted.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(certificate, state.trusted / "simulator.der")


def _tell(deployment: Deployment, plant: Plant, used: Database, state: State, console: Console) -> None:
    served = " (served by the simulator)" if deployment.simulator else ""
    lines = [
        f"Plant [bold]{plant.name}[/]{served} is being logged; configuration {deployment.config}",
        *(f"  {s.name:<24} {_address(s, plant)}  {count(len(s.tags), 'channel')}" for s in plant.sources),
        f"  {'database':<24} {used.where}  (passwords in {state.root / 'secrets'})",
        *(
            f"  {name:<24} http://{plant.health.host}:{processes.port(name, plant.health)}/health and /metrics"
            for name in health.processes(plant)
        ),
        f"  {'dashboards':<24} http://{plant.viewer.host}:{plant.viewer.port}/",
        f"  {'state and logs':<24} {state.root}",
        "Look: ./plantlog status · ./plantlog alarms · ./plantlog psql · ./plantlog logs -f · stop: ./plantlog down",
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def _address(source: Source, plant: Plant) -> str:
    at = f"http://{plant.push.host}:{plant.push.port}" if isinstance(source, PushSource) else ""
    return at + source.address
