"""What ``plantlog verify rollups`` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from ops.rollups.verify import Difference, Verified

_SHOWN = 40  # differences


def report(verified: Verified, console: Console) -> bool:
    """Print the outcome; whether there are differences."""
    scope = f"{verified.channels:,} channels, {verified.days} days"
    if not verified.differences:
        console.print(f"rollups are what their samples give: {scope}", highlight=False)
        return False
    table = Table(header_style="bold")
    for name in ("relation", "channel", "bucket", "column", "found", "expected"):
        table.add_column(name, overflow="fold")
    for difference in verified.differences[:_SHOWN]:
        table.add_row(*_in_words(difference))
    console.print(table)
    n = len(verified.differences)
    console.print(f"{n:,} difference{'' if n == 1 else 's'} in {scope}", highlight=False)
    return True


def as_json(verified: Verified) -> dict[str, Any]:
    """The same for programs."""
    differences = [{**asdict(one), "bucket": one.bucket.isoformat()} for one in verified.differences]
    return {"channels": verified.channels, "days": verified.days, "differences": differences}


def _in_words(one: Difference) -> tuple[str, ...]:
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
