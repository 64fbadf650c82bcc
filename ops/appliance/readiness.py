"""Wait until processes are ready, as long as they make progress. A slow machine is not a failure; an exit is."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psutil

from core.config.model import Plant
from core.errors import OperationError
from core.paths import State
from core.source_states import UP
from ops import health
from ops.appliance.steps import Step
from ops.appliance.supervisor import ProcessState, Supervisor, last_lines, read_exits

_POLL_SECONDS = 0.2
_STALL_SECONDS = 60.0  # without progress, after which a start has failed
_SOURCES_SECONDS = 15.0  # without progress of sources that are not the simulator's
_NOTIFY_SECONDS = 3.0  # without progress, after which a line says what the start waits for
_LOG_LINES = 8  # lines
_MAX_REASONS = 3  # of what is waited for
_CPU_SECONDS = 0.5  # less is no work, an idle process has some
_BYTES = 1024**2  # read and written: likewise


class Progress:
    """Progress of processes. Busy ones are waited for without a limit."""

    def __init__(self, supervisor: Supervisor, state: State, names: Sequence[str]) -> None:
        self.supervisor = supervisor
        self.state = state
        self._names = names
        self._pids: dict[str, int] = {}
        self._work = WorkMeter()
        self._last_progress = time.monotonic()

    def note_progress(self) -> None:
        """Note progress that these processes do not show."""
        self._last_progress = time.monotonic()

    def check(self) -> None:
        """Raise OperationError if a process has exited."""
        for process in self.supervisor.processes():
            if process.name in self._names:
                self._check(process)

    def timed_out(self, seconds: float | None = None) -> bool:
        """Return whether there was no progress for a long time. Raises OperationError if a process has exited."""
        self.check()
        return time.monotonic() - self._last_progress > (_STALL_SECONDS if seconds is None else seconds)

    def stalled(self) -> bool:
        """Return whether, in addition, no process has used CPU or I/O for a long time."""
        for pid in self._pids.values():
            if self._work.has_worked(pid):
                self.note_progress()
        return self.timed_out()

    def _check(self, process: ProcessState) -> None:
        if process.pid is not None:
            before = self._pids.setdefault(process.name, process.pid)
            if before == process.pid and process.state in ("STARTING", "RUNNING"):
                return
        elif process.state == "STARTING":
            return
        raise OperationError(exit_message(self.state, process))


def exit_message(state: State, process: ProcessState) -> str:
    """Message that a process exited, with its last log lines."""
    exit_record = read_exits(state).get(process.name)
    reason = (
        f"exited ({exit_record})"
        if exit_record is not None
        else f"is not running ({process.state.lower()} {process.reason})"
    )
    report = last_lines(state, process.name, _LOG_LINES)
    return f"{process.name} {reason}: see {state.log / f'{process.name}.log'}\n{report}".rstrip()


def wait_until(until: Callable[[], Any], progress: Progress, waiting_for: Callable[[], str]) -> None:
    """Wait until a condition is true. Raises OperationError if a process exits or nothing makes progress."""
    while not until():
        if progress.stalled():
            raise OperationError(f"{waiting_for()}: no progress for {_STALL_SECONDS:.0f} s; see `plantlog logs`")
        time.sleep(_POLL_SECONDS)


def wait_until_alive(names: Sequence[str], plant: Plant, progress: Progress) -> None:
    """Wait until the processes ``names`` respond."""
    unanswered = list(names)

    def all_answer() -> bool:
        unanswered[:] = [name for name in unanswered if not health.fetch(name, plant.health, progress.state.root)]
        return not unanswered

    wait_until(all_answer, progress, lambda: f"no response from {', '.join(unanswered)}")


def wait_until_configured(names: Sequence[str], configuration: int, plant: Plant, progress: Progress) -> None:
    """Make the running processes ``names`` apply the configuration with this number."""
    notified: dict[str, int] = {}  # process → when it began

    def applied(name: str) -> bool:
        report = health.fetch(name, plant.health, progress.state.root)
        if report is None:
            return False
        if notified.get(name) != report["since"]:  # in any case: files that options name may be others
            notified[name] = report["since"]
            progress.supervisor.signal(name, signal.SIGHUP)
        return bool(report["configuration"] == configuration)

    wait_until(
        lambda: all(applied(n) for n in names), progress, lambda: f"{', '.join(names)}: configuration not applied"
    )


def wait_until_ready(names: Sequence[str], plant: Plant, progress: Progress, step: Step, simulated: bool) -> None:
    """Wait until the processes ``names`` are connected, as long as there is progress.

    ``simulated``: the simulator is the source.
    A missing device, mail server or webhook does not block the others: it is reported once an attempt has failed, and
    startup continues. Raises OperationError if a plantlog process is not ready.
    """
    reasons_shown: set[str] = set()
    down: set[str] = set()
    fewest_reasons = None
    notified = False
    while True:
        own_reasons, source_reasons, untried = _not_ready(names, plant, progress.state, down)
        n = len(own_reasons) + len(source_reasons)
        if not n:
            return
        if (
            fewest_reasons is None
            or n < fewest_reasons
            or not reasons_shown.issuperset((*own_reasons, *source_reasons))
        ):
            fewest_reasons = n
            reasons_shown.update(own_reasons, source_reasons)
            progress.note_progress()
        if not own_reasons and not untried and not simulated:
            progress.check()
            break
        if progress.timed_out(None if own_reasons or simulated else _SOURCES_SECONDS):
            break
        if not notified and progress.timed_out(_NOTIFY_SECONDS):
            notified = True
            more = f"; and {n - _MAX_REASONS} more" if n > _MAX_REASONS else ""
            step.note(f"waiting for {'; '.join((*own_reasons, *source_reasons)[:_MAX_REASONS])}{more}")
        time.sleep(_POLL_SECONDS)
    if own_reasons:
        raise OperationError("\n".join(("some processes are not ready:", *own_reasons, *source_reasons)))
    step.warn("some sources or receivers are not connected yet; plantlog keeps trying")
    for reason in source_reasons:
        step.note(reason)


def _not_ready(
    names: Sequence[str], plant: Plant, state: State, down: set[str]
) -> tuple[list[str], list[str], set[str]]:
    """Reasons why plantlog processes are not ready, and why sources, or receivers of notifications, are not; and the
    sources that no attempt has reached or missed yet.

    Those that an attempt has missed are added to ``down``: the next attempt may last long.
    """
    own_reasons: list[str] = []
    source_reasons: list[str] = []
    untried: set[str] = set()
    for name in names:
        report = health.fetch(name, plant.health, state.root)
        if report is None:
            own_reasons.append(f"{name} does not respond")
        elif not report["ready"] and "sources" in report:
            down |= {source["name"] for source in report["sources"] if source["state"] == "disconnected"}
            untried |= {source["name"] for source in report["sources"] if source["state"] not in UP} - down
            source_reasons += [
                ": ".join(
                    filter(None, (f"source {source['name']} at {source['address']}", source["state"], source["reason"]))
                )
                for source in report["sources"]
                if source["state"] not in UP
            ]
        elif not report["ready"]:
            failing = report.get("failing", {})
            source_reasons += [f"{name}: {target}: {reason}" for target, reason in failing.items()]
            if not failing or report["database"] != "connected":
                own_reasons.append(f"{name}: database {report['database']}")
    return own_reasons, source_reasons, untried


class WorkMeter:
    """Meter of the work of processes, from the CPU that they have used."""

    def __init__(self) -> None:
        self._used: dict[int, tuple[float, int]] = {}  # pid → CPU s and bytes

    def has_worked(self, pid: int) -> bool:
        """Return whether a process is new, or has used CPU since this was last true."""
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            times, done = process.cpu_times(), process.io_counters()
            used = (times.user + times.system, done.read_chars + done.write_chars)
            before = self._used.setdefault(pid, (-_CPU_SECONDS, 0))
            if used[0] - before[0] >= _CPU_SECONDS or used[1] - before[1] >= _BYTES:
                self._used[pid] = used
                return True
        return False
