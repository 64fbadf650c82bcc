"""Orphaned processes of a state folder, as a SIGKILL of the supervisor leaves them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from core.errors import OperationError
from core.paths import State

_STOP_SECONDS = 20.0
_KILL_SECONDS = 5.0
_EXIT_SECONDS = 30.0


def find(state: State) -> dict[str, list[psutil.Process]]:
    """Name → processes started by a supervisor of this state folder, and the supervisors.

    They carry PLANTLOG_STATE and PLANTLOG_PROCESS in their environment; the shell of somebody who only set
    PLANTLOG_STATE does not.
    """
    by_name: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            environment = process.environ()
            if environment.get("PLANTLOG_STATE") == str(state.root) and "PLANTLOG_PROCESS" in environment:
                by_name.setdefault(environment["PLANTLOG_PROCESS"], []).append(process)
    return by_name


def end(state: State, progress: Callable[[str], None]) -> None:
    """Stop all of them, supervisors first, because they restart the others."""
    processes_by_name = find(state)
    order = sorted(processes_by_name, key=lambda name: (name != "supervisord", name == "postgres", name))
    for name in order:
        # SIGINT: PostgreSQL's fast shutdown, which does not wait for sessions to end by themselves.
        first_signal = signal.SIGINT if name == "postgres" else signal.SIGTERM
        pids = ", ".join(str(process.pid) for process in processes_by_name[name])
        progress(f"stopping orphaned {name} (process {pids})")
        _end(name, processes_by_name[name], first_signal)


def _end(name: str, processes: list[psutil.Process], first_signal: signal.Signals) -> None:
    for signal_number, seconds in ((first_signal, _STOP_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal_number)
        deadline = time.monotonic() + seconds
        while any(runs(process) for process in processes):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        else:
            return
    raise OperationError(f"{name} (process {processes[0].pid}) does not terminate, even after SIGKILL")


def runs(process: psutil.Process) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for_exit(state: State) -> None:
    """Wait for some time until the processes, which were told to end, have ended."""
    deadline = time.monotonic() + _EXIT_SECONDS
    while find(state) and time.monotonic() <= deadline:
        time.sleep(0.05)
