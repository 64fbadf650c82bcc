"""``plantlog sql``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from core.paths import State
from core.terminal import Console

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415


def sql(
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="SQL of DuckDB. Default: standard input; at a terminal, a prompt."),
    ] = None,
    answers: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME=QUESTION",
            help="Make the answer to a question of `ask`, with its options, a table. Can be repeated.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of rows of a table. 0: all.")] = 40,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with all rows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all rows.")] = False,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory that a query may use.")] = "2GiB",
    threads: Annotated[int, typer.Option(min=1, help="CPU cores that a query may use.")] = 2,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="Time that a query may take.")] = "5m",
) -> None:
    """Query samples, events and gaps of database and archive together, by DuckDB."""
    from core.scheduling import lower_priority
    from history.questions.ask import parse_duration, tables
    from history.sql import output
    from history.sql.limits import Limits
    from history.sql.session import opened

    lower_priority()  # ingest goes first
    form = output.Form(limit, as_csv, as_json, Console())
    limits = Limits(memory, threads, parse_duration("--timeout", timeout).total_seconds())
    state = State.current()
    with opened(state, limits, others=tables(state, answers or [], limits)) as session:
        if query is None and sys.stdin.isatty():
            output.prompt(session, form)
        else:
            output.answer(session, sys.stdin.read() if query is None else query, form)
