"""Which line of a TOML text an option stands on; tomllib reads values and forgets places."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TypeAlias

Place: TypeAlias = tuple[str | int, ...]  # as in ("source", 1, "address")

_HEADER = re.compile(r"\s*\[([A-Za-z0-9_.\- \"']+)\]\s*(#.*)?$")
_ARRAY_HEADER = re.compile(r"\s*\[\[([A-Za-z0-9_.\- \"']+)\]\]\s*(#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_\-]+|\"[^\"]*\"|'[^']*')\s*=")


def locate(text: str) -> dict[Place, int]:
    """Line numbers, from 1, of tables (by their header) and keys."""
    lines: dict[Place, int] = {}
    counts: dict[str, int] = defaultdict(int)
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := _ARRAY_HEADER.match(line):
            name = _bare(match[1])
            table = (name, counts[name])
            counts[name] += 1
            lines[table] = number
        elif match := _HEADER.match(line):
            table = tuple(_bare(part) for part in match[1].split("."))
            lines[table] = number
        elif match := _KEY.match(line):
            lines.setdefault((*table, _bare(match[1])), number)
    return lines


def line_of(lines: dict[Place, int], place: Place) -> int | None:
    """The line of ``place``, or of the closest thing around it."""
    while place:
        if place in lines:
            return lines[place]
        place = place[:-1]
    return None


def _bare(key: str) -> str:
    return key.strip().strip("\"'")
