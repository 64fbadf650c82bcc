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
    differences = [{**asdict(difference), "bucket": difference.bucket.isoformat()} for difference in result.differences]
    return {"channels": result.channels, "days": result.days, "differences": differences}


def _format_row(difference: Difference) -> tuple[str, ...]:
    channel = difference.channel if difference.state is None else f"{difference.channel} in state {difference.state:g}"
    if difference.column == "row":
        return (
            difference.relation,
            channel,
            difference.bucket.isoformat(),
            "row",
            "there" if difference.found else "missing",
            ("there" if difference.expected else "missing"),
        )
    return (
        difference.relation,
        channel,
        difference.bucket.isoformat(),
        difference.column,
        repr(difference.found),
        repr(difference.expected),
    )
