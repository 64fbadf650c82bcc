"""Rows of a question or a query as a table, CSV or JSON, and the prompt of ``plantlog sql``."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

from duckdb import ExpectedResultType
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from core.errors import OperationError, PlantlogError
from core.formatting import names_text, wide
from history.sql.session import Session

_NO_ROWS = "no rows"
_FIRST, _NEXT = "plantlog> ", "      ... "


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of one question, in its order."""

    columns: tuple[str, ...]
    rows: Iterable[tuple[Any, ...]]
    note: str = _NO_ROWS  # shown in place of a table without rows, and below one with rows

    @classmethod
    def of_table(cls, table: Any, note: str) -> Answer:
        """The rows of a table of Arrow."""
        columns = [column.to_pylist() for column in table.columns]
        return cls(tuple(table.column_names), list(zip(*columns, strict=True)), note)


def show(answer: Answer, limit: int, console: Console, first: Sequence[str] = (), items: int | None = None) -> None:
    """Print a table of the first ``limit`` rows (0: all).

    ``first``: the columns of a table of several rows; none: all. A single row shows all columns, below each other.
    ``items``: that are shown of a list; None: all of them.
    """
    rows = list(answer.rows)
    if not rows:
        console.print(answer.note, markup=False, highlight=False, soft_wrap=True)
        return
    console = wide(console)
    if len(rows) == 1 and len(answer.columns) > len(first or answer.columns):
        item = Table(box=None, show_header=False, pad_edge=False)
        for name, value in zip(answer.columns, rows[0], strict=True):
            item.add_row(name.replace("_", " "), escape(_format_value(value)))
        console.print(item)
        _print_note(answer, console)
        return
    table = Table(header_style="bold")
    column_indexes = [i for i, name in enumerate(answer.columns) if name in (first or answer.columns)]
    for i in column_indexes:
        number = all(isinstance(row[i], int | float) for row in rows)
        table.add_column(
            answer.columns[i].replace("_", " "),  # a space, so that a long name can be broken
            justify="right" if number else "left",
            no_wrap=any(isinstance(row[i], datetime) for row in rows),
            overflow="fold",
        )
    for row in rows[: limit or None]:
        table.add_row(*(escape(_format_value(row[i], items)) for i in column_indexes))
    console.print(table)
    if table.row_count < len(rows):
        console.print(f"{_more(len(rows) - table.row_count, 'row')} (--limit 0 prints all)", style="dim")
    if len(column_indexes) < len(answer.columns):
        others = _more(len(answer.columns) - len(column_indexes), "column")
        console.print(f"{others} with --csv or --json, or for a single channel", style="dim")
    _print_note(answer, console)


def _more(n: int, noun: str) -> str:
    return f"{n:,} more {noun}" + ("" if n == 1 else "s")


def _print_note(answer: Answer, console: Console) -> None:
    if answer.note not in ("", _NO_ROWS):
        console.print(answer.note, style="dim", markup=False, highlight=False, soft_wrap=True)


def write_csv(answer: Answer) -> None:
    """Print CSV: times in ISO 8601, intervals in seconds, lists as JSON has them."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows([_csv_value(value) for value in row] for row in answer.rows)


def write_json(answer: Answer) -> None:
    """Print a list of objects, one a row; times in ISO 8601, intervals in seconds."""
    rows = [{name: _json_value(value) for name, value in zip(answer.columns, row, strict=True)} for row in answer.rows]
    sys.stdout.write(json.dumps(rows, indent=2, ensure_ascii=False, default=_json_text) + "\n")


@dataclass(frozen=True, slots=True)
class Form:
    """Format in which rows are printed."""

    limit: int  # rows of a table; 0: all
    as_csv: bool
    as_json: bool
    console: Console


def answer(session: Session, query: str, form: Form) -> None:
    """Run statements one after the other and print the rows of each. Raises OperationError or DatabaseError."""
    statements = session.statements(query)
    if not statements:
        raise OperationError(f"found no statement: {query!r}; legal: SQL, such as SELECT count(*) FROM samples")
    is_first = True
    for number, statement in enumerate(statements, 1):
        try:
            with session.rows(statement) as (columns, rows):
                if _has_rows(statement, columns):
                    if not (is_first or form.as_json):
                        form.console.print()
                    _print(columns, rows, form)
                    is_first = False
        except OperationError as error:
            raise OperationError(f"statement {number}: {error}" if len(statements) > 1 else str(error)) from error


def _has_rows(statement: Any, columns: tuple[str, ...]) -> bool:
    """Return whether a statement answers with rows, and not with how many it changed."""
    kinds = statement.expected_result_type
    is_number = columns == ("Count",) and ExpectedResultType.CHANGED_ROWS in kinds
    return ExpectedResultType.QUERY_RESULT in kinds and not is_number


def _print(columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]], form: Form) -> None:
    if form.as_csv:
        write_csv(Answer(columns, rows))
    elif form.as_json:
        write_json(Answer(columns, rows))
    else:
        first = list(islice(rows, form.limit + 1 if form.limit else None))
        show(Answer(columns, first[: form.limit or None]), 0, form.console)
        if form.limit and len(first) > form.limit:
            form.console.print("more rows (--limit 0 prints all)", style="dim")


def prompt(session: Session, form: Form) -> None:
    """Run what is typed: statements that end with a semicolon, until the end of the input."""
    with_history()
    typed = ""
    while True:
        try:
            typed += input(_NEXT if typed else _FIRST) + "\n"
        except KeyboardInterrupt:
            form.console.print()
            typed = ""
            continue
        except EOFError:
            form.console.print()
            return
        if not typed.strip():
            typed = ""
        if not typed.rstrip().endswith(";"):
            continue
        try:
            answer(session, typed, form)
        except PlantlogError as error:
            form.console.print(f"plantlog: {error}", style="red", markup=False)
        except KeyboardInterrupt:
            form.console.print("interrupted")
        typed = ""


def with_history() -> None:
    """Let arrow keys edit the line and repeat former ones, where Python has readline."""
    try:
        import readline  # noqa: F401, PLC0415
    except ImportError:
        return


def _format_value(value: object, items: int | None = None) -> str:
    match value:
        case None:
            return ""
        case datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
            return text + (value.isoformat()[-6:] if value.utcoffset() else "Z" if value.tzinfo else "")
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list() | tuple():
            return names_text([_format_value(item) for item in value], items or len(value))
        case _:
            return str(value)


def _csv_value(value: object) -> object:
    match value:
        case float():
            return value  # also what is not finite: an empty field is NULL
        case list() | tuple() | dict():
            return json.dumps(_json_value(value), ensure_ascii=False, default=_json_text)
        case bytes():
            return _json_text(value)
        case _:
            return _json_value(value)


def _json_value(value: object) -> object:
    match value:
        case date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case float() if not math.isfinite(value):
            return None
        case list() | tuple():
            return [_json_value(item) for item in value]
        case dict():
            return {str(name): _json_value(item) for name, item in value.items()}
        case _:
            return value


def _json_text(value: object) -> object:
    """Text of a value for which JSON has no type."""
    match value:
        case Decimal():
            return float(value)
        case bytes():
            return value.hex()
        case _:
            return str(value)
