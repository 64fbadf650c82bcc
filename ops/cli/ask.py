"""``plantlog ask``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from ops.paths import State

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415


def ask(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Question. Some have options of their own: see --describe.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Start: ISO 8601, or an age such as 10m.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="End. Default: now.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Center of the interval.")] = None,
    around: Annotated[str, typer.Option("--around", metavar="DURATION", help="Time before and after --at.")] = "5m",
    channel: Annotated[
        list[str] | None,
        typer.Option("--channel", "-c", metavar="NAME", help="Name, or pattern with *. Can be repeated."),
    ] = None,
    installation: Annotated[
        str,
        typer.Option(
            metavar="INSTALLATION",
            help="Only this installation of the database: its plant, its id, or the beginning of that; or all.",
        ),
    ] = "all",
    describe: Annotated[bool, typer.Option("--describe", help="Describe the question and its options.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of rows. 0: all.")] = 40,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask what happened: stuck sensors, replayed signals, first movers. Without NAME, lists the questions."""
    from ops.forensics import ask as forensics

    if name is None:
        forensics.list_questions(Console())
        return
    question = forensics.find_question(name)
    if describe:
        typer.echo(forensics.describe(question))
        return
    time_range = forensics.TimeRange(since, until, at, around)
    answer = forensics.ask(
        State.current(),
        question,
        time_range,
        channel or [],
        forensics.options(question, context.args),
        installation,
    )
    if as_json:
        forensics.write_json(answer)
    elif as_csv:
        forensics.write_csv(answer)
    else:
        forensics.show(answer, limit, Console(), question.summary_columns)
