"""Line numbers of options in a TOML text, which tomllib does not provide."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

Place: TypeAlias = tuple[str | int, ...]  # as in ("source", 1, "address")

_MAX_DEPTH = 8  # levels of a key; no option has as many

_PART = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]\s*(?:#.*)?$")
_ARRAY_HEADER = re.compile(rf"\s*\[\[\s*({_DOTTED})\s*\]\]\s*(?:#.*)?$")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=\s*(.*)")


def locate(text: str) -> dict[Place, int]:
    """Line numbers, from 1, of tables (by their header) and keys. Exact for valid TOML, otherwise a guess."""
    lines: dict[Place, int] = {}
    counts: dict[Place, int] = defaultdict(int)
    table: Place = ()
    for number, line in _outside_long_texts(text):
        if match := _ARRAY_HEADER.match(line):
            name = _within(_parts(match[1]), counts)
            table = (*name, counts[name])
            counts[name] += 1
            lines.setdefault(name, number)
            lines[table] = number
        elif match := _HEADER.match(line):
            table = _within(_parts(match[1]), counts)
            lines.setdefault(table, number)
        elif match := _KEY.match(line):
            key = _parts(match[1])
            for length in range(1, min(len(key), _MAX_DEPTH) + 1):
                lines.setdefault((*table, *key[:length]), number)
    return lines


def line_of(lines: dict[Place, int], place: Place) -> int | None:
    """The line of ``place``, or of the closest enclosing table or key."""
    while place:
        if place in lines:
            return lines[place]
        place = place[:-1]
    return None


def _outside_long_texts(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines that don't stand within a text in three quotes."""
    quotes: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if quotes is None:
            yield number, line
        rest = line
        while mark := re.search("\"\"\"|'''" if quotes is None else quotes, rest):
            quotes = mark[0] if quotes is None else None
            rest = rest[mark.end() :]


def _within(name: Place, counts: Mapping[Place, int]) -> Place:
    """A header's name with the places of the tables around it: [[source.tag]] belongs to the last [[source]]."""
    place: Place = ()
    for part in name[:-1]:
        place = (*place, part)
        if counts.get(place):
            place = (*place, counts[place] - 1)
    return (*place, *name[-1:])


def _parts(key: str) -> Place:
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))
