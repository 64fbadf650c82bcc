"""``plantlog down``: stop collectors first, drain the spools, then stop the rest."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import typer
from rich.console import Console

from core.errors import OperationError
from core.files import remove
from core.formatting import count
from core.paths import State
from core.terminal import confirm
from core.timestamps import now_us
from ingest.spool.member import read_member
from ops.appliance import orphans, service
from ops.appliance.steps import Step, Steps
from ops.appliance.supervisor import ACTIVE_STATES, Supervisor, stop_stages
from ops.appliance.up import state_folder_lock
from ops.deployment import Running
from ops.registration.register import spooled_rows

_DRAIN_TIMEOUT = 60.0
_STUCK_SECONDS = 10.0  # without one row written: the database is away


def down(wipe: bool, yes: bool, console: Console) -> None:
    """Stop everything; with ``wipe`` also delete the state folder. Raises NotConfirmed, with nothing stopped."""
    state = State.current()
    if not state.root.exists():
        console.print(f"{state.root} does not exist; nothing to stop", highlight=False)
        return
    if not state.claimed:
        raise OperationError(f"{state.root} is not a plantlog state folder")
    if wipe:
        _check_mounts(state)
    if wipe and not yes:
        question = f"Delete {state.root} with all samples, logs and secrets?"
        confirm(sys.stdin.isatty, partial(typer.confirm, question, err=True), "deleted")
    service.stop(state, Steps(console))
    installed = service.installed(state)
    with state_folder_lock(state, console):
        _stop(state, Steps(console))
        if wipe:
            _wipe(state, Steps(console))
    if wipe and installed is not None:
        console.print(
            f"{installed.unit} is still there: `plantlog admin service uninstall --name {installed.name}` removes it",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


def _stop(state: State, steps: Steps) -> None:
    supervisor = Supervisor(state)
    if supervisor.answers():
        names = [process.name for process in supervisor.processes() if process.state in ACTIVE_STATES]
        collectors, *later = stop_stages(names)
        with steps.step("stop collectors"):
            supervisor.stop_programs(*collectors)
        with steps.step("drain spools") as step:
            step.result = _drain(state, "writer" in names, step)
        for stage in filter(None, later):
            with steps.step(f"stop {', '.join(stage)}"):
                supervisor.stop_programs(*stage)
        with steps.step("stop supervisor"):
            supervisor.shutdown()
            orphans.wait_for_exit(state)
        if (last := Running.load(state)) is not None:
            replace(last, stopped_at=now_us()).save(state)
    if orphans.find(state):
        with steps.step("stop orphaned processes") as step:
            orphans.end(state, step.note)
    else:
        steps.console.print("all processes are stopped", highlight=False)


def _drain(state: State, writer_runs: bool, step: Step) -> str:
    """Wait until the writer has drained the spools, as long as it makes progress."""
    rows, unreadable = spooled_rows(state.spool)
    started = last_progress = time.monotonic()
    while rows and writer_runs:
        time.sleep(0.05)
        remaining, unreadable = spooled_rows(state.spool)
        now = time.monotonic()
        if remaining < rows:
            last_progress = now
        rows = remaining
        if now - started > _DRAIN_TIMEOUT or now - last_progress > _STUCK_SECONDS:
            break
    for name in unreadable:
        step.note(f"{state.spool / name} cannot be read; the next `up` will repair it")
    if not rows:
        return "" if unreadable else "empty"
    left_in = f"{count(rows, 'row')} left in {state.spool}"
    if read_member(state.spool) is None:
        return f"{left_in}; the next `up` will write them"
    return f"{left_in}; the other member of the pair writes what it has, too, and the next `up` the rest"


def _check_mounts(state: State) -> None:
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    mounted_below = [path for path in mounted if Path(path).is_relative_to(state.root) and Path(path) != state.root]
    if mounted_below:
        raise OperationError(f"{mounted_below[0]} is a mount point: unmount it first, or its content would be deleted")


def _wipe(state: State, steps: Steps) -> None:
    with steps.step("delete state folder") as step:
        _check_mounts(state)  # again: it took a while
        external = not (state.root / "postgres" / "cluster").exists() and state.dsn_file("owner").exists()
        for path in sorted(state.root.iterdir(), key=lambda path: path.name == "plantlog-state"):
            remove(path)
        with suppress(PermissionError):  # as in /var/lib, where folders are root's: it stays, and is empty
            state.root.rmdir()
        step.result = str(state.root)
        if external:
            step.note("the database of PLANTLOG_DSN still has the schema plant; drop it there if you do not need it")
