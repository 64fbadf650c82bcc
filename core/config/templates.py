"""Templates of a tag list: rows that are repeated for each instance of a list, such as the motors of a plant.

A row that names an instance list in its column ``instances`` is a template. The instance list is a CSV file. Its
columns are placeholders in all cells of the template: ``{motor}`` stands for the cell of an instance, ``{base+4}`` and
``{number*20+100}`` for a whole number that is computed from it. ``{{`` and ``}}`` are braces.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from core.config.addresses import node_address
from core.config.explain import FieldFault, csv_fault, did_you_mean, read_text, shortened, shown
from core.errors import Problem

COLUMN = "instances"

_MAX_LISTED = 40  # columns in a message
_NAME = re.compile(r"\w{1,63}")
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PLACEHOLDER = re.compile(r"\s*(\w+)\s*(?:\*\s*(\d{1,9}))?\s*(?:([+-])\s*(\d{1,9}))?\s*")
_TEXT_IDENTIFIER = re.compile(r"(?:^\s*|;)s=")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,15}")
_LEGAL = "a placeholder as in {motor}, {base+4} or {number*20+100}; a brace itself is {{ or }}"


def in_cell(column: str, text: str) -> str:
    """The value in a cell of a tag list: what stands there without the blanks around it, see ``node_address``."""
    return node_address.in_cell(text) if column == "address" else text.strip()


class TagLocation(NamedTuple):
    """Location of a tag's definition: the line of its row, and for a template the row of the instance list."""

    line: int
    list: str = ""  # path of the instance list
    instance: int = 0  # line of the instance list

    def __str__(self) -> str:
        return f"{self.line}{self.within}"

    @property
    def within(self) -> str:
        """Suffix of messages that names the instance."""
        return f" with {self.list}:{self.instance}" if self.list else ""

    def problem(self, file: Path, name: str, found: str, legal: str) -> Problem:
        """A problem of the tag list ``file`` in column ``name``."""
        return Problem(str(file), self.line, name, found + self.within, legal)


@dataclass(slots=True)
class _InstanceList:
    path: Path
    lines: list[int] = field(default_factory=list)  # of each instance
    cells: dict[str, list[str]] = field(default_factory=dict)  # column → its cell of each instance
    used: set[str] = field(default_factory=set)  # columns


class Templates:
    """The templates of one tag list. Problems go to ``problems``, digests of instance lists to ``digests``."""

    def __init__(self, path: Path, problems: list[Problem], digests: dict[str, str] | None) -> None:
        self._path = path
        self._problems = problems
        self._digests = digests
        self._lists: dict[str, _InstanceList | None] = {}  # by the name in the tag list; None: illegal

    def expand(self, line: int, row: Mapping[str, str]) -> Iterator[tuple[TagLocation, dict[str, str]]]:
        """The rows of all instances of a template, in their order."""
        name = row[COLUMN]
        if name not in self._lists:
            self._lists[name] = self._read(name, line)
        instances = self._lists[name]
        if instances is None:
            return
        cells: dict[str, Sequence[str]] = {}
        faults: list[FieldFault] = []
        for column, text in row.items():
            if column != COLUMN:
                cells[column] = _filled(column, text, instances, faults)
        template = row.get("name", "")
        if not faults and not any(match[1] for match in _TOKEN.finditer(template)):
            value = shown(template) if template else "nothing"
            faults.append(("name", value, f"a name with a placeholder such as {{{next(iter(instances.cells))}}}"))
        self._problems += [Problem(str(self._path), line, *fault) for fault in faults]
        if faults:
            return
        path = str(instances.path)
        for instance, filled in zip(instances.lines, zip(*cells.values(), strict=True), strict=True):
            yield (
                TagLocation(line, path, instance),
                {name: cell for name, text in zip(cells, filled, strict=True) if (cell := in_cell(name, text))},
            )

    def finish(self) -> None:
        """Report columns of instance lists that no template uses."""
        for instances in filter(None, self._lists.values()):
            for column in instances.cells:
                if column not in instances.used:
                    unused = f"a column {shown(column)}, which no template in {self._path} uses"
                    legal = f"only columns with a placeholder, as in {{{column}}}"
                    self._problems.append(Problem(str(instances.path), 1, "header", unused, legal))

    def _read(self, name: str, line: int) -> _InstanceList | None:
        path = self._path.parent / name
        legal = f"a CSV file in UTF-8, its path from the folder of {self._path}"

        def named(found: str, legal: str) -> Problem:
            return Problem(str(self._path), line, COLUMN, f"{shown(name)}: {shortened(found)}", legal)

        text = read_text(path, COLUMN, legal, self._problems, self._digests, named)
        return None if text is None else self._parse(name, text, line)

    def _parse(self, name: str, text: str, line: int) -> _InstanceList | None:
        path = self._path.parent / name
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        faults: list[tuple[int, str, str, str]] = []  # line and fault
        rows: dict[tuple[str, ...], int] = {}  # cells of an instance, without blanks around them → its line
        kept: list[tuple[str, ...]] = []  # its cells as they are
        try:
            header = [cell.strip() for cell in next(reader, [])]
            faults += [(1, "header", *fault) for fault in _header_problems(header)]
            for cells in map(tuple, reader):
                if not any(map(str.strip, cells)):
                    continue
                filled = (*cells, *[""] * (len(header) - len(cells)))
                if len(cells) > len(header):
                    legal = f"{len(header)} cells, as in the header"
                    faults.append((reader.line_num, "row", f"{len(cells)} cells", legal))
                    continue
                kept.append(filled)
                first = rows.setdefault(tuple(map(str.strip, filled)), reader.line_num)
                if first != reader.line_num:
                    repeated = shown(",".join(map(str.strip, cells)))
                    faults.append((reader.line_num, "row", repeated, f"each instance once; line {first} has the same"))
        except csv.Error as error:
            faults.append(csv_fault(text, error))
        self._problems += [Problem(str(path), *fault) for fault in faults]
        if not rows and not faults:
            legal = "a header, and a row for each instance"
            self._problems.append(
                Problem(str(self._path), line, COLUMN, f"{shown(name)}, which has no instances", legal)
            )
        if faults or not rows:
            return None
        columns = map(list, zip(*kept, strict=True))
        return _InstanceList(path, list(rows.values()), dict(zip(header, columns, strict=True)))


