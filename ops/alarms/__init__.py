"""``plantlog alarms``: what an operator sees of the alarms, and does with them."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ingest.config.quantities import AGE_LEGAL, Age
from ingest.errors import OperationError
from ops.alarms import desk
from ops.paths import State

app = typer.Typer(
    help="Show alarms; acknowledge, shelve, suppress them, take them out of service (ISA-18.2).", add_completion=False
)

_WIDE = 160
_COLOURS = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan"}
_AGE: TypeAdapter[float] = TypeAdapter(Age)

_Channel = Annotated[str, typer.Argument(help="A channel's name, or a pattern with *.")]
_Limit = Annotated[
    str | None, typer.Argument(help="lolo, lo, hi, hihi, rate, stale or bad; default: each that it can be done to.")
]
_Who = Annotated[str | None, typer.Option("--who", help="Your name; it is recorded beside your login.")]
_Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the record.")]


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Every limit of every channel, whatever its state.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the alarms that are active or not acknowledged, the most urgent first."""
    if context.invoked_subcommand is not None:
        return
    found = desk.alarms(State.current(), every)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    console.print(_table(found))


@app.command()
def ack(channel: _Channel, limit: _Limit = None, who: _Who = None) -> None:
    """Acknowledge: somebody has seen it."""
    _do("ack", channel, limit, who)


@app.command()
def shelve(
    channel: _Channel,
    limit: _Limit = None,
    *,
    length: Annotated[str, typer.Option("--for", metavar="LENGTH", help="So long, as in 2h; then it ends by itself.")],
    why: _Why,
    who: _Who = None,
) -> None:
    """Tell nobody for a while."""
    try:
        seconds = _AGE.validate_python(length, context={"written": True})
    except ValidationError:
        raise OperationError(f"--for {length!r}: {AGE_LEGAL}") from None
    _do("shelve", channel, limit, who, why=why, seconds=seconds)


@app.command()
def unshelve(channel: _Channel, limit: _Limit = None, who: _Who = None) -> None:
    """The end of shelving, before its time."""
    _do("unshelve", channel, limit, who)


@app.command()
def suppress(channel: _Channel, limit: _Limit = None, *, why: _Why, who: _Who = None) -> None:
    """Suppressed by design: for the plant's own logic, which knows that the alarm means nothing now."""
    _do("suppress", channel, limit, who, why=why)


@app.command()
def unsuppress(channel: _Channel, limit: _Limit = None, who: _Who = None) -> None:
    """The end of suppression by design."""
    _do("unsuppress", channel, limit, who)


@app.command("out-of-service")
def out_of_service(channel: _Channel, limit: _Limit = None, *, why: _Why, who: _Who = None) -> None:
    """Somebody works on it: no alarm until it is in service again."""
    _do("out-of-service", channel, limit, who, why=why)


@app.command("in-service")
def in_service(channel: _Channel, limit: _Limit = None, who: _Who = None) -> None:
    """The end of out of service."""
    _do("in-service", channel, limit, who)


def _do(deed: str, channel: str, limit: str | None, who: str | None, **more: Any) -> None:
    for line in desk.do(State.current(), {"deed": deed, "channel": channel, "limit": limit, "who": who, **more}):
        typer.echo(line)


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{len(found)} alarms" if len(found) != 1 else "1 alarm")
    for column in ("priority", "channel", "limit", "state"):
        table.add_column(column)
    for column in ("since", "value", "threshold"):
        table.add_column(column, justify="right")
    table.add_column("by, until, why")
    for one in found:
        priority = one["priority"]
        table.add_row(
            f"[{_COLOURS[priority]}]{priority}[/]",
            escape(one["channel"]),
            one["limit"],
            one["state"].replace("_", " "),
            "" if one["since"] is None else _clock(one["since"]),
            "" if one["value"] is None else f"{one['value']:g}",
            f"{one['threshold']:g}",
            escape(_remark(one)),
        )
    return table


def _remark(one: dict[str, Any]) -> str:
    parts = [one["who"] or "", one["why"] or ""]
    if one["shelved_until"] is not None:
        parts.insert(0, f"until {_clock(one['shelved_until'])}")
    return ", ".join(part for part in parts if part)


def _clock(us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(us / 1e6))
