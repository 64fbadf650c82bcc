"""Benchmark results as tables."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table


def copy(cells: list[Any]) -> Table:
    """Rows a second beside plain COPY."""
    table = Table(title="rows/s into the hypertable (median)")
    for column in ("case", "connections", "plain COPY", "spool + writer", "ratio"):
        table.add_column(column, justify="right")
    for cell in cells:
        figures = (f"{cell.plain_copy:,.0f}", f"{cell.spool_and_writer:,.0f}", f"{cell.ratio:.2f}")
        table.add_row(cell.case, str(cell.connections), *figures)
    return table


def end_to_end(runs: list[Any]) -> Table:
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


def sustained(steps: list[Any]) -> Table:
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


def process(runs: list[Any]) -> Table:
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
        for kind, per_sample in run.postgres.items():
            share = f"{100 * per_sample / 1e6 * run.rows / run.seconds:.1f}"
            table.add_row(f"{run.channels * run.hz:,.0f}", f"postgres: {kind}", share, f"{per_sample:.2f}", "", "")
    return table


def groups(costs: list[Any]) -> Table:
    """CPU and WAL per row."""
    table = Table(title="cost per row in PostgreSQL's ingest connection")
    for column in ("settings", "rows per group", "CPU µs", "WAL bytes", "full pages"):
        table.add_column(column, justify="right")
    for cost in costs:
        group = f"{cost.group:,}{', after checkpoint' if cost.after_checkpoint else ''}"
        figures = (f"{cost.cpu_us:.2f}", f"{cost.wal_bytes:.0f}", f"{cost.full_pages:.4f}")
        table.add_row(cost.settings or "default", group, *figures)
    return table


def journal(costs: list[Any]) -> Table:
    """CPU and bytes per sample of the writer's process."""
    table = Table(title="cost per sample in the writer")
    for column in ("journal", "CPU µs", "bytes in the journal", "bytes to disk", "memory MiB"):
        table.add_column(column, justify="right")
    for cost in costs:
        figures = (f"{cost.cpu_us:.3f}", f"{cost.journal_bytes:.2f}", f"{cost.disk_bytes:.1f}", f"{cost.rss_mib:.0f}")
        table.add_row("yes" if cost.journal else "no", *figures)
    return table


def storage(cells: list[Any]) -> Table:
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


def query(cells: list[Any], rate: float) -> Table:
    """Query times, shortest intervals first."""
    table = Table(title=f"query times of one channel at 1 Hz, ms, while writing {rate:,.0f} samples/s")
    for column in ("interval", "query", "form", "rows", "p50", "p95"):
        table.add_column(column, justify="right")
    for cell in sorted(cells, key=lambda cell: (cell.rows, cell.kind)):
        table.add_row(cell.length, cell.kind, cell.form, f"{cell.rows:,.0f}", f"{cell.p50:.1f}", f"{cell.p95:.1f}")
    return table


