"""``plantlog down``: stop in the order of the flow, so that what was read reaches the database."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import typer
from rich.console import Console

from ingest.errors import OperationError
from ops import strays
from ops.paths import State
from ops.register import spooled_rows
from ops.steps import Step, Steps
from ops.supervisor import STARTED, Supervisor, is_collector, stop_order
from ops.up import exclusive
from ops.words import count

_DRAIN_SECONDS = 60.0
_STUCK_SECONDS = 10.0  # without one row written: the database is away
_GONE_SECONDS = 30.0


def down(wipe: bool, yes: bool, console: Console) -> None:
    """Stop everything; with ``wipe`` also remove the state folder."""
    state = State.current()
    if not state.root.exists():
        console.print(f"{state.root} does not exist: nothing to stop", highlight=False)
        return
    if not state.claimed:
        raise OperationError(f"{state.root} is not a plantlog state folder (no `plantlog up` has made it)")
    if wipe and not yes:
        typer.confirm(f"Remove {state.root} with all samples, logs and secrets?", abort=True, err=True)
    with exclusive(state, console):
        _stop(state, Steps(console))
        if wipe:
            _wipe(state, Steps(console))


def _stop(state: State, steps: Steps) -> None:
    supervisor = Supervisor(state)
    if supervisor.answers():
        names = [process.name for process in supervisor.processes() if process.state in STARTED]
        with steps.step("stop the collectors") as step:
            for name in filter(is_collector, names):
                supervisor.stop_program(name)
        with steps.step("write what the spool holds") as step:
            step.result = _drain(state, "writer" in names, step)
        for name in stop_order(names):
            if not is_collector(name):
                with steps.step(f"stop {name}"):
                    supervisor.stop_program(name)
        with steps.step("stop the supervisor"):
            supervisor.shutdown()
            strays.wait_until_gone(state, _GONE_SECONDS)
    if strays.find(state):
        with steps.step("end what a killed supervisor left") as step:
            strays.end(state, step.say)
    else:
        steps.console.print("nothing of this state folder runs any more", highlight=False)


def _drain(state: State, writing: bool, step: Step) -> str:
    """Wait until the writer has emptied the spools, as long as it gets on."""
    rows, unreadable = spooled_rows(state.spool)
    started = moved = time.monotonic()
    while rows and writing:
        time.sleep(0.05)
        left, unreadable = spooled_rows(state.spool)
        now = time.monotonic()
        if left < rows:
            moved = now
        rows = left
        if now - started > _DRAIN_SECONDS or now - moved > _STUCK_SECONDS:
            break
    for name in unreadable:
        step.say(f"{state.spool / name} can't be read: it is repaired when the next `up` opens it")
    if not rows:
        return "" if unreadable else "it is empty"
    return f"{count(rows, 'row')} left in {state.spool}, durable; the next `up` writes what is there"


def _wipe(state: State, steps: Steps) -> None:
    with steps.step("remove the state folder") as step:
        mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        inside = [path for path in mounted if Path(path).is_relative_to(state.root) and Path(path) != state.root]
        if inside:
            raise OperationError(f"{inside[0]} is a mount point: unmount it first, or its content would be removed")
        given = not (state.root / "postgres" / "cluster").exists() and state.dsn_file("owner").exists()
        for path in sorted(state.root.iterdir(), key=lambda path: path.name == "plantlog-state"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        state.root.rmdir()
        step.result = str(state.root)
        if given:
            step.say("the database of PLANTLOG_DSN keeps its schema plant: drop it there where it is not wanted")
