"""``plantlog logs``: the processes' log files, by tail(1)."""

from __future__ import annotations

from core.errors import OperationError
from core.paths import State


def tail_command(state: State, process: str | None, follow: bool, lines: int) -> list[str]:
    """The tail command. Raises OperationError if there are no logs, or none with that name."""
    files = {path.stem: path for path in sorted(state.log.glob("*.log"))}
    if not files:
        raise OperationError(f"{state.log} has no logs yet: run `plantlog up`")
    if process is not None and process not in files:
        raise OperationError(f"no log of process {process}; known: {', '.join(files)}")
    selected = list(files.values()) if process is None else [files[process]]
    # -F: go on with the new file when one was rotated away.
    return ["tail", "-n", str(lines), *(["-F"] if follow else []), "--", *map(str, selected)]
