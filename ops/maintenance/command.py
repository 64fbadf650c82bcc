"""``plantlog maintenance`` and ``plantlog retention``: what is done by itself, and what would go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

import asyncpg
import typer
from rich.console import Console
from rich.table import Table

from ingest.errors import DatabaseError, OperationError
from ops.maintenance.jobs import jobs
from ops.maintenance.process import site_in
from ops.maintenance.retain import Plan, plan, table_rows
from ops.maintenance.run import Job, Ran, Site, connect, run
from ops.paths import State
from schema.queries import load

_SECONDS = 300.0
_WIDE = 200
_MIB = 1024**2
Result = TypeVar("Result")


def list_jobs(state: State, as_json: bool) -> None:
    """The jobs with their last runs."""
    rows = [dict(row) for row in _answered(_runs(site_in(state)))]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, default=str))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("job", "every", "what it does", "last run (UTC)", "outcome", "took", "rows", "detail"):
        table.add_column(column, no_wrap=column != "detail")
    for job, row in zip(jobs(), rows, strict=True):
        table.add_row(job.name, _span(job.every), job.about, *_last_run(row))
    _console().print(table)


def _last_run(row: dict[str, Any]) -> tuple[str, ...]:
    began, ended = row["started_at"], row["ended_at"]
    if began is None:
        return "", "never ran", "", "", ""
    took = "" if ended is None or row["outcome"] == "skipped" else f"{(ended - began).total_seconds():.1f} s"
    rows = "" if row["rows"] is None else f"{row['rows']:,}"
    return f"{began:%Y-%m-%d %H:%M:%S}", row["outcome"] or "running", took, rows, row["detail"]


def run_job(state: State, name: str) -> bool:
    """Run a job until no work is left; whether it did not fail."""
    chosen = {job.name: job for job in jobs()}
    if name not in chosen:
        raise OperationError(f"there is no job {name}: one of {', '.join(chosen)}")
    ran = _answered(_until_done(chosen[name], site_in(state)))
    said = f"{name}: {ran.outcome} in {ran.ended - ran.started:.1f} s"
    said += "" if ran.done.rows is None else f", {ran.done.rows:,} rows"
    typer.echo(said + (f": {ran.done.detail}" if ran.done.detail else ""))
    return ran.outcome != "failed"


def show_plan(state: State, as_json: bool) -> None:
    """What retention would drop now."""
    now = _answered(_planned(site_in(state)))
    if as_json:
        verdict = {"bytes": now.size, "disk_budget": now.budget, "lacking": now.lacking}
        typer.echo(json.dumps({**verdict, "slices": table_rows(now.slices)}, indent=2))
        return
    console = _console()
    console.print(_tabled(now))
    console.print(_verdict(now))


def _tabled(now: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("from (UTC)", "to", "kind", "table", "classes", ">channels", ">rows", ">MiB", "why", "what is done"):
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    done = {"chunk": "whole chunk goes", "rows": "rows go", "unsealed": "stays: no seal yet", "open": "stays: open"}
    done["dirty"] = "stays: rollups to be made"
    for one in now.slices:
        table.add_row(
            f"{one.from_time:%Y-%m-%d}",
            f"{one.to_time:%Y-%m-%d}",
            one.what,
            one.relation.removeprefix("plant."),
            ", ".join(one.retention),
            f"{one.channels:,}",
            f"{one.rows:,}",
            f"{one.bytes / _MIB:,.1f}",
            one.why,
            done[one.action],
        )
    return table


def _verdict(now: Plan) -> str:
    freed = sum(one.bytes for one in now.slices if one.action == "chunk")
    said = f"{freed / _MIB:,.1f} MiB of {now.size / _MIB:,.1f} MiB would be freed"
    if now.budget is not None:
        said += f"; the disk budget is {now.budget / _MIB:,.1f} MiB"
    if now.lacking:
        said += f" and can't be reached ({now.lacking / _MIB:,.1f} MiB lack): nothing goes for it"
    return said


async def _runs(site: Site) -> list[Any]:
    connection = await connect(site.dsn, "plantlog maintenance", _SECONDS)
    try:
        return list(await connection.fetch(load("maintenance")["runs"], [job.name for job in jobs()]))
    finally:
        await connection.close()


async def _planned(site: Site) -> Plan:
    connection = await connect(site.dsn, "plantlog retention", _SECONDS)
    try:
        return await plan(connection)
    finally:
        await connection.close()


async def _until_done(job: Job, site: Site) -> Ran:
    while True:
        ran = await run(job, site)
        if not ran.done.more:
            return ran


def _answered(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        return asyncio.run(work)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DatabaseError(f"the database: {type(error).__name__}: {error}") from error


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)
