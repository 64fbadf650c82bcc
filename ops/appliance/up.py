"""``plantlog up``: create what is missing, start what is not running, wait until it is ready, print a summary."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import filterfalse
from pathlib import Path

from rich.console import Console

from core.config import processes
from core.config.https import TlsSettings, base_url, viewer_url
from core.config.load import load, load_with_digests
from core.config.model import Plant
from core.config.processes import is_collector, processes_of
from core.config.snapshot import Snapshot, in_force
from core.config.sources import OpcuaSource, PushSource, Source
from core.errors import DatabaseAway, DatabaseError, OperationError
from core.files import folder_lock, remove, write_atomically
from core.formatting import count
from core.paths import CHECKOUT, EXAMPLE, State
from core.users.directory import UserDirectory, closed_viewer
from ops import health
from ops.appliance import database, orphans, programs, refusals, service
from ops.appliance.database import Database
from ops.appliance.plan import Plan
from ops.appliance.readiness import (
    Progress,
    exit_message,
    wait_until,
    wait_until_alive,
    wait_until_configured,
    wait_until_ready,
)
from ops.appliance.registration_record import register_plant, why_database_is_needed
from ops.appliance.steps import Step, Steps
from ops.appliance.supervisor import Program, Supervisor
from ops.backup import repository
from ops.deployment import Deployment, Running, first_config
from ops.postgres.membership import check_appliance
from ops.registration.difference import Difference
from ops.registration.redefined_tags import TagDecisions


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of ``plantlog up``; None: not given."""

    config: Path | None = None
    channels: int | None = None
    hz: float | None = None
    port: int | None = None
    simulator: bool | None = None
    take_over: str | None = None  # an installation
    choice: TagDecisions = field(default_factory=TagDecisions)  # for tags whose meaning changed
    replace_plant: bool = False  # the plant in force, by another one
    plan: Plan | None = None  # what was shown and confirmed; nothing else is applied

    @property
    def expected(self) -> Difference | None:
        """The changes of the plan, which are all that may be made."""
        return None if self.plan is None else self.plan.difference


def up(options: UpOptions, console: Console) -> None:
    """Start the appliance. Safe to run again in any state."""
    state = State.current()
    check_appliance(state)
    steps = Steps(console)
    with new_state_folder(state, console) as undo:
        state.claim()
        deployment = deployment_for(state, options)
        with steps.step("check configuration") as step:
            plant, digests = _check_config(deployment, state, options, step)
            if not state.has_external_database:
                undo.pop_all()
        with steps.step("prepare PostgreSQL") as step:
            db = database.provide(state, step.note, plant)
            for problem in repository.configure(state, db.cluster, plant.backup, step.note):
                step.note(problem)
            step.result = "server of PLANTLOG_DSN" if db.cluster is None else "PostgreSQL 17 with TimescaleDB"
        with steps.step("start supervisor") as step:
            supervisor = _start_supervisor(state, db, deployment, plant, step)
        with steps.step("start database") as step:
            if db.cluster is not None:
                if supervisor.is_own():
                    supervisor.update([programs.postgres(state, plant)], keep_others=True)
                supervisor.start_program("postgres")
            in_force_already = _start_database(db, options.take_over, plant, supervisor, state, step)
            undo.pop_all()
        with steps.step("register sources and channels") as step:
            current = in_force_already or register_plant(
                deployment, plant, digests, state, options.take_over, options.choice, step, options.expected
            )
            if in_force_already is not None:
                step.warn("as they were registered before")
            all_programs = programs.all_programs(deployment, plant, state, own_database=db.cluster is not None)
            _update_programs(supervisor, all_programs, db, plant, state, step)
            deployment.save(state)
            Running(plant.name, plant.health, tuple(processes_of(plant))).save(state)
        collectors = list(filter(is_collector, processes_of(plant)))
        awaited = processes_of(plant) if in_force_already is None else collectors
        watched = [program.name for program in all_programs] if in_force_already is None else collectors
        with _ports_of_others(deployment, plant, supervisor):
            if deployment.simulator:
                with steps.step("start simulator") as step:
                    supervisor.start_program("simulator")
                    for name in filterfalse(is_collector, processes_of(plant)):  # while it makes its certificate
                        supervisor.start_program(name)
                    _trust_simulator(plant, state, supervisor)
            progress = Progress(supervisor, state, watched)
            with steps.step("start writer, collectors and maintenance") as step:
                for name in processes_of(plant):
                    supervisor.start_program(name)
                wait_until_alive(awaited, plant, progress)
                # Collectors apply a new configuration on SIGHUP; all other processes were restarted.
                wait_until_configured(collectors, current.number, plant, progress)
            with steps.step("wait for connections") as step:
                wait_until_ready(awaited, plant, progress, step, deployment.simulator)
    print_summary(deployment, plant, db.where, state, console, database_is_away=in_force_already is not None)
    service.note_absence(state, console)


