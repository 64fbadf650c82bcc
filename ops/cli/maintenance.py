"""``plantlog admin maintenance``."""

from __future__ import annotations

from typing import Annotated

import typer

from core.paths import State
from ops.cli.options import AsJson

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415

app = typer.Typer(help="List the maintenance jobs with their last runs, or run one now.")


@app.callback(invoke_without_command=True)
def listed(context: typer.Context, as_json: AsJson = False) -> None:
    """List the maintenance jobs with their last runs."""
    if context.invoked_subcommand is None:
        from ops.maintenance.report import list_jobs

        list_jobs(State.current(), as_json)


@app.command(name="run")
def run_now(names: Annotated[list[str], typer.Argument(metavar="JOB", help="Jobs to run, in this order.")]) -> None:
    """Run jobs now. Safe while the appliance is running."""
    from ops.appliance.stopped import check_own_database
    from ops.maintenance.report import run_jobs

    check_own_database(State.current())
    if not run_jobs(State.current(), names):
        raise typer.Exit(1)
