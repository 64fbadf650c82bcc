"""``plantlog admin service run``: run the appliance in the foreground, and tell the service manager how it is."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

from core.config.processes import is_collector
from core.errors import OperationError, PlantlogError
from core.formatting import count
from core.paths import State
from core.source_states import UP
from core.terminal import Console
from ops import health
from ops.appliance.down import down
from ops.appliance.readiness import WorkMeter
from ops.appliance.service import attend
from ops.appliance.supervisor import ProcessState, Supervisor
from ops.appliance.up import UpOptions, check_start, up
from ops.deployment import Running

_CHECK_SECONDS = 5.0
_STUCK_SECONDS = 120.0  # neither an answer nor work for so long
_SEND_SECONDS = 5.0
_EXTEND_SECONDS = 15.0  # between two messages
_EXTEND_BY = "EXTEND_TIMEOUT_USEC=90000000"  # longer than a loaded machine may stop a thread


def run(name: str) -> None:
    """Start the appliance, watch it, and stop it on SIGTERM. Raises PlantlogError where it can't be run."""
    faulthandler.enable()  # the watchdog's SIGABRT
    manager = ServiceManager.take()
    state, console = State.current(), Console()
    supervisor = Supervisor(state)
    if not (supervisor.answers() and _is_ours(supervisor)):  # before one that was started elsewhere is stopped
        with manager.extending():
            check_start(state, UpOptions())
    state.claim()
    stop = _Stop()
    with attend(state, name):
        try:
            signal.signal(signal.SIGTERM, stop)
            manager.send("STATUS=starting")
            with suppress(KeyboardInterrupt), stop.expected():
                with manager.extending():
                    problem = _start(state, console)
                _watch(state, manager, console, problem, stop)
            console.print("asked to stop")
            manager.send("READY=1")  # for systemd, an end before that is a failure, after which it starts again
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            manager.send("STOPPING=1", "STATUS=stopping")
            with manager.extending():
                down(wipe=False, yes=False, console=console)


class _Stop:
    """Handler of SIGTERM. It ends a wait at once, and `up` when it is done: interrupted, `up` may wait for ever."""

    def __init__(self) -> None:
        self.requested = False
        self._waiting = False

    def __call__(self, _: int, __: FrameType | None) -> None:
        self.requested = True
        if self._waiting:
            raise KeyboardInterrupt

    def sleep(self, seconds: float) -> None:
        """Wait, unless it is asked to stop. Raises KeyboardInterrupt when it is."""
        self._waiting = True
        if self.requested:
            raise KeyboardInterrupt
        time.sleep(seconds)
        self._waiting = False

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Suppress errors while it is asked to stop: they are no failures."""
        try:
            yield
        except PlantlogError:
            if not self.requested:
                raise


def _start(state: State, console: Console) -> str:
    """Bring the appliance up. Returns what failed though the collectors run: an end would lose what they collect."""
    supervisor = Supervisor(state)
    if supervisor.answers() and not _is_ours(supervisor):
        console.print("the appliance was started outside of this service: it is stopped first", highlight=False)
        down(wipe=False, yes=False, console=console)
    try:
        up(UpOptions(), console)
    except PlantlogError as error:
        if not supervisor.answers() or not any(is_collector(p.name) and p.pid for p in supervisor.processes()):
            raise
        console.print(f"the collectors run, but `up` failed: {error}", highlight=False, markup=False, soft_wrap=True)
        return str(error).splitlines()[0]
    return ""


def _is_ours(supervisor: Supervisor) -> bool:
    """Return whether the supervisor is in the control group of this process: the service's settings hold for it."""
    try:
        return Path(f"/proc/{supervisor.pid()}/cgroup").read_text() == Path("/proc/self/cgroup").read_text()
    except FileNotFoundError:
        return False