@contextmanager
def _ports_of_others(deployment: Deployment, plant: Plant, supervisor: Supervisor) -> Iterator[None]:
    """Name the port and who has it, where a process exits because a port was taken after it had been looked at."""
    try:
        yield
    except OperationError:
        if running := supervisor.active():
            programs.check_ports_again(programs.ports(deployment, plant), running)
        raise


def check_start(state: State, options: UpOptions) -> None:
    """Raise PlantlogError if ``up`` would refuse the configuration. Changes nothing."""
    deployment = deployment_for(state, options)
    plant = load(deployment.config)
    refusals.check_plant(state, deployment, plant, replace=options.replace_plant)
    refusals.check_registration(state, plant, options.choice, options.take_over)


@contextmanager
def new_state_folder(state: State, console: Console) -> Iterator[ExitStack]:
    """Hold the lock of the state folder; an error leaves one that was not claimed as it was, with nothing running.

    ``pop_all()`` of what is yielded keeps what was made: from then on, an error is no refusal.
    """
    existed = state.root.exists()
    with state_folder_lock(state, console), ExitStack() as undo:
        if not state.claimed and not Supervisor(state).answers():
            undo.callback(_undo, state, existed, frozenset(state.root.iterdir()))
        yield undo
        undo.pop_all()


def _undo(state: State, existed: bool, before: Collection[Path]) -> None:
    supervisor = Supervisor(state)
    if supervisor.answers():
        supervisor.shutdown()
        orphans.wait_for_exit(state)
    for path in state.root.iterdir():
        if path not in before:
            remove(path)
    if not existed:
        state.root.rmdir()


@contextmanager
def state_folder_lock(state: State, console: Console) -> Iterator[None]:
    """One ``up`` or ``down`` at a time for a state folder."""
    message = "waiting for another plantlog command on this state folder"
    with folder_lock(state.root, lambda: console.print(message, highlight=False)):
        yield


def deployment_for(state: State, options: UpOptions) -> Deployment:
    """The deployment for the options; without any, that of the last ``up``, or the example.

    A simulated plant that is generated again keeps its port.
    """
    last = Deployment.load(state)
    if options.hz is not None and options.channels is None:
        raise OperationError("--hz requires --channels")
    if options.channels is not None or options.port is not None:
        if options.config is not None:
            raise OperationError(
                "--channels and --port are for the simulated plant; with --config, set the ports in the file: "
                "[health] port, [viewer] port, [push] port"
            )
        served = options.simulator is not False
        port = last.port if options.port is None and last is not None else options.port
        return Deployment(state.plant / "plant.toml", served, options.channels, options.hz or 1.0, port)
    if options.config is None and last is not None:
        return last if options.simulator is None else replace(last, simulator=options.simulator)
    chosen = (options.config or first_config()).absolute()
    return Deployment(chosen, chosen == EXAMPLE if options.simulator is None else options.simulator)


