"""``plantlog alarms``: list alarms and send operator commands (ISA-18.2)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from core.errors import NotAllDone, OperationError
from core.formatting import count, table, threshold_text, wide
from core.paths import State
from core.terminal import Console
from ops.cli.options import AsJson

app = typer.Typer(help="List, acknowledge, shelve and suppress alarms, and take them out of service (ISA-18.2).")

_STATES_SHOWN = (
    "unacknowledged_active",
    "latched_unacknowledged",
    "return_to_normal_unacknowledged",
    "acknowledged_active",
)
_COLOURS = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan"}

_Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="Channel name, or pattern with *.")]
_Limit = Annotated[
    str | None,
    typer.Argument(
        metavar="LIMIT",
        help="Limit: lolo, lo, hi, hihi, rate, stale, bad, or a condition's name. Default: every one that allows it.",
    ),
]
_Who = Annotated[
    str | None, typer.Option("--who", metavar="NAME", help="Your name. It is recorded together with your login.")
]
_Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="Reason. It is recorded.")]


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    include_all: Annotated[bool, typer.Option("--all", help="List every limit of every channel.")] = False,
    as_json: AsJson = False,
) -> None:
    """List alarms that are active or unacknowledged, most urgent first."""
    if context.invoked_subcommand is not None:
        return
    alarms = list_alarms(State.current(), include_all)
    if as_json:
        typer.echo(json.dumps(alarms, indent=2))
        return
    wide(Console()).print(_table(alarms))


@app.command()
def ack(
    channel: _Channel,
    limit: _Limit = None,
    *,
    comment: Annotated[
        str | None, typer.Option("--comment", metavar="TEXT", help="Comment for a server, with who acknowledges.")
    ] = None,
    who: _Who = None,
) -> None:
    """Acknowledge an alarm; a condition of an OPC UA server is acknowledged on the server."""
    _send("ack", channel, limit, who, why=comment)


@app.command()
def shelve(
    channel: _Channel,
    limit: _Limit = None,
    *,
    duration: Annotated[str, typer.Option("--for", metavar="DURATION", help="Duration, such as 2h.")],
    why: _Why,
    who: _Who = None,
) -> None:
    """Shelve an alarm: no notifications for a limited time."""
    from pydantic import TypeAdapter, ValidationError

    from core.config.quantities import AGE_LEGAL, Age

    try:
        seconds = TypeAdapter[float](Age).validate_python(duration, context={"written": True})
    except ValidationError:
        raise OperationError(f"--for {duration!r}: {AGE_LEGAL}") from None
    _send("shelve", channel, limit, who, why=why, seconds=seconds)


@app.command()
def unshelve(channel: _Channel, limit: _Limit = None, who: _Who = None) -> None:
    """End shelving before it expires."""
    _send("unshelve", channel, limit, who)


@app.command()
def suppress(channel: _Channel, limit: _Limit = None, *, why: _Why, who: _Who = None) -> None:
    """Suppress an alarm by design: for plant logic, while the alarm is not relevant."""
    _send("suppress", channel, limit, who, why=why)


@app.command()
def unsuppress(channel: _Channel, limit: _Limit = None, who: _Who = None) -> None:
    """End suppression by design."""
    _send("unsuppress", channel, limit, who)


@app.command("out-of-service")
def out_of_service(channel: _Channel, limit: _Limit = None, *, why: _Why, who: _Who = None) -> None:
    """Take an alarm out of service for maintenance: no notifications until it is returned to service."""
    _send("out-of-service", channel, limit, who, why=why)


@app.command("in-service")
def in_service(channel: _Channel, limit: _Limit = None, who: _Who = None) -> None:
    """Return an alarm to service."""
    _send("in-service", channel, limit, who)


def _send(command: str, channel: str, limit: str | None, who: str | None, **options: Any) -> None:
    from ops.cli.permissions import account, user_name

    state = State.current()
    user = user_name(state)
    if who not in (None, user) and user is not None:
        raise OperationError(f"--who: found {who!r}; legal: {user}, the user who runs the command, or nothing")
    who = who or account(state)
    command_fields = {"action": command, "channel": channel, "limit": limit, "who": who, **options}
    try:
        typer.echo("\n".join(execute(state, command_fields)))
    except NotAllDone as error:
        for line in error.done:
            typer.echo(line)
        raise


def _table(alarms: list[dict[str, Any]]) -> Table:
    columns = ("priority", "channel", "limit", "state", ">since", ">value", ">threshold", "remarks")
    shown = table(*columns, title=count(len(alarms), "alarm"))
    for alarm in alarms:
        priority = alarm["priority"]
        shown.add_row(
            f"[{_COLOURS[priority]}]{priority}[/]",
            escape(alarm["channel"]),
            alarm["limit"],
            alarm["state"].replace("_", " "),
            "" if alarm["since"] is None else _format_time(alarm["since"]),
            "" if alarm["value"] is None else escape(f"{alarm['value']:g} {alarm['unit']}".rstrip()),
            escape(threshold_text(alarm["limit"], alarm["threshold"], alarm["unit"])),
            escape(_remark(alarm)),
        )
    return shown


def _remark(alarm: dict[str, Any]) -> str:
    parts = [alarm["who"] or "", alarm["why"] or ""]
    if alarm["state"] == "acknowledged_active":
        parts.insert(0, f"acknowledged {_format_time(alarm['acknowledged_at'])}")
    if alarm["shelved_until"] is not None:
        parts.insert(0, f"until {_format_time(alarm['shelved_until'])}")
    return ", ".join(part for part in parts if part)


def _format_time(us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(us / 1e6))


def list_alarms(state: State, include_all: bool) -> list[dict[str, Any]]:
    """Alarms that need an operator, most urgent first; with ``include_all`` each limit of each channel.

    Raises OperationError where no collector runs, or one does not answer.
    """
    from core.config.sources import PRIORITIES
    from ingest.alarms import command_socket

    answers = asyncio.run(command_socket.request(state.run, "GET", "/alarms"))
    if not answers:
        raise command_socket.no_collector(state.run)
    alarms = []
    for status, payload in answers:
        if status != 200:
            raise OperationError(payload["error"])
        alarms += payload
    if include_all:
        return sorted(alarms, key=lambda alarm: alarm["channel"])
    shown = [alarm for alarm in alarms if alarm["state"] in _STATES_SHOWN]
    return sorted(
        shown,
        key=lambda a: (_STATES_SHOWN.index(a["state"]), PRIORITIES.index(a["priority"]), -a["since"], a["channel"]),
    )


def execute(state: State, command: Mapping[str, Any]) -> list[str]:
    """Send a command to the collectors; return what was done. Raises as ``command_socket.send``."""
    from ingest.alarms import command_socket

    return asyncio.run(command_socket.send(state.run, command))
