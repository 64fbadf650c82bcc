"""Commands that read what is stored: ``plantlog ask``, ``sql`` and ``psql``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import OperationError
from core.formatting import count
from core.imports import quick_imports
from core.paths import State
from core.terminal import Console
from ops.cli.options import AsCsv, AsJson, Channels, Limit, Memory, Output, PlantNames, PlantsFile, Threads, Timeout

if TYPE_CHECKING:
    from history.sql.sources.execution import Limits

_TABLE_NAME = re.compile(r"[A-Za-z_]\w*")
_MAX_ITEMS = 3  # of a list in a table
_ONE_FORM = "--output cannot be combined with --csv and --json"
_MEMORY, _THREADS, _TIMEOUT = "2GiB", 2, "10m"


def ask(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Question. Some have options of their own: see --describe.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Start: ISO 8601 (UTC if it has no offset), or an age such as 10m."
        ),
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="End. Default: now.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Center of the interval.")] = None,
    around: Annotated[str, typer.Option("--around", metavar="DURATION", help="Time before and after --at.")] = "5m",
    channel: Channels = None,
    installation: Annotated[
        str,
        typer.Option(
            metavar="INSTALLATION",
            help="Only this installation of the database: its plant, its id, or the beginning of that; or all.",
        ),
    ] = "all",
    plants: PlantsFile = None,
    plant: PlantNames = None,
    describe: Annotated[bool, typer.Option("--describe", help="Describe the question and its options.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the channels of the rows, too: .png or .svg; needs requirements-analysis.lock. "
            "Only for engineers.",
        ),
    ] = None,
    output: Output = None,
    limit: Limit = 40,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
    memory: Memory = _MEMORY,
    threads: Threads = _THREADS,
    timeout: Timeout = _TIMEOUT,
) -> None:
    """Ask what happened: stuck sensors, replayed signals, first movers. Without NAME, lists the questions.

    Questions that compare have --reference FROM..TO, a time before the interval, or calm: the last calm day.
    """
    with quick_imports():
        from core.process.scheduling import lower_priority
        from history.questions import ask as questions

    if name is None:
        _list_questions(Console())
        return
    question = questions.find_question(name)
    if describe:
        typer.echo(questions.describe(question))
        return
    with quick_imports():
        from history.sql import file_output
        from history.sql import output as printed

    lower_priority()  # ingest goes first
    if output is not None and (as_csv or as_json):
        raise OperationError(_ONE_FORM)
    time_range = questions.TimeRange(since, until, at, around)
    limits = _limits(memory, threads, timeout)
    options = questions.parse_options(question, context.args)
    of_plants = questions.chosen_plants(plants, plant or [])
    with limits.deadline(), ExitStack() as stack:
        partial = None if output is None else stack.enter_context(file_output.begun(output))
        table, note = questions.answer(
            State.current(), question, time_range, channel or [], options, installation, limits, plot, of_plants
        )
        if output is not None and partial is not None:
            file_output.write_table(table, output, partial)
    if (as_json or as_csv or output is not None) and note:
        typer.echo(note, err=True)
    if output is not None:
        typer.echo(f"{output}: {count(table.num_rows, 'row')}")
        return
    answer = printed.Answer.of_table(table, note)
    if as_json:
        printed.write_json(answer)
    elif as_csv:
        printed.write_csv(answer)
    else:
        printed.show(answer, limit, Console(), question.summary_columns, _MAX_ITEMS)


def _list_questions(console: Console) -> None:
    from rich.markup import escape
    from rich.table import Table

    from core.formatting import wide
    from schema.question_files import questions

    table = Table(box=None, show_header=False, pad_edge=False)
    for item in questions().values():
        table.add_row(f"[bold]{item.name}[/]", escape(item.purpose))
    shown = wide(console)
    shown.print(table)
    shown.print(
        "\nplantlog ask NAME --from TIME --to TIME [--channel 'unit/*'] …; plantlog ask NAME --describe", style="dim"
    )


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
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Make a file of yours, CSV or Parquet, a table. Only for engineers. Can be repeated.",
        ),
    ] = None,
    output: Output = None,
    time_zone: Annotated[
        str, typer.Option(metavar="ZONE", help="Zone of times that are shown, and without an offset: Europe/Berlin.")
    ] = "UTC",
    plants: PlantsFile = None,
    plant: PlantNames = None,
    limit: Limit = 40,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
    memory: Memory = _MEMORY,
    threads: Threads = _THREADS,
    timeout: Timeout = _TIMEOUT,
) -> None:
    """Query samples, events and gaps of database and archive together, by DuckDB."""
    with quick_imports():
        from core.process.scheduling import lower_priority
        from history.sql import output as printed
        from history.sql.session import opened

        if answers:
            from history.questions.ask import tables
        if table:
            from history.sql.own_tables import LEGAL
        if output is not None:
            from history.sql import file_output

    lower_priority()  # ingest goes first
    form = printed.Form(limit, as_csv, as_json, Console())
    limits = _limits(memory, threads, timeout)
    state = State.current()
    questions = _by_name("--with", answers, "NAME='QUESTION --from TIME …', as for `plantlog ask`")
    files = _by_name("--table", table, LEGAL, questions) if table else {}
    if output is not None and (as_csv or as_json):
        raise OperationError(_ONE_FORM)
    is_prompt = query is None and output is None and sys.stdin.isatty()
    text = sys.stdin.read() if query is None and not is_prompt else query or ""
    rows = None
    with limits.deadline() as deadline, ExitStack() as stack:
        partial = None if output is None else stack.enter_context(file_output.begun(output))
        archives = of_plants = None
        if plants is not None or plant:
            from history.questions.ask import chosen_plants
            from history.sql.sources.plants import PlantArchives

            of_plants = chosen_plants(plants, plant or [])
            assert of_plants is not None
            archives = PlantArchives(of_plants, limits=limits)
        others, notes = tables(state, questions, limits, of_plants) if questions else ({}, [])
        own = {name: Path(file) for name, file in files.items()}
        session = stack.enter_context(
            opened(state, limits, others=others, files=own, writable=partial, time_zone=time_zone, archives=archives)
        )
        for note in (*notes, *session.notes, *(archives.notes() if archives is not None else ())):
            typer.echo(f"note: {note}", err=True)
        if output is not None and partial is not None:
            rows = file_output.write(session, text, output, partial, Console(stderr=True))
        elif is_prompt:
            deadline.cancel()  # each query has its own
            printed.prompt(session, form)
        else:
            printed.answer(session, text, form)
    if rows is not None:
        typer.echo(f"{output}: {count(rows, 'row')}")


def _by_name(option: str, texts: Sequence[str] | None, legal: str, taken: Iterable[str] = ()) -> dict[str, str]:
    """Values of ``NAME=…`` by the names of tables, for which capital letters are no difference. ``taken``: other ones.

    Raises OperationError.
    """
    values, names = dict[str, str](), {name.lower() for name in taken}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not _TABLE_NAME.fullmatch(name) or not value.strip():
            raise OperationError(f"{option}: found {text!r}; legal: {legal}")
        if name.lower() in names:
            raise OperationError(f"{option} {name}: found twice; legal: another name for {value}")
        names.add(name.lower())
        values[name] = value
    return values


def _limits(memory: str, threads: int, timeout: str) -> Limits:
    from core.durations import parse_duration
    from history.sql.sources.execution import Limits

    return Limits(memory, threads, parse_duration("--timeout", timeout).total_seconds())


def psql(context: typer.Context) -> None:
    """Run psql with the read-only login. Arguments are passed on to psql.

    -c SQL alone is for every role. Other arguments, files and the prompt are for engineers: psql can start programs.
    """
    import subprocess

    from ops.appliance.database import archived_until, psql_command
    from ops.appliance.service import check_own_database
    from ops.cli.permissions import sql_only

    check_own_database(State.current())
    statements = sql_only(context.args)
    command, environment = psql_command(State.current(), statements or ())
    if (day := archived_until(State.current())) is not None:
        hint = f"samples of some days up to {day} are only in the archive: `plantlog sql` reads both"
        typer.echo(hint, err=True)
    passed_on = context.args if statements is None else ()
    with subprocess.Popen([*command, *passed_on], env=environment) as process:
        while process.poll() is None:
            with suppress(KeyboardInterrupt):  # it ends a query of psql, not this
                process.wait()
    raise typer.Exit(process.returncode)