def _check_config(deployment: Deployment, state: State, options: UpOptions, step: Step) -> tuple[Plant, dict[str, str]]:
    if deployment.generated:
        size = deployment.channels and f" of {count(deployment.channels, 'channel')} at {deployment.hz:g} Hz"
        step.note(f"generating a simulated plant{size or ''} in {state.plant}; to change it, use a copy and --config")
        _export_simulated(deployment, state)
    plant, digests = load_with_digests(deployment.config)
    refusals.check_plant(state, deployment, plant, replace=options.replace_plant)
    if options.plan is not None:
        options.plan.check(state, digests)
    refusals.check_registration(state, plant, options.choice, options.take_over, options.expected, step.note)
    if (closed := closed_viewer(plant.viewer.host, UserDirectory(state.root).users())) is not None:
        step.note(closed)
    TlsSettings.of(plant).ensure(state.root, all_names=True)
    tags = sum(len(source.tags) for source in plant.sources)
    step.result = (
        f"{deployment.config}: plant {plant.name}, {count(len(plant.sources), 'source')}, {count(tags, 'channel')}"
    )
    if problem := TlsSettings.of(plant).problem():
        step.warn(f"{step.result}; {problem}")
    return plant, digests


def _start_supervisor(state: State, db: Database, deployment: Deployment, plant: Plant, step: Step) -> Supervisor:
    """A running supervisor, without orphaned processes."""
    supervisor = Supervisor(state)
    if not supervisor.answers():
        orphans.end(state, step.note)
    running = supervisor.active()
    if db.cluster is not None and running and "postgres" not in running and not supervisor.is_own():
        _stop_other_version(supervisor, state, step)  # the server that it would start may be gone with its checkout
        running = {}
    if "postgres" not in running:
        others = programs.ports(deployment, plant).values()
        db.ensure_free_port(step.note, {port.port for required in others for port in required})
    if not supervisor.answers():
        supervisor.start([programs.postgres(state, plant)] if db.cluster is not None else [])
    return supervisor


def _start_database(
    db: Database, take_over: str | None, plant: Plant, supervisor: Supervisor, state: State, step: Step
) -> Snapshot | None:
    """Prepare the database. If it is away: the configuration in force, provided that it is the one of ``plant``."""
    try:
        step.result = f"{db.where}, {_prepare_database(db, take_over, plant, supervisor, state, step)}"
    except DatabaseAway as error:
        if reason := why_database_is_needed(state, plant, take_over):
            raise OperationError(f"{error}. `up` cannot start without the database, because {reason}") from error
        step.note(str(error))
        step.note(
            "the configuration is unchanged: collectors start and keep everything in the spool; the writer connects "
            "as soon as the database responds"
        )
        step.warn(f"the database at {db.where} does not respond")
        return in_force(state.root)
    for problem in asyncio.run(db.setting_problems()):
        step.note(problem)
    return None


def _prepare_database(
    db: Database, take_over: str | None, plant: Plant, supervisor: Supervisor, state: State, step: Step
) -> str:
    """Create schema and logins; what was done, as text. If the server exited, the error says why."""
    try:
        return asyncio.run(db.prepare(take_over, step.note, plant))
    except DatabaseError as error:
        for process in supervisor.processes():
            if process.name == "postgres" and process.state != "RUNNING":
                raise OperationError(f"{error}\n{exit_message(state, process)}") from error
        raise


def _update_programs(
    supervisor: Supervisor, all_programs: list[Program], db: Database, plant: Plant, state: State, step: Step
) -> None:
    """Stop programs that changed or are gone."""
    if not supervisor.is_own():
        _replace_other_version(supervisor, all_programs, db, plant, state, step)
        return
    _hand_over_sources(supervisor, plant, state)
    restarted, stopped = supervisor.update(all_programs)
    if restarted:
        step.note(f"restarted (changed): {', '.join(restarted)}")
    if stopped:
        remedy = "; to keep the simulator, add --simulator" if "simulator" in stopped else ""
        step.note(f"stopped (this configuration does not use it): {', '.join(stopped)}{remedy}")


