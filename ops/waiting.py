"""Waiting for processes as long as they get on: a slow machine is no failure, a process that ended is one."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psutil

from ingest.config.model import Plant
from ingest.errors import OperationError
from ops import exits, health
from ops.paths import State
from ops.steps import Step
from ops.supervisor import ProcessState, Supervisor

_LOOK_SECONDS = 0.2
_STILL_SECONDS = 60.0  # nothing moved for so long
_SOURCES_SECONDS = 15.0  # no news of sources that are not ours
_TOLD_SECONDS = 3.0  # no news for so long: say what is waited for
_WORK_SECONDS = 0.5  # of CPU: less is no progress, an idle process has some
_WORK_BYTES = 1024**2  # read and written: likewise
_WORDS = 8  # lines
_NAMED = 3  # of what is waited for


class Progress:
    """Whether some processes get on. Those that work are waited for without end."""

    def __init__(self, supervisor: Supervisor, state: State, names: Sequence[str]) -> None:
        self.supervisor = supervisor
        self._state = state
        self._names = names
        self._pids: dict[str, int] = {}
        self._work: dict[int, tuple[float, int]] = {}  # pid → CPU s and bytes, when it last got on
        self._moved = time.monotonic()

    def moved(self) -> None:
        """Something got on that these processes don't show."""
        self._moved = time.monotonic()

    def check(self) -> None:
        """Raises OperationError where a process has ended."""
        for process in self.supervisor.processes():
            if process.name in self._names:
                self._check(process)

    def waited(self, seconds: float | None = None) -> bool:
        """Whether :meth:`moved` was not called for a long time. Raises OperationError where a process has ended."""
        self.check()
        return time.monotonic() - self._moved > (_STILL_SECONDS if seconds is None else seconds)

    def still(self) -> bool:
        """Whether moreover no process has worked for a long time."""
        for pid in self._pids.values():
            with suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                used, done = process.cpu_times(), process.io_counters()
                work = (used.user + used.system, done.read_chars + done.write_chars)
                before = self._work.setdefault(pid, (-_WORK_SECONDS, 0))
                if work[0] - before[0] >= _WORK_SECONDS or work[1] - before[1] >= _WORK_BYTES:
                    self._work[pid] = work
                    self.moved()
        return self.waited()

    def _check(self, process: ProcessState) -> None:
        if process.pid is not None:
            before = self._pids.setdefault(process.name, process.pid)
            if before == process.pid and process.state in ("STARTING", "RUNNING"):
                return
        elif process.state == "STARTING":
            return
        raise OperationError(ended(self._state, process))


def ended(state: State, process: ProcessState) -> str:
    """How a process ended, and the last it said."""
    how = exits.read(state).get(process.name)
    why = f"ended ({how})" if how is not None else f"does not run ({process.state.lower()} {process.reason})"
    said = exits.last_words(state, process.name, _WORDS)
    return f"{process.name} {why}: see {state.log / f'{process.name}.log'}\n{said}".rstrip()


def wait(until: Callable[[], Any], progress: Progress, what: Callable[[], str]) -> None:
    """Wait until something is true. Raises OperationError where a process has ended, or nothing moves any more."""
    while not until():
        if progress.still():
            raise OperationError(f"{what()}: nothing has moved for {_STILL_SECONDS:.0f} s, see `plantlog logs`")
        time.sleep(_LOOK_SECONDS)


def until_alive(plant: Plant, progress: Progress) -> None:
    """Wait until every process of ours answers."""
    silent = health.processes(plant)

    def all_answer() -> bool:
        silent[:] = [name for name in silent if not health.ask(name, plant.health)]
        return not silent

    wait(all_answer, progress, lambda: f"no answer from {', '.join(silent)}")


def until_configured(names: Sequence[str], configuration: int, plant: Plant, progress: Progress) -> None:
    """Have the processes ``names``, which run, apply the configuration of this number."""
    told: dict[str, int] = {}  # process → when it began

    def applied(name: str) -> bool:
        said = health.ask(name, plant.health)
        if said is None:
            return False
        if told.get(name) != said["since"]:  # in any case: files that options name may be others
            told[name] = said["since"]
            progress.supervisor.signal(name, signal.SIGHUP)
        return bool(said["configuration"] == configuration)

    wait(lambda: all(applied(name) for name in names), progress, lambda: f"{', '.join(names)}: not as configured")


def until_ready(plant: Plant, progress: Progress, step: Step, simulated: bool) -> None:
    """Wait until everything is connected, as long as something gets on; ``simulated``: our simulator is the sources.

    A device that is away must not keep the others from being read: we say so and go on. Raises OperationError where a
    part of the appliance itself is not ready.
    """
    seen: set[str] = set()
    fewest = None
    told = False
    while True:
        ours, theirs = _waiting(plant)
        n = len(ours) + len(theirs)
        if not n:
            return
        if fewest is None or n < fewest or not seen.issuperset((*ours, *theirs)):
            fewest = n
            seen.update(ours, theirs)
            progress.moved()
        if progress.waited(None if ours or simulated else _SOURCES_SECONDS):
            break
        if not told and progress.waited(_TOLD_SECONDS):
            told = True
            more = f"; and {n - _NAMED} more" if n > _NAMED else ""
            step.say(f"waiting for {'; '.join((*ours, *theirs)[:_NAMED])}{more}")
        time.sleep(_LOOK_SECONDS)
    if ours:
        raise OperationError("\n".join(("not everything runs:", *ours, *theirs)))
    step.warn("not every source is; it goes on in the background")
    for reason in theirs:
        step.say(reason)


def _waiting(plant: Plant) -> tuple[list[str], list[str]]:
    """Why our own processes are not ready, and why sources are not."""
    ours: list[str] = []
    theirs: list[str] = []
    for name in health.processes(plant):
        said = health.ask(name, plant.health)
        if said is None:
            ours.append(f"{name} does not answer")
        elif not said["ready"] and "sources" in said:
            theirs += [
                f"source {source['name']} at {source['address']}: {source['state']} {source['reason']}".rstrip()
                for source in said["sources"]
                if source["state"] not in ("connected", "degraded")
            ]
        elif not said["ready"]:
            ours.append(f"{name}: database {said['database']}")
            theirs += [f"{target}: {why}" for target, why in said.get("failing", {}).items()]
    return ours, theirs