def _header_problems(header: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Values found and legal ones, for each problem of a header."""
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        yield shown(header[0]), "cells separated by commas"
        return
    if not header:
        yield "nothing", "the names of the columns, separated by commas"
    for index, name in enumerate(header):
        if not _NAME.fullmatch(name):
            yield f"a column {shown(name)}", "letters, digits and underscores, as in motor or base_address"
        elif name in header[:index]:
            yield shown(name), "each column once"


def _filled(column: str, text: str, instances: _InstanceList, faults: list[FieldFault]) -> Sequence[str]:
    """The cell of a template for each instance."""
    parts: list[Sequence[str]] = []  # of each part of the text: one for each instance
    count, at = len(instances.lines), 0
    for token in _TOKEN.finditer(text):
        parts.append([text[at : token.start()]] * count)
        at = token.end()
        if token[0] in ("{{", "}}"):
            parts.append([token[0][0]] * count)
            continue
        match = _PLACEHOLDER.fullmatch(token[1] or "")
        if match is None:
            faults.append((column, shown(token[0]), _LEGAL))
        elif match[1] not in instances.cells:
            names = did_you_mean(match[1], list(instances.cells)[:_MAX_LISTED])
            faults.append((column, shown(token[0]), f"a column of {instances.path}: {names}"))
        else:
            instances.used.add(match[1])
            in_identifier = column == "address" and _TEXT_IDENTIFIER.search(text, 0, token.start()) is not None
            parts.append(list(_values(column, match, instances, in_identifier, faults)))
    parts.append([text[at:]] * count)
    return [text] * count if len(parts) == 1 else list(map("".join, zip(*parts, strict=True)))


def _values(
    column: str,
    placeholder: re.Match[str],
    instances: _InstanceList,
    in_identifier: bool,
    faults: list[FieldFault],
) -> Iterator[str]:
    """The text of a placeholder for each instance. In the text identifier of a node, blanks of a cell belong to it."""
    name, factor, sign, summand = placeholder.groups()
    cells = instances.cells[name]
    if not in_identifier:
        cells = [*map(str.strip, cells)]
    if factor is None and summand is None:
        yield from cells
        return
    multiplied, added = int(factor or 1), int(f"{sign or ''}{summand or 0}")
    for line, cell in zip(instances.lines, cells, strict=True):
        if not _WHOLE_NUMBER.fullmatch(cell.strip()):
            value = f"{shown(f'{{{placeholder[0]}}}')} with {instances.path}:{line}, where {name} is {shown(cell)}"
            faults.append((column, value, f"a whole number in each row of the column {name}"))
            yield from cells
            return
    yield from (str(int(cell) * multiplied + added) for cell in cells)