def _replace_other_version(
    supervisor: Supervisor, all_programs: list[Program], db: Database, plant: Plant, state: State, step: Step
) -> None:
    """Stop what another checkout of plantlog started, and start a supervisor of this one.

    The schema is brought to this version before, while the old collectors still read: they stop for seconds. What the
    spools hold stays there, and the new writer writes it.
    """
    _stop_other_version(supervisor, state, step)
    supervisor.start(all_programs)
    if db.cluster is not None:
        supervisor.start_program("postgres")
        _prepare_database(db, None, plant, supervisor, state, step)


def _hand_over_sources(supervisor: Supervisor, plant: Plant, state: State) -> None:
    """Let the remaining collectors take over the sources of those that are about to stop."""
    last = Running.load(state)
    running_collectors = set(filter(is_collector, supervisor.active()))
    if last is not None and running_collectors > set(filter(is_collector, processes_of(plant))):
        for name in running_collectors:
            if health.fetch(name, last.health, state.root):  # else it may not know the signal yet
                supervisor.signal(name, signal.SIGHUP)


def _stop_other_version(supervisor: Supervisor, state: State, step: Step) -> None:
    service.check_none(state)
    step.note("another plantlog version is running; its processes are stopped and started from this one")
    supervisor.shutdown()
    orphans.wait_for_exit(state)
    orphans.end(state, step.note)


def print_summary(
    deployment: Deployment, plant: Plant, database: str, state: State, console: Console, *, database_is_away: bool
) -> None:
    """Sources, addresses and next commands. ``database``: where it is."""
    health_page = base_url(plant, plant.health)
    served = " (simulated)" if deployment.simulator else ""
    away = " does not respond; samples wait in the spool" if database_is_away else ""
    lines = [
        f"Logging plant [bold]{plant.name}[/]{served}; configuration {deployment.config}",
        *(f"  {s.name:<24} {_address(s, plant)}  {count(len(s.tags), 'channel')}" for s in plant.sources),
        f"  {'database':<24} {database}{away}  (passwords in {state.root / 'secrets'})",
        *(
            f"  {name:<24} {health_page}:{processes.port(name, plant.health)}/health and /metrics"
            for name in processes_of(plant)
        ),
        f"  {'dashboards':<24} {viewer_url(plant)}/",
        *_certificate(plant, state),
        f"  {'state and logs':<24} {state.root}",
        "Next: ./plantlog status · ./plantlog alarms · ./plantlog psql · ./plantlog logs -f · stop: ./plantlog down",
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def _certificate(plant: Plant, state: State) -> list[str]:
    file = TlsSettings.of(plant).certificate_file(state.root)
    return [] if file is None else [f"  {'certificate':<24} {file}  (./plantlog admin certificate)"]


def _address(source: Source, plant: Plant) -> str:
    at = f"{base_url(plant, plant.push)}:{plant.push.port}" if isinstance(source, PushSource) else ""
    return at + source.address


def _export_simulated(deployment: Deployment, state: State) -> None:
    """Generate the configuration. Raises OperationError."""
    command = [sys.executable, "-P", "-m", "simulator", "export", str(state.plant), *programs.load_options(deployment)]
    if deployment.port is not None:
        # The control's port comes before the health pages'; the devices have as many ports as they need at the end.
        for name, offset in (("health", 1), ("viewer", 7), ("opcua", 8), ("modbus", 9)):
            command += [f"--{name}-port", str(deployment.port + offset)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise OperationError(f"the simulator cannot generate the plant:\n{run.stdout}{run.stderr}")


def _trust_simulator(plant: Plant, state: State, supervisor: Supervisor) -> None:
    """Wait for the simulator's certificate, if the plant uses a secure channel, and trust it."""
    if not any(isinstance(source, OpcuaSource) and not source.insecure for source in plant.sources):
        return
    certificate = state.simulator / "pki" / "server.der"
    wait_until(
        certificate.exists, Progress(supervisor, state, ["simulator"]), lambda: "no certificate of the simulator"
    )
    state.trusted.mkdir(parents=True, exist_ok=True)
    write_atomically(state.trusted / "simulator.der", certificate.read_bytes())
