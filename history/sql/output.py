"""Output of ``plantlog sql``, and its prompt."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from rich.console import Console

from core.answers import Answer, show, write_csv, write_json
from core.errors import PlantlogError
from history.sql.session import Session

_FIRST, _NEXT = "plantlog> ", "      ... "


@dataclass(frozen=True, slots=True)
class Form:
    """Format in which rows are printed."""

    limit: int  # rows of a table; 0: all
    as_csv: bool
    as_json: bool
    console: Console


def answer(session: Session, query: str, form: Form) -> None:
    """Run a query and print its rows. Raises OperationError or DatabaseError."""
    with session.rows(query) as (columns, rows):
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
