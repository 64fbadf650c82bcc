"""Line numbers of options in a TOML text, which tomllib does not provide."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

Key: TypeAlias = tuple[str | int, ...]  # of a table or option, as in ("source", 1, "address")

_MAX_DEPTH = 8  # levels of a key; no option has as many

_PART = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]\s*(?:#.*)?$")
_ARRAY_HEADER = re.compile(rf"\s*\[\[\s*({_DOTTED})\s*\]\]\s*(?:#.*)?$")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=\s*(.*)")


def locate(text: str) -> dict[Key, int]:
    """Line numbers, from 1, of tables (by their header) and keys. Exact for valid TOML, otherwise a guess."""
    lines: dict[Key, int] = {}
    counts: dict[Key, int] = defaultdict(int)
    table: Key = ()
    for number, line in _outside_long_texts(text):
        if match := _ARRAY_HEADER.match(line):
            array = _within(_parts(match[1]), counts)
            table = (*array, counts[array])
            counts[array] += 1
            lines.setdefault(array, number)
            lines[table] = number
        elif match := _HEADER.match(line):
            table = _within(_parts(match[1]), counts)
            lines.setdefault(table, number)
        elif match := _KEY.match(line):
            key = _parts(match[1])
            for length in range(1, min(len(key), _MAX_DEPTH) + 1):
                lines.setdefault((*table, *key[:length]), number)
    return lines


def line_of(lines: dict[Key, int], key: Key) -> int | None:
    """The line of ``key``, or of the closest enclosing table or key."""
    while key:
        if key in lines:
            return lines[key]
        key = key[:-1]
    return None


def unfinished_line(text: str) -> int:
    """The line of the statement that a text which ends too early ends with."""
    return next((number for number, line in reversed([*_outside_long_texts(text)]) if line.strip()), 1)


def _outside_long_texts(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines that don't stand within a text in three quotes."""
    quotes: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if quotes is None:
            yield number, line
        remaining = line
        while mark := re.search("\"\"\"|'''" if quotes is None else quotes, remaining):
            quotes = mark[0] if quotes is None else None
            remaining = remaining[mark.end() :]


def _within(name: Key, counts: Mapping[Key, int]) -> Key:
    """A header's name with the indices of the tables around it: [[source.tag]] belongs to the last [[source]]."""
    key: Key = ()
    for part in name[:-1]:
        key = (*key, part)
        if counts.get(key):
            key = (*key, counts[key] - 1)
    return (*key, *name[-1:])


def _parts(key: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))
