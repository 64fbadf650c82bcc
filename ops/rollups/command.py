"""What ``plantlog verify rollups`` prints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ops.paths import State
from ops.rollups.verify import Difference, Verified, verify_rollups

_SHOWN = 40  # differences


def verify(
    what: Annotated[str, typer.Argument(metavar="rollups", help="What to verify.")],
    since: Annotated[datetime | None, typer.Option("--from", help="The first day (UTC) [the oldest sample's].")] = None,
    until: Annotated[datetime | None, typer.Option("--to", help="Up to this time [now].")] = None,
) -> None:
    """Make rollups anew from their samples and compare them to the bit; exit code 1 where they differ."""
    if what != "rollups":
        raise typer.BadParameter(f"found {what!r}; legal: rollups")
    if report(verify_rollups(State.current(), _utc(since), _utc(until)), Console()):
        raise typer.Exit(1)


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


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
