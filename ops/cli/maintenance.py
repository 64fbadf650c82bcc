"""``plantlog maintenance`` and ``plantlog retention``."""

from __future__ import annotations

from typing import Annotated

import typer

from core.paths import State

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415

app = typer.Typer(help="List the maintenance jobs with their last runs, or run one now.")
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback(invoke_without_command=True)
def listed(context: typer.Context, as_json: _Json = False) -> None:
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


def retention(as_json: _Json = False) -> None:
    """Show what retention would drop now, and why. Changes nothing."""
    from ops.maintenance.report import show_plan

    show_plan(State.current(), as_json)
