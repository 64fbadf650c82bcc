"""Results of overloads as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from lab.bench.overload.measure import OverloadResult
from lab.bench.tables import table


def overload(cases: Sequence[OverloadResult]) -> Table:
    """Effects of each overload, and the recovery time."""
    heads = ("s", "lost", "with gap", "gaps", "rows", "lag", "polls", "CPU", "after", "ratio")
    shown = table("overload: seconds until recovery; CPU µs per sample of the appliance", ["overload"], heads)
    for case in cases:
        shown.add_row(
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
    return shown


def flooded(cases: Sequence[OverloadResult]) -> Table:
    """Pushed lines by outcome; the gateways do not wait for responses."""
    pushed = [case for case in cases if case.gateway]
    gateways = max((case.gateway["gateways"] for case in pushed), default=0)
    heads = ("asked", "offered", "taken", "refused", "unanswered", "wrong", "stored")
    shown = table(f"lines/s of {gateways} gateways that do not wait for responses", ["overload"], heads)
    for case in pushed:
        shown.add_row(case.name, *(f"{case.gateway.get(head, 0) / case.seconds:,.0f}" for head in heads))
    return shown
