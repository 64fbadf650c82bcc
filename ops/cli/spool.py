"""``plantlog admin spool``: batches that wait for the database, the journal, and rows in quarantine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from core.formatting import count, wide
from core.paths import State
from core.terminal import Console
from ops.cli.options import AsJson

app = typer.Typer(
    help="Inspect and export the spools, replay the journal, list and retry the rows in quarantine.",
    no_args_is_help=True,
)


@app.command()
def show(as_json: AsJson = False) -> None:
    """Show each spool file with its backlog, damaged files, and batches that were rejected whole."""
    from ops.spool.listing import read_spools, table

    spools = read_spools(State.current())
    if as_json:
        typer.echo(json.dumps(spools, indent=2))
    else:
        wide(Console()).print(table(spools))


@app.command()
def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Name of a spool, such as opcua, or path of a file.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="CSV", help="File to create. Default: standard output.")
    ] = None,
) -> None:
    """Export the samples and texts of a spool file as CSV, even of a damaged file. Changes nothing."""
    from ops.spool.export import export as run

    counts = run(State.current(), file, to)
    typer.echo(f"{count(counts.rows, 'row')} of {count(counts.batches, 'batch')}" + counts.remark, err=True)


@app.command()
def quarantine(
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(min=0, help="Number of rows per reason, newest first.")] = 10,
) -> None:
    """List the rows in quarantine, by reason."""
    from ops.spool.quarantine import list_rows, tables

    rows = list_rows(State.current(), limit)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        wide(Console()).print(tables(rows))


@app.command("accept-database")
def accept_database() -> None:
    """Let the writer use a database that it refuses as a former primary. What it lacks comes from the journal."""
    from ops.spool.replay import accept

    accept(State.current())
    typer.echo("the writer accepts the next database that it reaches; see `plantlog status`")


@app.command()
def replay(
    since: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Start: ISO 8601 (UTC if it has no offset), or an age such as 10m."
        ),
    ],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="End.")] = "now",
    as_json: AsJson = False,
) -> None:
    """Write the data committed in an interval again, from the journal. Batches in the database are skipped."""
    from dataclasses import asdict

    from ops.spool.replay import describe
    from ops.spool.replay import replay as run

    report = run(State.current(), since, until)
    typer.echo(json.dumps(asdict(report)) if as_json else describe(report))


@app.command()
def retry(
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Include rows outside the limits future_limit and oldest.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Retry the rows in quarantine and the batches that were rejected whole. What is written is removed from there."""
    from ops.spool.retry import retry as run

    done = run(State.current(), anyway)
    if as_json:
        typer.echo(json.dumps(done))
        return
    typer.echo(f"quarantine: {count(done['written'], 'row')} written, {done['refused']:,} rejected again", nl=False)
    typer.echo(f", {n:,} outside the time limits (use --anyway)" if (n := done["outside_limits"]) else "")
    typer.echo(f"rejected batches: {done['batches_written']:,} written, {done['batches_refused']:,} rejected again")
