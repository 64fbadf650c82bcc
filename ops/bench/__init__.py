"""``plantlog bench``: what this machine can do, beside a reference in the same run."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(help="Measure what this machine can do, beside a reference in the same run.", no_args_is_help=True)

_console = Console(stderr=True)


@app.callback()
def bench() -> None:
    """Keep ``ingest`` a command of its own."""


@app.command()
def ingest(
    rows: Annotated[int, typer.Option(help="Rows of each COPY cell.")] = 4_000_000,
    channels: Annotated[int, typer.Option(help="Channels of the COPY cells.")] = 20_000,
    repeats: Annotated[int, typer.Option(help="Pairs of a COPY cell; the medians are shown.")] = 3,
    rates: Annotated[str, typer.Option(help="End-to-end samples/s, comma separated; '' for none.")] = "10,1000,20000",
    seconds: Annotated[float, typer.Option(help="Length of an end-to-end run.")] = 120.0,
    hold: Annotated[float, typer.Option(help="Length of the last (highest) end-to-end run.")] = 600.0,
    output: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Spool + writer beside plain COPY through psql; CPU a sample and lag of the whole appliance under load."""
    from ops.bench import copy_speed, end_to_end, server  # noqa: PLC0415  (slow imports only when used)

    result: dict[str, Any] = {"machine": _machine(), "copy": [], "end_to_end": []}

    def say(line: str) -> None:
        _console.print(f"  {line}", highlight=False)

    with tempfile.TemporaryDirectory(prefix="plantlog-bench-") as folder:
        if repeats:
            with server.private(Path(folder)) as where:
                load = asyncio.run(copy_speed.prepare(where, channels, max(1, rows // channels)))
                cells = asyncio.run(copy_speed.measure(where, load, (1, 2, 4), repeats, say))
            result["copy"] = [{**asdict(cell), "ratio": cell.ratio} for cell in cells]
            Console().print(_copy_table(cells))
        wanted = [float(rate) for rate in rates.split(",") if rate]
        runs = []
        for rate in wanted:
            length = hold if rate == wanted[-1] and len(wanted) > 1 else seconds
            state = Path(folder) / f"state-{rate:.0f}"
            runs.append(asyncio.run(end_to_end.measure(int(rate), 1.0, length, state, say)))
        result["end_to_end"] = [asdict(run) for run in runs]
        if runs:
            Console().print(_end_to_end_table(runs))
            Console().print(_process_table(runs))
    if output is not None:
        output.write_text(json.dumps(result, indent=2) + "\n")


@app.command()
def storage(
    channels: Annotated[int, typer.Option(min=1, help="Channels, each with a day at 1 Hz, of each series.")] = 30,
    queries: Annotated[int, typer.Option(min=1, help="Queries of an hour, and at most as many of a day.")] = 100,
    output: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Bytes a sample and query times of rows, packed hours and (Community) columnstore, for noisy to slow series."""
    from ops.bench import server  # noqa: PLC0415  (slow imports only when used)
    from ops.bench.storage import measure  # noqa: PLC0415

    def say(line: str) -> None:
        _console.print(f"  {line}", highlight=False)

    with tempfile.TemporaryDirectory(prefix="plantlog-bench-") as folder, server.private(Path(folder)) as where:
        cells = asyncio.run(measure(where.owner_dsn, channels, queries, say))
    Console().print(_storage_table(cells))
    if output is not None:
        result = {"machine": _machine(), "storage": [asdict(cell) for cell in cells]}
        output.write_text(json.dumps(result, indent=2) + "\n")


def _storage_table(cells: list[Any]) -> Table:
    table = Table(title="a day of each channel at 1 Hz; one channel by the minute, ms")
    for column in ("series", "form", "B/sample", "rows/s in", "1 h p50", "1 h p95", "1 day p50", "1 day p95"):
        table.add_column(column, justify="right")
    for cell in cells:
        took = (cell.hour_p50, cell.hour_p95, cell.day_p50, cell.day_p95)
        figures = (f"{cell.bytes_per_sample:.2f}", f"{cell.rows_per_second:,.0f}", *(f"{ms:.1f}" for ms in took))
        table.add_row(cell.series, cell.form, *figures)
    return table


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 1024**3, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _copy_table(cells: list[Any]) -> Table:
    table = Table(title="rows/s into the hypertable (median)")
    for column in ("case", "connections", "plain COPY", "spool + writer", "ratio"):
        table.add_column(column, justify="right")
    for cell in cells:
        figures = (f"{cell.plain_copy:,.0f}", f"{cell.spool_and_writer:,.0f}", f"{cell.ratio:.2f}")
        table.add_row(cell.case, str(cell.connections), *figures)
    return table


def _end_to_end_table(runs: list[Any]) -> Table:
    table = Table(title="plant → table: lag in seconds, of the worst-off and the best-off sample of each batch")
    for column in ("asked/s", "stored/s", "seconds", "worst p50", "worst p99", "best p50", "best p99"):
        table.add_column(column, justify="right")
    for run in runs:
        lags = (run.oldest_p50, run.oldest_p99, run.newest_p50, run.newest_p99)
        table.add_row(
            f"{run.channels * run.hz:,.0f}",
            f"{run.rows_per_second:,.0f}",
            f"{run.seconds:.0f}",
            *(f"{lag:.3f}" for lag in lags),
        )
    return table


def _process_table(runs: list[Any]) -> Table:
    table = Table(title="CPU and memory of each process")
    for column in ("samples/s", "process", "CPU %", "CPU µs/sample", "MiB first", "MiB last"):
        table.add_column(column, justify="right")
    for run in runs:
        for name, use in run.processes.items():
            per_sample = "" if use.cpu_us_per_sample is None else f"{use.cpu_us_per_sample:.2f}"
            memory = (f"{use.rss_mib[0]:.0f}", f"{use.rss_mib[-1]:.0f}") if use.rss_mib else ("", "")
            share = f"{100 * use.cpu_seconds / run.seconds:.1f}"
            table.add_row(f"{run.channels * run.hz:,.0f}", name, share, per_sample, *memory)
    return table
