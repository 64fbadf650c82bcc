"""Benchmark results as tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import mean, median
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from core import formatting

if TYPE_CHECKING:
    from lab.bench.archive import ArchivedSeries, QueryCost
    from lab.bench.cluster_costs import ClusterCost
    from lab.bench.copy_speed import CopySpeed
    from lab.bench.end_to_end import EndToEnd
    from lab.bench.labelled import Finding
    from lab.bench.planning import PlanCost
    from lab.bench.question_costs import QuestionCost
    from lab.bench.sustained import RateResult


def table(title: str, names: Sequence[str], figures: Sequence[str]) -> Table:
    """An empty table: columns of names on the left, then columns of figures."""
    return formatting.table(*names, *(f">{name}" for name in figures), title=title, box=SIMPLE_HEAD)


def copy(cells: Sequence[CopySpeed]) -> Table:
    """Rows a second beside plain COPY."""
    shown = table(
        "rows/s into the hypertable (median)", ["case"], ("connections", "plain COPY", "spool + writer", "ratio")
    )
    for cell in cells:
        figures = (f"{cell.plain_copy:,.0f}", f"{cell.spool_and_writer:,.0f}", f"{cell.ratio:.2f}")
        shown.add_row(cell.case, str(cell.connections), *figures)
    return shown


def end_to_end(runs: Sequence[EndToEnd]) -> Table:
    """Lags of whole runs."""
    title = "end-to-end lag in seconds, of the oldest and the newest sample of each batch"
    heads = ("target/s", "stored/s", "s", "rows/group", "oldest p50", "oldest p99", "newest p50", "newest p99")
    shown = table(title, (), heads)
    for run in runs:
        lags = (run.oldest_p50, run.oldest_p99, run.newest_p50, run.newest_p99)
        shown.add_row(
            f"{run.channels * run.hz:,.0f}",
            f"{run.rows_per_second:,.0f}",
            f"{run.seconds:.0f}",
            f"{run.rows_per_group:,.0f}",
            *(f"{lag:.3f}" for lag in lags),
        )
    return shown


def sustained(steps: Sequence[RateResult]) -> Table:
    """Lags, bytes and losses over the rate."""
    heads = ("target/s", "stored/s", "seconds", "p50", "p99", "B/sample", "compared", "missing", "lost", "held")
    shown = table("lag in seconds of the oldest sample of each batch", (), heads)
    for step in steps:
        run = step.run
        shown.add_row(
            *(f"{step.rate:,.0f}", f"{run.rows_per_second:,.0f}", f"{run.seconds:.0f}"),
            *(f"{run.oldest_p50:.3f}", f"{run.oldest_p99:.3f}", f"{step.bytes_per_sample:.1f}"),
            *(f"{step.compared:,}", f"{step.missing:,}", f"{step.silent:,}", "yes" if step.held else "no"),
        )
    return shown


def process(runs: Sequence[EndToEnd]) -> Table:
    """CPU and memory of each process."""
    heads = ("CPU %", "CPU µs/sample", "MiB at start", "MiB at end")
    shown = table("CPU and memory per process", ("samples/s", "process"), heads)
    for run in runs:
        rate = f"{run.channels * run.hz:,.0f}"
        for name, use in run.processes.items():
            per_sample = "" if use.cpu_us_per_sample is None else f"{use.cpu_us_per_sample:.2f}"
            memory = (f"{use.rss_mib[0]:.0f}", f"{use.rss_mib[-1]:.0f}") if use.rss_mib else ("", "")
            shown.add_row(rate, name, f"{100 * use.cpu_seconds / run.seconds:.1f}", per_sample, *memory)
        for activity, us in run.postgres.items():
            share = f"{100 * us / 1e6 * run.rows / run.seconds:.1f}"
            shown.add_row(rate, f"postgres: {activity}", share, f"{us:.2f}", "", "")
    return shown


def archived(cells: Sequence[ArchivedSeries]) -> Table:
    """CPU and bytes per sample."""
    heads = ("samples", "CPU µs/sample to archive it", "B/sample", "B/sample packed in the database")
    shown = table("a day in the archive", ["series"], heads)
    for cell in cells:
        figures = (f"{cell.archive_cpu_us:.2f}", f"{cell.archive_bytes:.2f}", f"{cell.packed_bytes:.2f}")
        shown.add_row(cell.series, f"{cell.samples:,}", *figures)
    return shown


def archive_queries(cells: Sequence[QueryCost]) -> Table:
    """Seconds, and CPU per sample that is read."""
    heads = ("samples", "s", "CPU ns/sample", "s", "CPU ns/sample", "ratio of CPU")
    shown = table("queries of a day: database, then archive", ["query"], heads)
    for cell in cells:
        database = (f"{cell.database_seconds:.2f}", f"{cell.database_cpu_ns:.0f}")
        archive = (f"{cell.archive_seconds:.2f}", f"{cell.archive_cpu_ns:.0f}")
        shown.add_row(cell.query, f"{cell.samples:,}", *database, *archive, f"{cell.ratio:.1f}")
    return shown


def questions(costs: Sequence[QuestionCost]) -> Table:
    """Time, CPU and memory of each question."""
    heads = ("s", "CPU s", "CPU ns/sample", "peak MiB", "rows")
    shown = table("questions over archived days, each by a process of its own", ("over the", "question"), heads)
    for cost in costs:
        figures = (f"{cost.seconds:.1f}", f"{cost.cpu_seconds:.1f}", f"{cost.cpu_ns:.0f}", f"{cost.peak_mib:,.0f}")
        shown.add_row(cost.span, cost.question, *figures, "failed" if cost.rows is None else f"{cost.rows:,}")
    return shown


def planned(costs: Sequence[PlanCost]) -> Table:
    """Time, memory and accesses of planning."""
    heads = ("samples", "portions", "MB of tasks", "s", "CPU s", "peak MiB", "listings", "files read", "Parquet opened")
    shown = table("planning of questions, each by a process of its own", ["over"], heads)
    for cost in costs:
        figures = (f"{cost.samples:,}", f"{cost.portions:,}", f"{cost.task_bytes / 1e6:,.1f}", f"{cost.seconds:.1f}")
        accesses = (str(cost.listings), f"{cost.reads:,}", f"{cost.opened:,}")
        shown.add_row(cost.span, *figures, f"{cost.cpu_seconds:.1f}", f"{cost.peak_mib:,.0f}", *accesses)
    return shown


def cluster(costs: Sequence[ClusterCost]) -> Table:
    """Work by worker, and what does not depend on their number."""
    by_worker = ("tasks", "most", "CPU s", "most", "MB read", "MB returned")
    heads = (*by_worker, "scheduler CPU s", "asking CPU s", "s", "rows")
    shown = table("questions on a cluster (by worker: mean, and the most)", ("question", "workers"), heads)
    for cost in costs:
        tasks, seconds, read, returned = (
            [getattr(worker, name) for worker in cost.workers]
            for name in ("tasks", "cpu_seconds", "read_mb", "returned_mb")
        )
        asking = cost.asking
        shown.add_row(
            *(asking.question, str(len(cost.workers))),
            *(f"{mean(tasks):.1f}", f"{max(tasks)}", f"{mean(seconds):.2f}", f"{max(seconds):.2f}"),
            *(f"{mean(read):.1f}", f"{mean(returned):.3f}", f"{cost.scheduler_cpu_seconds:.2f}"),
            *(f"{asking.cpu_seconds:.2f}", f"{asking.seconds:.1f}"),
            "failed" if asking.rows is None else f"{asking.rows:,}",
        )
    return shown


def labelled(findings: Sequence[Finding]) -> Table:
    """Events found by each question, and rows about calm windows."""
    heads = ("found", "%", "onset", "early or late", "cause 1-3", "rows", "calm rows", "calm windows", "CPU s")
    shown = table("labelled events (onset: median in samples)", ("recordings", "question", "options"), heads)
    for key, group in groupby(findings, lambda one: (one.project, one.question, one.options)):
        answers = list(group)
        events, calm = [one for one in answers if one.event], [one for one in answers if not one.event]
        n, known = sum(one.found for one in events), [one for one in events if one.has_cause]
        onsets = [one.onset for one in events if one.onset is not None]
        ranked = sum(one.rank is not None and one.rank <= 3 for one in known)
        shown.add_row(
            *key,
            *(f"{n} of {len(events)}", f"{100 * n / max(1, len(events)):.0f}"),
            *(f"{median(onsets):.0f}" if onsets else "", str(sum(abs(onset) > 2 for onset in onsets))),
            *(f"{ranked} of {len(known)}", f"{median(one.rows for one in events):.0f}" if events else ""),
            *(str(sum(one.rows for one in calm)), f"{sum(one.rows > 0 for one in calm)} of {len(calm)}"),
            f"{sum(one.cpu_seconds for one in answers) / max(1, len(answers)):.2f}",
        )
    return shown


def events(findings: Sequence[Finding]) -> Table:
    """Each event."""
    shown = table("events", ("question", "options", "event", "from", "to"), ("rows", "found", "onset", "cause"))
    for one in findings:
        if one.event:
            onset, rank = "" if one.onset is None else f"{one.onset:.0f}", "" if one.rank is None else str(one.rank)
            names = (one.question, one.options, one.event, one.since[:19], one.until[:19])
            shown.add_row(*names, str(one.rows), "yes" if one.found else "no", onset, rank)
    return shown
