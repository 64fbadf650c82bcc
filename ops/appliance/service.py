"""The service that runs an appliance (``plantlog admin service run``), as ``up`` and ``down`` see it; and whether the
appliance is stopped."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from core.errors import OperationError
from core.paths import State
from core.timestamps import iso
from ops.appliance.steps import Steps
from ops.appliance.supervisor import Supervisor
from ops.deployment import Running

UNITS = Path("/etc/systemd/system")
_PACKAGED = Path("/usr/lib/systemd/system")
_STOP_SECONDS = 300.0  # longer than `down` takes
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Service:
    """Service that runs, or ran last. Its process holds a lock on the file that names it."""

    name: str  # of the unit, without .service
    pid: int

    @property
    def unit(self) -> Path:
        """The file of its unit: one that was made here takes the place of a package's."""
        unit = UNITS / f"{self.name}.service"
        return unit if unit.exists() else _PACKAGED / unit.name


def last(state: State) -> Service | None:
    """The service that ran this appliance last; None: there was none."""
    try:
        return Service(**json.loads(_file(state).read_text()))
    except (FileNotFoundError, ValueError):  # the latter: one that is just starting
        return None


def installed(state: State) -> Service | None:
    """The service that ran the appliance last, if its unit is still there."""
    service = last(state)
    return service if service is not None and service.unit.exists() else None


def running(state: State) -> Service | None:
    """The service that runs this appliance; None where it is this process itself."""
    try:
        file = _file(state).open()
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            service = last(state)
            return None if service is None or service.pid == os.getpid() else service
    return None


@contextmanager
def attend(state: State, name: str) -> Iterator[None]:
    """Inside the block, this process is the service of the appliance. Raises OperationError if there is one already."""
    with _file(state).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = last(state)
            whose = "" if other is None else f": {other.name} (process {other.pid})"
            raise OperationError(f"another service runs the appliance in {state.root}{whose}") from None
        file.truncate(0)
        file.write(json.dumps(asdict(Service(name, os.getpid()))))
        file.flush()
        yield


def check_none(state: State) -> None:
    """Raise OperationError if a service runs the appliance, whose supervisor is about to be replaced."""
    if (service := running(state)) is not None:
        raise OperationError(
            f"the service {service.name} runs another version of plantlog: as root, run `plantlog admin service "
            f"install --name {service.name}` of this one, which replaces it"
        )


def note_absence(state: State, console: Console) -> None:
    """Tell whoever started the appliance without its service."""
    service = installed(state)
    if service is not None and service.pid != os.getpid() and running(state) is None:
        console.print(
            f"This appliance runs without its service; `systemctl restart {service.name}` moves it there.",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


def stop(state: State, steps: Steps) -> None:
    """Let the service that runs this appliance stop it. Nothing where there is none."""
    service = running(state)
    if service is None:
        return
    with steps.step(f"stop service {service.name}"):
        try:
            os.kill(service.pid, signal.SIGTERM)
        except PermissionError:
            raise OperationError(
                f"the service {service.name} of another user runs this appliance: as root, run "
                f"`systemctl stop {service.name}`"
            ) from None
        except ProcessLookupError:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        while running(state) == service:
            if time.monotonic() > deadline:
                raise OperationError(f"the service does not stop: see `journalctl -u {service.name}`")
            time.sleep(_POLL_SECONDS)


def _file(state: State) -> Path:
    return state.run / "service"


def stopped(state: State) -> dict[str, Any] | None:
    """``since`` (s since 1970; None: `down` did not stop it), and the command that ``start``s it; None: it runs, or
    was never started."""
    last = Running.load(state)
    if last is None or Supervisor(state).answers():
        return None
    since = None if last.stopped_at is None else last.stopped_at / 1e6
    service = installed(state)
    return {"since": since, "start": f"systemctl start {service.name}" if service else "plantlog up"}


def describe_stopped(state: dict[str, Any]) -> str:
    """Describe the result of :func:`stopped` in a sentence."""
    since = state["since"]
    how = "was not stopped by `plantlog down`" if since is None else f"was stopped at {iso(int(since * 1e6))[:19]}Z"
    return f"plantlog does not run: it {how}. `{state['start']}` starts it"


def check_own_database(state: State) -> None:
    """Raise OperationError if the database is plantlog's own, and is stopped with it."""
    if not state.has_external_database and (server := stopped(state)) is not None:
        raise OperationError(describe_stopped(server))