def counters(ways: list[Any], types: int, connections: int, load: float) -> Table:
    """Increments per second of each method."""
    title = f"increments of {types:,} types, {connections} connections; load average before: {load:.1f}"
    table = Table(title=title)
    for column in ("method", "increments/s", "min", "max", "ratio"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for way in ways:
        rates = (way.increments_per_second, min(way.rounds), max(way.rounds))
        table.add_row(way.way, *(f"{rate:,.0f}" for rate in rates), f"{way.ratio:,.1f}")
    return table


def alarms(shares: list[Any]) -> Table:
    """CPU of alarm evaluation beside that of ingest."""
    table = Table(title="CPU, µs per sample; alarms also as a percentage of decode + spool + writer")
    for column in ("batch size", "decode", "spool", "writer", *(f"alarms, {name}" for name in shares[0].stage)):
        table.add_column(column, justify="right")
    for share in shares:
        judged = (f"{us:.4f} ({100 * us / share.ingest:.1f} %)" for us in share.stage.values())
        figures = (f"{share.decode:.3f}", f"{share.spool:.3f}", f"{share.writer:.3f}", *judged)
        table.add_row(f"{share.batch:,}", *figures)
    return table


def overload(cases: list[Any]) -> Table:
    """Effects of each overload, and the recovery time."""
    table = Table(
        title="overload: seconds until recovery; CPU µs per sample of the appliance", box=SIMPLE_HEAD, padding=0
    )
    heads = ("s", "lost", "with gap", "gaps", "rows", "lag", "polls", "CPU", "after", "ratio")
    table.add_column("overload", no_wrap=True)
    for column in heads:
        table.add_column(column, justify="right", no_wrap=True)
    for case in cases:
        table.add_row(
            case.name,
            "never" if case.recovered is None else f"{case.recovered:.1f}",
            f"{case.lost:,}",
            f"{case.recorded:,}",
            f"{case.gaps:,}",
            f"{case.gap_rows:,}",
            f"{case.worst_lag:.1f}",
            f"{case.worst_pace:.1f}" if case.worst_pace else "",
            f"{case.cpu_before.sum:.1f}",
            f"{case.cpu_after.sum:.1f}",
            f"{case.cpu_ratio:.2f}",
        )
    return table


def flooded(cases: list[Any]) -> Table:
    """Pushed lines by outcome; the gateways do not wait for responses."""
    pushed = [case for case in cases if case.gateway]
    gateways = max((case.gateway["gateways"] for case in pushed), default=0)
    table = Table(title=f"lines/s of {gateways} gateways that do not wait for responses", box=SIMPLE_HEAD, padding=0)
    heads = ("asked", "offered", "taken", "refused", "unanswered", "wrong", "stored")
    table.add_column("overload", no_wrap=True)
    for column in heads:
        table.add_column(column, justify="right", no_wrap=True)
    for case in pushed:
        table.add_row(case.name, *(f"{case.gateway.get(head, 0) / case.seconds:,.0f}" for head in heads))
    return table


def archived(cells: list[Any]) -> Table:
    """CPU and bytes per sample."""
    table = Table(title="a day in the archive")
    for column in ("series", "samples", "CPU µs/sample to archive it", "B/sample", "B/sample packed in the database"):
        table.add_column(column, justify="right")
    for cell in cells:
        figures = (f"{cell.archive_cpu_us:.2f}", f"{cell.archive_bytes:.2f}", f"{cell.packed_bytes:.2f}")
        table.add_row(cell.series, f"{cell.samples:,}", *figures)
    return table


def archive_queries(cells: list[Any]) -> Table:
    """Seconds, and CPU per sample that is read."""
    table = Table(title="queries of a day: database, then archive")
    for column in ("query", "samples", "s", "CPU ns/sample", "s", "CPU ns/sample", "ratio of CPU"):
        table.add_column(column, justify="right")
    for cell in cells:
        database = (f"{cell.database_seconds:.2f}", f"{cell.database_cpu_ns:.0f}")
        archive = (f"{cell.archive_seconds:.2f}", f"{cell.archive_cpu_ns:.0f}")
        table.add_row(cell.query, f"{cell.samples:,}", *database, *archive, f"{cell.ratio:.1f}")
    return table


def questions(costs: list[Any]) -> Table:
    """Time, CPU and memory of each question."""
    table = Table(title="questions over archived days, each by a process of its own")
    for column in ("over the", "question", "s", "CPU s", "CPU ns/sample", "peak MiB", "rows"):
        table.add_column(column, justify="left" if column in ("over the", "question") else "right")
    for cost in costs:
        figures = (f"{cost.seconds:.1f}", f"{cost.cpu_seconds:.1f}", f"{cost.cpu_ns:.0f}", f"{cost.peak_mib:,.0f}")
        table.add_row(cost.span, cost.question, *figures, "failed" if cost.rows is None else f"{cost.rows:,}")
    return table
