"""Results of the steps as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from lab.bench.choose.answers import CONFLICT, SCORED
from lab.bench.choose.contestant import Contestant
from lab.bench.choose.matrix import CRITERIA, MatrixRow
from lab.bench.choose.plan import Plan
from lab.bench.choose.results import Result
from lab.bench.choose.steps import CLIENTS, LIMIT_SECONDS, SEEN_SECONDS, SIZES


def listed(contestants: Mapping[str, Contestant]) -> Table:
    """Contestants that can take part here."""
    table = Table(title="contestants", box=SIMPLE_HEAD)
    for column in ("name", "database", "available", "installation", "usage"):
        table.add_column(column, overflow="fold")
    for name, contestant in contestants.items():
        here = contestant.available() or "yes"
        table.add_row(name, contestant.name, here, contestant.installation, contestant.settings)
    return table


def steps(results: Sequence[Result], plan: Plan) -> list[Table]:
    """Steps 1 to 5, and what came back."""
    return [
        _rates("1. ingest against batch size: samples/s, one client", SIZES, results, lambda r: r.by_size),
        _rates("2. ingest against clients: samples/s, best batch size", CLIENTS, results, lambda r: r.by_clients),
        _sustained(results, plan),
        _queries(results, plan),
        _bytes(results),
        _answers(results),
    ]


def matrix(ranked: Sequence[MatrixRow], weights: Mapping[str, float]) -> Table:
    """Step 6."""
    table = _table("6. decision matrix: shares of the best, weighted", "rank", "contestant")
    for criterion in CRITERIA:
        table.add_column(f"{criterion}\n× {weights[criterion]:g}", justify="right")
    table.add_column("score", justify="right")
    for place, row in enumerate(ranked, 1):
        shares = (f"{row.shares[criterion]:.2f}" for criterion in CRITERIA)
        table.add_row(str(place), row.name, *shares, f"{row.score:.3f}")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, justify="left" if column in ("contestant", "check") else "right", overflow="fold")
    return table


def _rates(
    title: str, keys: Sequence[int], results: Sequence[Result], of: Callable[[Result], dict[int, float]]
) -> Table:
    table = _table(title, "contestant", *(f"{key:,}" for key in keys))
    for result in results:
        table.add_row(result.name, *(_figure(of(result).get(key), ",.0f") for key in keys))
    return table


def _sustained(results: Sequence[Result], plan: Plan) -> Table:
    title = (
        f"3. sustained for {plan.hold_seconds:,.0f} s, p99 ≤ {LIMIT_SECONDS:g} s, all visible {SEEN_SECONDS:g} s later"
    )
    table = _table(title, "contestant", "samples/s", "p99 ms", "failed")
    for result in results:
        p99 = None if result.sustained_p99 is None else result.sustained_p99 * 1000
        table.add_row(result.name, _figure(result.sustained, ",.0f"), _figure(p99, ".0f"), result.failed or "")
    return table


def _queries(results: Sequence[Result], plan: Plan) -> Table:
    minutes = plan.interval // 60_000_000
    title = f"4. queries over {minutes} minutes of a random channel, ms, while writing {plan.live_rate:,} samples/s"
    table = _table(title, "contestant", "queries", "raw p50", "raw p95", "by minute p50", "by minute p95", "live p99 s")
    for r in results:
        times = (_figure(ms, ".1f") for ms in (r.raw_p50, r.raw_p95, r.minute_p50, r.minute_p95))
        table.add_row(r.name, f"{r.queries:,}", *times, _figure(r.live_p99, ".3f"))
    return table


def _bytes(results: Sequence[Result]) -> Table:
    table = _table("5. bytes per sample with metadata and indexes", "contestant", "bytes")
    for result in results:
        table.add_row(result.name, _figure(result.bytes_per_sample, ".2f"))
    return table


def _answers(results: Sequence[Result]) -> Table:
    table = _table("correctness", "contestant", "check")
    for result in results:
        others = [
            f"{c}: {result.answers[c]}" for c in (*SCORED, CONFLICT) if result.answers.get(c, "as sent") != "as sent"
        ]
        table.add_row(result.name, "; ".join(others) or ("all as sent" if result.answers else "not compared"))
    return table


def _figure(figure: float | None, form: str) -> str:
    return "-" if figure is None else format(figure, form)
