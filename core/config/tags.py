"""Tag lists: CSV files, one channel a row or a template a row, as plants keep them in spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from core.config import contradictions
from core.config.base import fields_of
from core.config.explain import csv_fault, did_you_mean, found, legal_values, read_text, shown
from core.config.sources import Tag
from core.config.templates import COLUMN, TagPlace, Templates, in_cell
from core.errors import Problem

T = TypeVar("T", bound=Tag)
_IDENTITY = ("name", "retention")  # what can be checked of a row even if other cells are illegal
_QUOTE = '"'
_QUOTED = re.compile(r'[",\r\n]|^\s|\s$')
_What: TypeAlias = tuple[str, str, str]  # column, found, legal
_TAG: TypeAdapter[Tag] = TypeAdapter(Tag)


def read_tags(
    path: Path,
    model: type[T],
    problems: list[Problem],
    digests: dict[str, str] | None = None,
    faulty: list[tuple[Tag, TagPlace]] | None = None,
) -> list[tuple[T, TagPlace]]:
    """Every legal tag of a tag list with its place, templates expanded; what is not legal goes to ``problems``.

    The SHA-256 of the file and its instance lists go to ``digests``. The name and retention class of the other tags go
    to ``faulty``.
    """
    text = read_text(path, "tags", "a CSV file in UTF-8, its path from plant.toml's folder", problems, digests)
    if text is None:
        return []
    adapter = TypeAdapter(model)
    tags: list[tuple[T, TagPlace]] = []
    illegal: dict[tuple[int, _What], list[TagPlace]] = {}
    for place, row in _rows(path, text, model, problems, Templates(path, problems, digests)):
        try:
            tag = adapter.validate_python(row, context={"written": True})
        except ValidationError as error:
            wrong = list(_explained(model, error))
        else:
            wrong = list(contradictions.in_tag(tag))
            if not wrong:
                tags.append((tag, place))
        for what in wrong:
            illegal.setdefault((place.line, what), []).append(place)
        if wrong and faulty is not None:
            with suppress(ValidationError):  # without a legal name
                faulty.append((_TAG.validate_python({name: row[name] for name in _IDENTITY if name in row}), place))
    for (_, (column, cell, legal)), (first, *others) in illegal.items():
        problem = first.problem(path, column, cell, legal)
        problems.append(replace(problem, found=f"{problem.found} and {len(others):,} others") if others else problem)
    return tags


def write_rows(file: TextIO, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """A tag list that is read as it was written: also cells with line ends of any kind, or blanks at their ends."""
    file.write(_line(columns))
    for row in rows:
        file.write(_line(["" if (cell := row.get(column)) is None else str(cell) for column in columns]))


def _line(cells: Sequence[str]) -> str:
    """A row as CSV (RFC 4180). Python's own writer leaves a carriage return unquoted, which ends a row."""
    quoted = (f'"{cell.replace(_QUOTE, _QUOTE * 2)}"' if _QUOTED.search(cell) else cell for cell in cells)
    return f"{','.join(quoted)}\n"


def _rows(
    path: Path, text: str, model: type[Tag], problems: list[Problem], templates: Templates
) -> Iterator[tuple[TagPlace, dict[str, str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        wrong = [Problem(str(path), 1, "header", *what) for what in _header_problems(header, model)]
        problems += wrong
        if not {"name", "address"} <= set(header):
            return  # of each row the same would be wrong
        columns = {*fields_of(model), COLUMN}
        for line in reader:
            cells = ((name, in_cell(name, cell)) for name, cell in zip(header, line, strict=False))
            row = {name: cell for name, cell in cells if cell and name in columns}
            if len(line) <= len(header):
                if COLUMN in row:
                    yield from templates.expand(reader.line_num, row)
                elif "{" in row.get("name", ""):
                    legal = f"an instance list: the name {shown(row['name'])} has a placeholder"
                    problems.append(Problem(str(path), reader.line_num, COLUMN, "nothing", legal))
                elif row:
                    yield TagPlace(reader.line_num), row
            elif any(map(str.strip, line)):
                legal = f"{len(header)} cells, as in the header"
                problems.append(Problem(str(path), reader.line_num, "row", f"{len(line)} cells", legal))
    except csv.Error as error:
        problems.append(Problem(str(path), *csv_fault(text, error)))
    else:
        templates.finish()


def _header_problems(header: list[str], model: type[Tag]) -> Iterator[tuple[str, str]]:
    """(found, legal) for each."""
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        yield shown(header[0]), "cells separated by commas"
        return
    columns = {*fields_of(model), COLUMN}
    for place, name in enumerate(header):
        if name not in columns:
            yield f"an unknown column {shown(name)}", did_you_mean(name, columns)
        elif name in header[:place]:
            yield shown(name), "each column once"
    for name in ("name", "address"):
        if name not in header:
            yield shown(",".join(header)), f"a column {name}"


def _explained(model: type[Any], error: ValidationError) -> Iterator[_What]:
    for detail in error.errors():
        yield str(detail["loc"][0]), found(detail), legal_values(model, detail)
