"""``plantlog spool``: what waits on its way to the database, and what was kept out of it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ops.paths import State

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415

app = typer.Typer(
    help="Look into the spool and the quarantine: what waits, what was kept out, and how it comes in again.",
    no_args_is_help=True,
)
_WIDE = 160
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def show(as_json: _Json = False) -> None:
    """Show each spool file: what waits in it, and what was found damaged or was set aside."""
    from ops.spool.files import look, table

    found = look(State.current())
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _console().print(table(found))


@app.command()
def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A spool (opcua, push, ...), or a file's path.")],
    to: Annotated[Path | None, typer.Option("--to", metavar="CSV", help="A new file; default: print.")] = None,
) -> None:
    """Write the samples and texts of a spool file, also of a damaged one, as CSV. Changes nothing."""
    from ops.spool.export import export as run

    counts = run(State.current(), file, to)
    typer.echo(f"{counts.rows:,} rows of {counts.batches:,} batches" + counts.remark, err=True)


@app.command()
def quarantine(
    as_json: _Json = False,
    limit: Annotated[int, typer.Option(min=0, help="Rows to list of each reason, the newest.")] = 10,
) -> None:
    """List what was kept out of the tables, by reason."""
    from ops.spool.kept_out import listed, tables

    found = listed(State.current(), limit)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _console().print(tables(found))


@app.command()
def retry(
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also rows whose times are beyond the limits of [writer].")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Write what was kept out, once more: rows in quarantine and batches set aside. What lands leaves its place."""
    from ops.spool.retry import retry as run

    done = run(State.current(), anyway)
    if as_json:
        typer.echo(json.dumps(done))
        return
    typer.echo(f"quarantine: {done['landed']:,} rows landed, {done['refused']:,} were refused again", nl=False)
    typer.echo(f", {done['outside']:,} are beyond the time limits (--anyway takes them)" if done["outside"] else "")
    typer.echo(f"batches set aside: {done['aside_landed']:,} landed, {done['aside_refused']:,} were refused again")


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


def age(seconds: float) -> str:
    """Seconds as people say them: 0:01:40."""
    return str(timedelta(seconds=round(max(0.0, seconds))))
