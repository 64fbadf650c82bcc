"""Output of ``plantlog evidence verify rollups``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from core.formatting import count
from history.rollups.verify import Difference, VerificationResult

_MAX_DIFFERENCES = 40  # differences


def report(result: VerificationResult, console: Console) -> bool:
    """Print the outcome; whether there are differences."""
    scope = f"{count(result.channels, 'channel')}, {count(result.days, 'day')}"
    if not result.differences:
        console.print(f"all rollups match their samples: {scope}", highlight=False)
        return False
    table = Table(header_style="bold")
    for name in ("relation", "channel", "bucket", "column", "found", "expected"):
        table.add_column(name, overflow="fold")
    for difference in result.differences[:_MAX_DIFFERENCES]:
        table.add_row(*_format_row(difference))
    console.print(table)
    n = len(result.differences)
    console.print(f"{n:,} difference{'' if n == 1 else 's'} in {scope}", highlight=False)
    return True


def as_json(result: VerificationResult) -> dict[str, Any]:
    """The result for programs."""
    differences = [{**asdict(one), "bucket": one.bucket.isoformat()} for one in result.differences]
    return {"channels": result.channels, "days": result.days, "differences": differences}


def _format_row(one: Difference) -> tuple[str, ...]:
    channel = one.channel if one.state is None else f"{one.channel} in state {one.state:g}"
    if one.column == "row":
        return (
            one.relation,
            channel,
            one.bucket.isoformat(),
            "row",
            "there" if one.found else "missing",
            ("there" if one.expected else "missing"),
        )
    return one.relation, channel, one.bucket.isoformat(), one.column, repr(one.found), repr(one.expected)