def _watch(state: State, manager: ServiceManager, console: Console, problem: str, stop: _Stop) -> None:
    """Tell the manager again and again that all is well. Raises OperationError when the supervisor is gone."""
    interval = min(_CHECK_SECONDS, (manager.watchdog_seconds or 2 * _CHECK_SECONDS) / 2)
    supervisor, check = Supervisor(state), StuckProcesses()
    ready = "READY=1"
    while not stop.requested:
        if not supervisor.answers():
            raise OperationError(f"the supervisor is gone: see {state.log / 'supervisord.log'}")
        if not _is_ours(supervisor):
            raise OperationError("the supervisor was started outside of this service")
        processes = supervisor.processes()
        reports = _reports(state, processes)
        manager.send(*filter(None, (ready, "WATCHDOG=1", f"STATUS={_status(processes, reports, problem)}")))
        ready = ""
        for process in check.find(processes, reports):
            console.print(f"{process.name} (process {process.pid}) is stuck: it is killed and restarted")
            supervisor.signal(process.name, signal.SIGKILL)
        stop.sleep(interval)


def _reports(state: State, processes: list[ProcessState]) -> dict[str, dict[str, Any] | None]:
    """Process that runs and has a health page → its report; None where it does not answer."""
    running = Running.load(state)
    if running is None:
        return {}
    active = {process.name for process in processes if process.pid}
    return {name: health.fetch(name, running.health, state.root) for name in running.processes if name in active}


def _status(processes: list[ProcessState], reports: dict[str, dict[str, Any] | None], problem: str) -> str:
    """State of the appliance in a line."""
    not_running = [process.name for process in processes if process.state != "RUNNING"]
    silent = [name for name, report in reports.items() if report is None]
    sources = [source for report in reports.values() if report for source in report.get("sources", ())]
    connected = sum(source["state"] in UP for source in sources)
    parts = (
        f"{len(processes) - len(not_running)} of {len(processes)} processes run",
        f"{connected} of {count(len(sources), 'source')} connected",
        *([f"not running: {', '.join(not_running)}"] if not_running else ()),
        *([f"no answer from {', '.join(silent)}"] if silent else ()),
        *([f"up failed: {problem}"] if problem else ()),
    )
    return "; ".join(parts)


class StuckProcesses:
    """Finds processes that neither answer nor work. One that waits for a database or a source answers."""

    def __init__(self, seconds: float = _STUCK_SECONDS) -> None:
        self._seconds = seconds
        self._work = WorkMeter()
        self._well: dict[int, float] = {}  # pid → when it last answered or worked, monotonic

    def find(self, processes: list[ProcessState], reports: dict[str, dict[str, Any] | None]) -> list[ProcessState]:
        """Find processes that are stuck."""
        now = time.monotonic()
        before, self._well = self._well, {}
        for process in processes:
            if process.pid is not None and process.name in reports:
                well = reports[process.name] is not None or self._work.has_worked(process.pid)
                self._well[process.pid] = now if well else before.get(process.pid, now)
        return [p for p in processes if p.pid in self._well and now - self._well[p.pid] > self._seconds]


class ServiceManager:
    """The service manager of this process. Without one, messages go nowhere."""

    def __init__(self, address: str, watchdog_seconds: float | None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds  # None: it expects no WATCHDOG=1

    @classmethod
    def take(cls) -> Self:
        """Make it of the environment's variables, and remove these: they are not for processes started here."""
        address, pid, usec = (
            os.environ.pop(f"{name}", "") for name in ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
        )
        watched = usec.isdigit() and pid in ("", str(os.getpid()))
        return cls(address, int(usec) / 1e6 if watched else None)

    def send(self, *assignments: str) -> None:
        """Send assignments such as ``READY=1``. A manager that does not take them is no failure of ours."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
                client.settimeout(_SEND_SECONDS)
                client.connect(self._address)
                client.sendall("\n".join(assignments).encode())

    @contextmanager
    def extending(self) -> Iterator[None]:
        """Inside the block, the time-outs of start, stop and watchdog do not expire while this process runs."""
        ended = threading.Event()

        def extend() -> None:
            while not ended.is_set():
                self.send(_EXTEND_BY, "WATCHDOG=1")
                ended.wait(_EXTEND_SECONDS)

        thread = threading.Thread(target=extend, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
