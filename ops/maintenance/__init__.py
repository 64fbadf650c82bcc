"""What keeps the database in shape by itself: rollups, compression, seals, retention, statistics, chunks ahead."""

from __future__ import annotations

from typing import Annotated

import typer

from ops.paths import State

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415

app = typer.Typer(help="List the jobs that keep the database in shape, with their last runs; run one now.")
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback(invoke_without_command=True)
def listed(context: typer.Context, as_json: _Json = False) -> None:
    """List the jobs with their last runs."""
    if context.invoked_subcommand is None:
        from ops.maintenance.command import list_jobs

        list_jobs(State.current(), as_json)


@app.command(name="run")
def run_now(name: Annotated[str, typer.Argument(metavar="JOB", help="As listed.")]) -> None:
    """Run a job now, in this process. Does no harm while the appliance runs it too."""
    from ops.maintenance.command import run_job

    if not run_job(State.current(), name):
        raise typer.Exit(1)


def retention(as_json: _Json = False) -> None:
    """Say what retention would drop now, and why. It drops by itself: this changes nothing."""
    from ops.maintenance.command import show_plan

    show_plan(State.current(), as_json)
