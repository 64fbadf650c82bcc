"""Tag lists: CSV files, one channel a row or a template a row, as plants keep them in spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, TypeVar

from pydantic import TypeAdapter, ValidationError

from core.config import contradictions
from core.config.base import fields_of
from core.config.explain import FieldFault, csv_fault, did_you_mean, invalid_value, legal_values, read_text, shown
from core.config.sources import Tag
from core.config.templates import COLUMN, TagLocation, Templates, in_cell
from core.errors import Problem

T = TypeVar("T", bound=Tag)
_IDENTITY = ("name", "retention")  # columns that are checked even if other cells are illegal
_PLACEHOLDERS = {"name": "name", "address": "holding:0"}  # of columns that a tag must have
_QUOTE = '"'
_QUOTED = re.compile(r'[",\r\n]|^\s|\s$')
_TAG: TypeAdapter[Tag] = TypeAdapter(Tag)


def read_tags(
    path: Path,
    model: type[T],
    problems: list[Problem],
    digests: dict[str, str] | None = None,
    faulty: list[tuple[Tag, TagLocation]] | None = None,
    named: Callable[[str, str], Problem] | None = None,
) -> list[tuple[T, TagLocation]]:
    """Every legal tag of a tag list with its location, templates expanded; what is not legal goes to ``problems``.

    The SHA-256 of the file and its instance lists go to ``digests``. The name and retention class of the other tags go
    to ``faulty``. ``named``: as of :func:`read_text`.
    """
    text = read_text(path, "tags", "a CSV file in UTF-8, its path from plant.toml's folder", problems, digests, named)
    if text is None:
        return []
    adapter = TypeAdapter(model)
    tags: list[tuple[T, TagLocation]] = []
    illegal: dict[tuple[int, FieldFault], list[TagLocation]] = {}
    for location, row in _rows(path, text, model, problems, Templates(path, problems, digests)):
        try:
            tag = adapter.validate_python(row, context={"written": True})
        except ValidationError as error:
            faults = list(_faults(model, error))
            faults += _contradictions(adapter, row, {column for column, *_ in faults})
        else:
            faults = list(contradictions.in_tag(tag))
            if not faults:
                tags.append((tag, location))
        for fault in faults:
            illegal.setdefault((location.line, fault), []).append(location)
        if faults and faulty is not None:
            with suppress(ValidationError):  # without a legal name
                faulty.append((_TAG.validate_python({name: row[name] for name in _IDENTITY if name in row}), location))
    for (_, (column, cell, legal)), (first, *others) in illegal.items():
        problem = first.problem(path, column, cell, legal)
        problems.append(replace(problem, found=f"{problem.found} and {len(others):,} others") if others else problem)
    return tags


def write_rows(file: TextIO, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write a tag list that is read back the same, also cells with line ends of any kind or blanks at their ends."""
    file.write(_line(columns))
    for row in rows:
        file.write(_line(["" if (cell := row.get(column)) is None else str(cell) for column in columns]))


def _line(cells: Sequence[str]) -> str:
    """A row as CSV (RFC 4180). Python's own writer leaves a carriage return unquoted, which ends a row."""
    quoted = (f'"{cell.replace(_QUOTE, _QUOTE * 2)}"' if _QUOTED.search(cell) else cell for cell in cells)
    return f"{','.join(quoted)}\n"


def _rows(
    path: Path, text: str, model: type[Tag], problems: list[Problem], templates: Templates
) -> Iterator[tuple[TagLocation, dict[str, str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        problems += [Problem(str(path), 1, "header", *fault) for fault in _header_problems(header, model)]
        if not {"name", "address"} <= set(header):
            return  # every row would have the same fault
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
                    yield TagLocation(reader.line_num), row
            elif any(map(str.strip, line)):
                legal = f"{len(header)} cells, as in the header"
                problems.append(Problem(str(path), reader.line_num, "row", f"{len(line)} cells", legal))
    except csv.Error as error:
        problems.append(Problem(str(path), *csv_fault(text, error)))
    else:
        templates.finish()


def _header_problems(header: list[str], model: type[Tag]) -> Iterator[tuple[str, str]]:
    """Values found and legal ones, for each problem of a header."""
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        yield shown(header[0]), "cells separated by commas"
        return
    columns = {*fields_of(model), COLUMN}
    for index, name in enumerate(header):
        if name not in columns:
            yield f"an unknown column {shown(name)}", did_you_mean(name, columns)
        elif name in header[:index]:
            yield shown(name), "each column once"
    for name in ("name", "address"):
        if name not in header:
            yield shown(",".join(header)), f"a column {name}"


def _contradictions(adapter: TypeAdapter[T], row: Mapping[str, str], illegal: Collection[str]) -> list[FieldFault]:
    """Faults between the legal cells of a row."""
    legal = {name: cell for name, cell in row.items() if name not in illegal}
    try:
        tag = adapter.validate_python({**_PLACEHOLDERS, **legal}, context={"written": True})
    except ValidationError:
        return []
    for column in illegal:
        object.__delattr__(tag, column)
    return list(contradictions.in_tag(tag, illegal))


def _faults(model: type[Any], error: ValidationError) -> Iterator[FieldFault]:
    for detail in error.errors():
        yield str(detail["loc"][0]), invalid_value(detail), legal_values(model, detail)
