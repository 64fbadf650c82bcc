"""Output of ``plantlog admin maintenance`` and ``plantlog admin retention``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import typer
from rich.markup import escape
from rich.table import Table

from core.database import FAILURES
from core.errors import DatabaseError, OperationError
from core.formatting import table, wide
from core.paths import State
from core.terminal import Console
from ops.maintenance.job import Job, JobContext, JobRun, connected, run
from ops.maintenance.jobs import jobs
from ops.maintenance.process import job_context
from ops.maintenance.retention import RetentionPlan, plan, table_rows
from schema.queries import load

_TIMEOUT = 300.0
_WIDE = 200
_MIB = 1024**2
Result = TypeVar("Result")


def list_jobs(state: State, as_json: bool) -> None:
    """The jobs with their last runs."""
    rows = [dict(row) for row in _run(_runs(job_context(state)))]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, default=str))
        return
    shown = table("job", "interval", "description", "last run (UTC)", "outcome", "duration", "rows", "detail")
    for job, row in zip(jobs(), rows, strict=True):
        shown.add_row(job.name, _format_duration(job.every), escape(job.about), *map(escape, _last_run(row)))
    wide(Console(), _WIDE).print(shown)


def _last_run(row: dict[str, Any]) -> tuple[str, ...]:
    began, ended = row["started_at"], row["ended_at"]
    if began is None:
        return "", "never run", "", "", ""
    took = "" if ended is None or row["outcome"] == "skipped" else f"{(ended - began).total_seconds():.1f} s"
    rows = "" if row["rows"] is None else f"{row['rows']:,}"
    return f"{began:%Y-%m-%d %H:%M:%S}", row["outcome"] or "running", took, rows, row["detail"]


def run_jobs(state: State, names: Sequence[str]) -> bool:
    """Run jobs one after the other, each until no work is left; whether none failed."""
    jobs_by_name = {job.name: job for job in jobs()}
    if unknown := [name for name in names if name not in jobs_by_name]:
        raise OperationError(f"unknown job {unknown[0]}; legal: {', '.join(jobs_by_name)}")
    succeeded = [_run_job(state, jobs_by_name[name]) for name in names]
    return all(succeeded)


def _run_job(state: State, job: Job) -> bool:
    job_run = _run(_run_until_done(job, job_context(state)))
    message = f"{job.name}: {job_run.outcome} in {job_run.ended - job_run.started:.1f} s"
    message += "" if job_run.done.rows is None else f", {job_run.done.rows:,} rows"
    typer.echo(message + (f": {job_run.done.detail}" if job_run.done.detail else ""))
    return job_run.outcome != "failed"


def show_plan(state: State, as_json: bool) -> None:
    """Show what retention would drop now."""
    now = _run(_planned(job_context(state)))
    if as_json:
        summary = {"bytes": now.size, "disk_budget": now.budget, "lacking": now.lacking}
        typer.echo(json.dumps({**summary, "slices": table_rows(now.slices)}, indent=2))
        return
    console = wide(Console(), _WIDE)
    console.print(_plan_table(now))
    console.print(_plan_summary(now))


def _plan_table(now: RetentionPlan) -> Table:
    columns = ("from (UTC)", "to", "kind", "table", "classes", ">channels", ">rows", ">MiB", "reason", "action")
    shown = table(*columns)
    action_texts = {
        "chunk": "drop chunk",
        "rows": "delete rows",
        "unsealed": "keep: not sealed",
        "unarchived": "keep: not archived",
        "open": "keep: not closed",
        "dirty": "keep: rollups pending",
    }
    for slice_ in now.slices:
        shown.add_row(
            f"{slice_.from_time:%Y-%m-%d}",
            f"{slice_.to_time:%Y-%m-%d}",
            slice_.what,
            slice_.relation.removeprefix("plant."),
            ", ".join(slice_.retention),
            f"{slice_.channels:,}",
            f"{slice_.rows:,}",
            f"{slice_.bytes / _MIB:,.1f}",
            slice_.why,
            action_texts[slice_.action],
        )
    return shown


def _plan_summary(now: RetentionPlan) -> str:
    freed = sum(slice_.bytes for slice_ in now.slices if slice_.action == "chunk")
    message = f"{freed / _MIB:,.1f} MiB of {now.size / _MIB:,.1f} MiB would be freed"
    if now.budget is not None:
        message += f"; the disk budget is {now.budget / _MIB:,.1f} MiB"
    if now.lacking:
        message += f" and cannot be met ({now.lacking / _MIB:,.1f} MiB short): nothing is dropped for it"
    return message


async def _runs(context: JobContext) -> list[Any]:
    async with connected(context.dsn, "plantlog maintenance", _TIMEOUT) as connection:
        names, per_installation = [job.name for job in jobs()], [job.name for job in jobs() if job.per_installation]
        return list(
            await connection.fetch(load("maintenance")["select_runs"], names, per_installation, context.installation)
        )


async def _planned(context: JobContext) -> RetentionPlan:
    async with connected(context.dsn, "plantlog retention", _TIMEOUT) as connection:
        return await plan(connection)


async def _run_until_done(job: Job, context: JobContext) -> JobRun:
    while True:
        job_run = await run(job, context)
        if not job_run.done.more:
            return job_run


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        return asyncio.run(work)
    except FAILURES as error:
        raise DatabaseError(f"database error: {type(error).__name__}: {error}") from error


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
