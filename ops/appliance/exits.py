"""Recent exits of processes, from the supervisor's log. They reveal a process that restarts in a loop."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from core.paths import State

_TAIL = 1024**2  # bytes of a log that are read
_STABLE_SECONDS = 60.0  # a process that ran so long had started well
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) Z \w+ (spawned|exited|stopped|supervisord started)\b(.*)")
_NAME = re.compile(r": '?([\w-]+)'?")


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """Last exit of a process, and the number of exits in a row, each soon after its start."""

    how: str  # as in: exit 1, SIGKILL
    count: int
    at: float  # s since 1970

    def __str__(self) -> str:
        return self.how if self.count == 1 else f"{self.how}, {self.count:,} times"


def read(state: State) -> dict[str, ExitRecord]:
    """Process → unexpected exit, since the supervisor was started."""
    return parse(_tail(state.log / "supervisord.log"))


def parse(lines: Iterable[str]) -> dict[str, ExitRecord]:
    """Parse records as :func:`read` does, from the lines of a ``supervisord.log``."""
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
    lines_said = [line.strip() for line in _tail(state.log / f"{process}.log") if line.strip()]
    return "\n".join(lines_said[-lines:])


def _reason(lines_said: str) -> str:
    """Parse supervisord's ``: NAME (exit status 1; not expected)`` or ``(terminated by SIGKILL; not expected)``."""
    reason = lines_said.partition("(")[2].partition(";")[0]
    return reason.replace("exit status", "exit").removeprefix("terminated by ")


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            return file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
