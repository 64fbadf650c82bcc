"""Benchmark results as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from lab.bench.archive import ArchivedSeries, QueryCost
    from lab.bench.copy_speed import CopySpeed
    from lab.bench.end_to_end import EndToEnd
    from lab.bench.query import QueryTiming
    from lab.bench.question_costs import QuestionCost
    from lab.bench.storage import StorageForm
    from lab.bench.sustained import RateResult


def copy(cells: Sequence[CopySpeed]) -> Table:
    """Rows a second beside plain COPY."""
    table = Table(title="rows/s into the hypertable (median)")
    for column in ("case", "connections", "plain COPY", "spool + writer", "ratio"):
        table.add_column(column, justify="right")
    for cell in cells:
        figures = (f"{cell.plain_copy:,.0f}", f"{cell.spool_and_writer:,.0f}", f"{cell.ratio:.2f}")
        table.add_row(cell.case, str(cell.connections), *figures)
    return table


def end_to_end(runs: Sequence[EndToEnd]) -> Table:
    """Lags of whole runs."""
    table = Table(title="end-to-end lag in seconds, of the oldest and the newest sample of each batch")
    for column in ("target/s", "stored/s", "s", "rows/group", "oldest p50", "oldest p99", "newest p50", "newest p99"):
        table.add_column(column, justify="right")
    for run in runs:
        lags = (run.oldest_p50, run.oldest_p99, run.newest_p50, run.newest_p99)
        table.add_row(
            f"{run.channels * run.hz:,.0f}",
            f"{run.rows_per_second:,.0f}",
            f"{run.seconds:.0f}",
            f"{run.rows_per_group:,.0f}",
            *(f"{lag:.3f}" for lag in lags),
        )
    return table


def sustained(steps: Sequence[RateResult]) -> Table:
    """Lags, bytes and losses over the rate."""
    table = Table(title="lag in seconds of the oldest sample of each batch", box=SIMPLE_HEAD, padding=0)
    for column in ("target/s", "stored/s", "seconds", "p50", "p99", "B/sample", "compared", "missing", "lost", "held"):
        table.add_column(column, justify="right")
    for step in steps:
        run = step.run
        table.add_row(
            *(f"{step.rate:,.0f}", f"{run.rows_per_second:,.0f}", f"{run.seconds:.0f}"),
            *(f"{run.oldest_p50:.3f}", f"{run.oldest_p99:.3f}", f"{step.bytes_per_sample:.1f}"),
            *(f"{step.compared:,}", f"{step.missing:,}", f"{step.silent:,}", "yes" if step.held else "no"),
        )
    return table


def process(runs: Sequence[EndToEnd]) -> Table:
    """CPU and memory of each process."""
    table = Table(title="CPU and memory per process")
    for column in ("samples/s", "process", "CPU %", "CPU µs/sample", "MiB at start", "MiB at end"):
        table.add_column(column, justify="right")
    for run in runs:
        for name, use in run.processes.items():
            per_sample = "" if use.cpu_us_per_sample is None else f"{use.cpu_us_per_sample:.2f}"
            memory = (f"{use.rss_mib[0]:.0f}", f"{use.rss_mib[-1]:.0f}") if use.rss_mib else ("", "")
            share = f"{100 * use.cpu_seconds / run.seconds:.1f}"
            table.add_row(f"{run.channels * run.hz:,.0f}", name, share, per_sample, *memory)
        for activity, us in run.postgres.items():
            share = f"{100 * us / 1e6 * run.rows / run.seconds:.1f}"
            table.add_row(f"{run.channels * run.hz:,.0f}", f"postgres: {activity}", share, f"{us:.2f}", "", "")
    return table


def storage(cells: Sequence[StorageForm]) -> Table:
    """Bytes and times of each form and series; it fits into 80 columns."""
    table = Table(title="one day per channel at 1 Hz; minute averages of one channel, ms", box=SIMPLE_HEAD, padding=0)
    hour_day = (f"{length} {what}" for length in ("1 h", "1 day") for what in ("p50", "p95", "of rows"))
    for column in ("series", "form", "B/sample", "rows/s", *hour_day):
        table.add_column(column, justify="right")
    for cell in cells:
        hour = (f"{cell.hour_p50:.1f}", f"{cell.hour_p95:.1f}", f"{cell.hour_of_rows:.2f}")
        day = (f"{cell.day_p50:.1f}", f"{cell.day_p95:.1f}", f"{cell.day_of_rows:.2f}")
        stored = (f"{cell.bytes_per_sample:.2f}", f"{cell.rows_per_second:,.0f}")
        table.add_row(cell.series, cell.form, *stored, *hour, *day)
    return table


def query(cells: Sequence[QueryTiming], rate: float) -> Table:
    """Query times, shortest intervals first."""
    table = Table(title=f"query times of one channel at 1 Hz, ms, while writing {rate:,.0f} samples/s")
    for column in ("interval", "query", "form", "rows", "p50", "p95"):
        table.add_column(column, justify="right")
    for cell in sorted(cells, key=lambda cell: (cell.rows, cell.kind)):
        table.add_row(cell.length, cell.kind, cell.form, f"{cell.rows:,.0f}", f"{cell.p50:.1f}", f"{cell.p95:.1f}")
    return table


def archived(cells: Sequence[ArchivedSeries]) -> Table:
    """CPU and bytes per sample."""
    table = Table(title="a day in the archive")
    for column in ("series", "samples", "CPU µs/sample to archive it", "B/sample", "B/sample packed in the database"):
        table.add_column(column, justify="right")
    for cell in cells:
        figures = (f"{cell.archive_cpu_us:.2f}", f"{cell.archive_bytes:.2f}", f"{cell.packed_bytes:.2f}")
        table.add_row(cell.series, f"{cell.samples:,}", *figures)
    return table


def archive_queries(cells: Sequence[QueryCost]) -> Table:
    """Seconds, and CPU per sample that is read."""
    table = Table(title="queries of a day: database, then archive")
    for column in ("query", "samples", "s", "CPU ns/sample", "s", "CPU ns/sample", "ratio of CPU"):
        table.add_column(column, justify="right")
    for cell in cells:
        database = (f"{cell.database_seconds:.2f}", f"{cell.database_cpu_ns:.0f}")
        archive = (f"{cell.archive_seconds:.2f}", f"{cell.archive_cpu_ns:.0f}")
        table.add_row(cell.query, f"{cell.samples:,}", *database, *archive, f"{cell.ratio:.1f}")
    return table


def questions(costs: Sequence[QuestionCost]) -> Table:
    """Time, CPU and memory of each question."""
    table = Table(title="questions over archived days, each by a process of its own")
    for column in ("over the", "question", "s", "CPU s", "CPU ns/sample", "peak MiB", "rows"):
        table.add_column(column, justify="left" if column in ("over the", "question") else "right")
    for cost in costs:
        figures = (f"{cost.seconds:.1f}", f"{cost.cpu_seconds:.1f}", f"{cost.cpu_ns:.0f}", f"{cost.peak_mib:,.0f}")
        table.add_row(cost.span, cost.question, *figures, "failed" if cost.rows is None else f"{cost.rows:,}")
    return table
