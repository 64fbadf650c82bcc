"""Process supervision by supervisord (http://supervisord.org): its configuration, and a client of its Unix socket."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from supervisor.xmlrpc import Faults, SupervisorTransport, UnixStreamHTTPConnection

from core.config.processes import is_collector
from core.errors import OperationError
from core.files import write_atomically
from core.paths import CHECKOUT, State

_LONGEST_SOCKET = 100  # of 107 bytes; supervisord appends its process id while it binds
_RPC_SECONDS = 30.0
_STOP_SECONDS = 90.0  # longer than any process may take to stop
_START_SECONDS = 20.0
_POLL_SECONDS = 0.05
ACTIVE_STATES = ("STARTING", "RUNNING", "BACKOFF")
_TAIL_BYTES = 1024**2  # bytes of a log that are read
_STABLE_SECONDS = 60.0  # a process that ran so long had started well
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) Z \w+ (spawned|exited|stopped|supervisord started)\b(.*)")
_NAME = re.compile(r": '?([\w-]+)'?")


class SupervisorShuttingDown(OperationError):  # noqa: N818  (a state, not a fault)
    """Supervisor that is shutting down and answers no other request."""


@dataclass(frozen=True, slots=True)
class Program:
    """One process under supervision."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = "TERM"
    stop_seconds: int = 15


@dataclass(frozen=True, slots=True)
class ProcessState:
    """State of a process, as the supervisor knows it."""

    name: str
    state: str  # STOPPED, STARTING, RUNNING, BACKOFF, STOPPING, EXITED, FATAL, UNKNOWN
    pid: int | None
    since: float  # s since 1970, of the last start
    reason: str  # why it does not run


def render(state: State, programs: Sequence[Program]) -> str:
    """``supervisord.conf``. Raises OperationError for paths that its format can't hold."""
    sections = [
        _section("unix_http_server", {"file": socket_path(state), "chmod": "0700"}),
        _section(
            "supervisord",
            {
                "logfile": state.log / "supervisord.log",
                "logfile_maxbytes": "5MB",
                "logfile_backups": 2,
                "loglevel": "info",
                "pidfile": state.run / "supervisord.pid",
                "directory": state.root,
                "umask": "077",
                "minfds": 4096,
                **({"user": "root"} if os.geteuid() == 0 else {}),  # or it warns that it drops no privileges
            },
        ),
        _section(
            "rpcinterface:supervisor",
            {"supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"},
        ),
    ]
    for program in programs:
        environment = {**program.environment, "PLANTLOG_STATE": str(state.root), "PLANTLOG_PROCESS": program.name}
        sections.append(
            _section(
                f"program:{program.name}",
                {
                    "command": " ".join(_quoted(part) for part in program.command),
                    "environment": ",".join(f"{key}={_quoted(value)}" for key, value in sorted(environment.items())),
                    "directory": state.root,
                    "autostart": "false",  # `up` starts them in order
                    "autorestart": "true",
                    "startsecs": 1,
                    "startretries": 1_000_000,
                    "stopsignal": program.stop_signal,
                    "stopwaitsecs": program.stop_seconds,
                    "redirect_stderr": "true",
                    "stdout_logfile": state.log / f"{program.name}.log",
                    "stdout_logfile_maxbytes": "10MB",
                    "stdout_logfile_backups": 5,
                },
            )
        )
    return "\n".join(sections)


def stop_stages(names: Iterable[str]) -> list[list[str]]:
    """Processes in the order of the flow: collectors, all between, the database. Those of a stage stop together."""
    stages: list[list[str]] = [[], [], []]
    for name in names:
        stages[0 if is_collector(name) else 2 if name == "postgres" else 1].append(name)
    return stages


def socket_path(state: State) -> Path:
    """Supervisor's socket. Raises OperationError where the path is too long for a Unix socket."""
    path = state.run / "supervisor.sock"
    if len(os.fsencode(path)) > _LONGEST_SOCKET:
        raise OperationError(
            f"the path of the state folder is too long for a Unix socket ({path}): "
            f"set PLANTLOG_STATE to one of at most {_LONGEST_SOCKET - len('/run/supervisor.sock')} bytes"
        )
    return path


def _section(name: str, options: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_plain(str(value))}" for key, value in options.items()]
    return "\n".join((f"[{name}]", *lines, ""))


