"""Processes of this state folder that no supervisor looks after: what a SIGKILL of the supervisor leaves behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from ingest.errors import OperationError
from ops.paths import State

_STOP_SECONDS = 20.0
_KILL_SECONDS = 5.0


def find(state: State) -> dict[str, list[psutil.Process]]:
    """Name → processes that a supervisor of this state folder started, and supervisors themselves.

    They carry PLANTLOG_STATE and PLANTLOG_PROCESS in their environment; the shell of somebody who only set
    PLANTLOG_STATE does not.
    """
    found: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            environment = process.environ()
            if environment.get("PLANTLOG_STATE") == str(state.root) and "PLANTLOG_PROCESS" in environment:
                found.setdefault(environment["PLANTLOG_PROCESS"], []).append(process)
    return found


def end(state: State, say: Callable[[str], None]) -> None:
    """End all of them: supervisors first, or they would start the others again."""
    strays = find(state)
    order = sorted(strays, key=lambda name: (name != "supervisord", name == "postgres", name))
    for name in order:
        # SIGINT: PostgreSQL's fast shutdown, which does not wait for sessions to end by themselves.
        number = signal.SIGINT if name == "postgres" else signal.SIGTERM
        pids = ", ".join(str(process.pid) for process in strays[name])
        say(f"ending {name} (process {pids}), which nobody looks after")
        _end(name, strays[name], number)


def _end(name: str, processes: list[psutil.Process], number: signal.Signals) -> None:
    for kind, seconds in ((number, _STOP_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(kind)
        deadline = time.monotonic() + seconds
        while any(_runs(process) for process in processes):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        else:
            return
    raise OperationError(f"{name} (process {processes[0].pid}) does not end, not even by SIGKILL: look at it by hand")


def _runs(process: psutil.Process) -> bool:
    """A zombie, which only waits for its parent to notice, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(state: State, seconds: float) -> bool:
    """Whether the processes are gone within a time."""
    deadline = time.monotonic() + seconds
    while find(state):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
