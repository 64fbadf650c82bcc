"""Errors in the logs of the processes that no fault explains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

# plantlog's own processes, and PostgreSQL
_ERROR = re.compile(r"^(\S+ \S+) Z (?:(?:ERROR|CRITICAL) |\[\d+\] .*?(?:ERROR|FATAL|PANIC):)")
_AFTER_SECONDS = 90.0  # in which what failed is still about the fault


def unexplained(folder: Path, since: float, until: float, faults: Sequence[tuple[float, float]]) -> list[str]:
    """Lines of errors between ``since`` and ``until``, outside all ``faults`` (begin and end), as ``file: line``.

    Times are in seconds since 1970.
    """
    return [
        f"{path.name}: {line}"
        for path in sorted(folder.glob("*.log*"))
        for at, line in _errors(path)
        if since <= at <= until and not any(begin - 1 <= at <= end + _AFTER_SECONDS for begin, end in faults)
    ]


def _errors(path: Path) -> Iterator[tuple[float, str]]:
    with path.open(errors="replace") as file:
        for line in file:
            if found := _ERROR.match(line):
                yield datetime.fromisoformat(f"{found[1]}+00:00").timestamp(), line.rstrip()