def _plain(text: str) -> str:
    if any(character in text for character in ("\n", " ;", " #")):
        raise OperationError(
            f"supervisord's configuration cannot contain {text!r}: choose a path without ; # and newlines"
        )
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    if '"' in text or "\\" in text:
        raise OperationError(f"supervisord's configuration cannot contain {text!r}: choose a path without quotes")
    return f'"{text}"'


class Supervisor:
    """The supervisor of a state folder."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._config = state.run / "supervisord.conf"
        self._socket = socket_path(state)

    def _call(self, method: str, *arguments: Any) -> Any:
        transport = SupervisorTransport(serverurl=f"unix://{self._socket}")
        transport._get_connection = lambda: _Connection(self._socket)
        try:
            with xmlrpc.client.ServerProxy("http://supervisor/RPC2", transport=transport) as rpc:
                return getattr(rpc.supervisor, method)(*arguments)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != Faults.SHUTDOWN_STATE:
                raise
            raise SupervisorShuttingDown("the supervisor is shutting down") from fault
        except (OSError, http.client.HTTPException) as error:
            log = self._state.log / "supervisord.log"
            raise OperationError(f"the supervisor does not respond ({error}): see {log}") from error

    def answers(self) -> bool:
        """Return whether a supervisor responds."""
        try:
            self.pid()
        except SupervisorShuttingDown:  # it is not gone yet
            return True
        except OperationError:
            return False
        return True

    def start(self, programs: Sequence[Program]) -> None:
        """Start it, with programs that are not yet running; returns when it answers."""
        write_atomically(self._config, render(self._state, programs))
        (self._state.run / "supervisor.sock").unlink(missing_ok=True)  # of one that was killed
        environment = {key: value for key, value in os.environ.items() if key != "PLANTLOG_DSN"}
        environment |= {"PLANTLOG_STATE": str(self._state.root), "PLANTLOG_PROCESS": "supervisord"}
        environment["PYTHONPATH"] = str(CHECKOUT)
        run = subprocess.run(
            [sys.executable, "-P", "-m", "ops.appliance.supervisord", "-c", str(self._config)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        deadline = time.monotonic() + _START_SECONDS
        while run.returncode == 0 and not self.answers():
            if time.monotonic() > deadline:
                raise OperationError(f"the supervisor did not start: see {self._state.log / 'supervisord.log'}")
            time.sleep(_POLL_SECONDS)
        if run.returncode:
            raise OperationError(f"the supervisor did not start:\n{run.stdout}{run.stderr}")

    def pid(self) -> int:
        """The process id of the running supervisor."""
        return int(self._call("getPID"))

    def is_own(self) -> bool:
        """Return whether the running supervisor, and so its programs, is of this checkout's environment."""
        try:
            command = psutil.Process(self.pid()).cmdline()
        except psutil.Error:
            return False
        return command[:1] == [sys.executable] and self._call("getSupervisorVersion") == version("supervisor")

    def update(self, programs: Sequence[Program], *, keep_others: bool = False) -> tuple[list[str], list[str]]:
        """Take over these programs; those that changed or are gone are stopped. Returns the names of both.

        ``keep_others``: those that are not named go on as they are.
        """
        text = render(self._state, programs)
        kept = []  # in the file, too: `up` may be interrupted before it names them
        if keep_others:
            named, before = _sections(text), _sections(self._config.read_text())
            kept = [f"[program:{name}]{section}\n" for name, section in before.items() if name not in named]
        write_atomically(self._config, "\n".join([text, *kept]))
        added, changed, removed = self._call("reloadConfig")[0]
        self.stop_programs(*changed, *removed)
        for name in (*changed, *removed):
            self._call("removeProcessGroup", name)
        for name in (*added, *changed):
            self._call("addProcessGroup", name)
        return changed, removed

    def restarts(self, programs: Sequence[Program]) -> tuple[list[str], list[str], list[str]]:
        """The names of programs that :meth:`update` would restart, stop and add."""
        before, after = (_sections(text) for text in (self._config.read_text(), render(self._state, programs)))
        changed = sorted(name for name in before.keys() & after if before[name] != after[name] or not self.is_own())
        return changed, sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())

    def processes(self) -> list[ProcessState]:
        """All processes, in the configuration's order of names."""
        return [
            ProcessState(info["name"], info["statename"], info["pid"] or None, info["start"], info["spawnerr"])
            for info in self._call("getAllProcessInfo")
        ]

    def active(self) -> dict[str, int | None]:
        """Name → process id of those that run or are about to; none if the supervisor does not respond."""
        processes = self.processes() if self.answers() else []
        return {process.name: process.pid for process in processes if process.state in ACTIVE_STATES}

    def start_program(self, name: str) -> bool:
        """Start a program that does not run; returns whether there was anything to do. Does not wait."""
        (state,) = [process.state for process in self.processes() if process.name == name]
        if state in ("STARTING", "RUNNING"):
            return False
        if state == "BACKOFF":  # it waits before another try: not any more
            self._call("stopProcess", name)
        self._call("startProcess", name, False)
        return True

    def stop_programs(self, *names: str) -> None:
        """Stop programs at the same time and wait until all are gone. Raises OperationError if one does not stop."""
        deadline = time.monotonic() + _STOP_SECONDS
        while running := [p for p in self.processes() if p.name in names and (p.pid or p.state in ACTIVE_STATES)]:
            if time.monotonic() > deadline:
                raise OperationError(f"{', '.join(process.name for process in running)}: not stopped by SIGKILL")
            for process in running:
                if process.state in ACTIVE_STATES:
                    with _unless_ended():
                        self._call("stopProcess", process.name, False)
            time.sleep(_POLL_SECONDS)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a program that runs; nothing where it has ended meanwhile."""
        with _unless_ended():
            self._call("signalProcess", name, str(number.value))

    def shutdown(self) -> None:
        """Stop the supervisor and what still runs, in the order of the flow; returns when it no longer answers."""
        for names in stop_stages(process.name for process in self.processes()):
            self.stop_programs(*names)
        self._call("shutdown")
        while self.answers():
            time.sleep(_POLL_SECONDS)


@contextmanager
def database_stopped(state: State) -> Iterator[None]:
    """A block in which the database does not run; collectors go on. If it fails, the database goes on, too."""
    supervisor = Supervisor(state)
    if "postgres" not in supervisor.active():
        yield
        return
    supervisor.stop_programs("postgres")
    try:
        yield
    except BaseException:
        supervisor.start_program("postgres")
        raise


def _sections(text: str) -> dict[str, str]:
    """Sections of ``supervisord.conf`` on each program, by name."""
    return dict(section.strip().split("]", 1) for section in text.split("[program:")[1:])


@contextmanager
def _unless_ended() -> Iterator[None]:
    """A program that has ended meanwhile needs no request."""
    try:
        yield
    except xmlrpc.client.Fault as fault:
        if fault.faultCode != Faults.NOT_RUNNING:
            raise


class _Connection(UnixStreamHTTPConnection):  # type: ignore[misc]  # supervisor has no types
    """Connection with a time-out, which supervisor's own lacks: one that hangs must not hold its caller for ever."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self.socketfile = str(path)

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(_RPC_SECONDS)


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """Last exit of a process, and the number of exits in a row, each soon after its start."""

    how: str  # as in: exit 1, SIGKILL
    count: int
    at: float  # s since 1970

    def __str__(self) -> str:
        return self.how if self.count == 1 else f"{self.how}, {self.count:,} times"


def read_exits(state: State) -> dict[str, ExitRecord]:
    """Process → unexpected exit, since the supervisor was started."""
    return parse_exits(_tail(state.log / "supervisord.log"))


def parse_exits(lines: Iterable[str]) -> dict[str, ExitRecord]:
    """Parse records as :func:`read_exits` does, from the lines of a ``supervisord.log``."""
    exits: dict[str, ExitRecord] = {}
    started_at: dict[str, float] = {}
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        at = datetime.fromisoformat(f"{match[1]}+00:00").timestamp()
        name = _NAME.match(match[3])
        if match[2] == "supervisord started":
            exits.clear()
        elif name is None:
            continue
        elif match[2] == "spawned":
            started_at[name[1]] = at
        elif match[2] == "stopped":
            exits.pop(name[1], None)
        else:
            before = exits.get(name[1])
            soon = at - started_at.get(name[1], at) < _STABLE_SECONDS
            exits[name[1]] = ExitRecord(_reason(match[3]), before.count + 1 if before is not None and soon else 1, at)
    return exits


def last_lines(state: State, process: str, lines: int = 1) -> str:
    """The last lines of a process' log."""
    stripped = [line.strip() for line in _tail(state.log / f"{process}.log") if line.strip()]
    return "\n".join(stripped[-lines:])


def _reason(exit_text: str) -> str:
    """Parse supervisord's ``: NAME (exit status 1; not expected)`` or ``(terminated by SIGKILL; not expected)``."""
    reason = exit_text.partition("(")[2].partition(";")[0]
    return reason.replace("exit status", "exit").removeprefix("terminated by ")


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
