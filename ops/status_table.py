"""``plantlog status`` as tables for a terminal."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ingest.alarms.limits import PRIORITIES
from ops.drift import words
from ops.overload.state import words as overloaded
from ops.status import Watch
from ops.words import count

_REFRESH_SECONDS = 1.0
_WIDE = 200
_BAD = 3  # bad channels of a source that are named; --channels names all
_GOOD = {"RUNNING", "connected", "ok"}
_MIDDLING = {"STARTING", "RESTARTING", "starting", "connecting", "degraded", "STOPPED", "stopped", "waiting", "skipped"}


def live(watch: Watch, console: Console) -> None:
    """Show the tables until Ctrl-C."""
    with Live(render(watch.first()), console=console, screen=False, auto_refresh=False) as shown:
        while True:
            time.sleep(_REFRESH_SECONDS)
            shown.update(render(watch.look()), refresh=True)


def render(status: dict[str, Any]) -> RenderableType:
    """The tables of one look."""
    title = f"plant {status['plant']}" if status["plant"] else "no plant was started here yet"
    drift = (f"[yellow]{escape(line)}[/]" for line in words(status["configuration"]))
    strained = overloaded(status["overload"], [job["name"] for job in status["jobs"] if job["waits"]])
    head = [*drift, *([f"[yellow]{strained}[/]"] if strained else [])]
    return Group(f"[bold]{escape(title)}[/]  [dim]{escape(status['state'])}[/]", *head, *_tables(status))


def show(watch: Watch, console: Console) -> None:
    """Print the tables of one look; where there is no terminal, as wide as they are."""
    if not console.is_terminal:
        console = Console(width=_WIDE)
    console.print(render(watch.first()))


def _tables(status: dict[str, Any]) -> list[RenderableType]:
    processes = _table("process", "state", "ready", ">pid", ">up", ">samples", "why not")
    for one in status["processes"]:
        ready = {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[one["ready"]]
        running = one["pid"] is not None
        processes.add_row(
            one["name"],
            _coloured(one["state"]),
            ready,
            str(one["pid"] or ""),
            _duration(time.time() - one["since"]) if running else "",
            _number(one["samples"]),
            escape(one["reason"]),
        )
    sources = _table("source", "state", ">channels", ">bad", "outage", ">samples/s", ">newest", ">reconn.", "why")
    for one in status["sources"]:
        age = one["last_sample_age_seconds"]
        sources.add_row(
            one["name"],
            _coloured(one["state"]),
            _number(one["channels"]),
            f"[yellow]{len(one['bad_channels'])}[/]" if one["bad_channels"] else "0",
            "[yellow]open[/]" if one["open_gaps"] else "",
            "" if one["samples_per_second"] is None else f"{one['samples_per_second']:,.1f}",
            "" if one["samples"] is None else "none yet" if age is None else f"{age:,.1f} s",
            _number(one["reconnects"]),
            escape(_why(one)),
        )
    return [processes, sources, *([_jobs(status["jobs"])] if status["jobs"] else []), _flow(status)]


def _jobs(jobs: list[dict[str, Any]]) -> Table:
    """What maintenance did last, and when it does it again."""
    table = _table("job", "outcome", ">ended", ">took", ">rows", ">next", "what")
    now = time.time()
    for one in jobs:
        running, waits = one["state"] == "running", one["waits"]
        ended = None if one["started_at"] is None else one["started_at"] + one["seconds"]
        table.add_row(
            one["name"],
            "[green]running[/]" if running else _coloured("waiting" if waits else one["outcome"] or "waiting"),
            "" if ended is None else f"{_duration(now - ended)} ago",
            "" if one["seconds"] is None or one["outcome"] == "skipped" else f"{one['seconds']:.1f} s",
            _number(one["rows"]),
            "" if running or waits else f"in {_duration(one['next_at'] - now)}",
            escape(waits or one["detail"]),
        )
    return table


def _why(source: dict[str, Any]) -> str:
    """Why a source is not connected, or the first of its channels that can't be read, or what is not as usual."""
    bad = [f"{name}: {reason}" for name, reason in source["bad_channels"].items()]
    more = f"; and {count(len(bad) - _BAD, 'channel')} more: status --channels" if len(bad) > _BAD else ""
    return str(source["reason"]) or "; ".join(bad[:_BAD]) + more or "; ".join(source.get("remarks", {}).values())


def bad_channels(status: dict[str, Any]) -> str:
    """Every channel that can't be read, a line each: source, channel and why, with tabs between them.

    A source that is not connected has one line for all of its channels.
    """
    lines = [
        f"{source['name']}\t{channel}\t{reason}"
        for source in status["sources"]
        for channel, reason in (
            source["bad_channels"].items()
            if source["state"] in ("connected", "degraded")
            else [("all channels", f"{source['state']}: {source['reason']}")]
        )
    ]
    return "\n".join(lines) or "every channel can be read"


def _wait(rows: int) -> str:
    return f"{count(rows, 'row')} waiting"


def _flow(status: dict[str, Any]) -> Table:
    flow = Table.grid(padding=(0, 2))
    for name, spool in status["spools"].items():
        share = f"{_bytes(spool['bytes'])} of {_bytes(spool['max_bytes'])}"
        flow.add_row(f"spool {name}", f"{_wait(spool['rows'])}, {share}")
    if status["alarms"]:
        flow.add_row("alarms", _of_alarms(status["alarms"]))
    if status["notifier"]:
        flow.add_row("notifier", _of_notifier(status["notifier"]))
    for certificate in status["certificates"]:
        flow.add_row("certificate", f"[yellow]{escape(certificate)}[/]")
    writer = status["writer"]
    if writer:
        lag = "nothing written yet" if writer["lag_seconds"] is None else f"lag {writer['lag_seconds']:.3f} s"
        flow.add_row("writer", f"{count(writer['written'], 'sample')} written, {lag}, {_wait(writer['backlog_rows'])}")
    database = status["database"]
    if database["reachable"]:
        what = f"PostgreSQL {database['postgresql_version']}, TimescaleDB {database['timescaledb_version']}"
        size = f"{_bytes(database['bytes'])}, {count(database['chunks'], 'chunk')}"
        flow.add_row("database", escape(f"{database['where']}: {what} ({database['edition']}), {size}"))
        for lack in database["missing"]:
            flow.add_row("", f"[yellow]{escape(lack)}[/]")
        quarantined = f"{count(database['quarantined'], 'row')} in quarantine"
        gaps = f"{count(database['outages_open'], 'outage')} open, {database['outages_today']:,} since midnight (UTC)"
        flow.add_row("on record", f"{gaps}; {quarantined}")
    else:
        flow.add_row("database", f"[red]not reachable[/]: {escape(database['reason'])}")
    return flow


def _of_alarms(alarms: dict[str, int]) -> str:
    active = [f"{alarms[priority]:,} {priority}" for priority in PRIORITIES if alarms.get(priority)]
    text = f"active: {', '.join(active)}" if active else "none active"
    unseen, quiet = alarms.get("unacknowledged", 0), alarms.get("inhibited", 0)
    return f"{text}; {unseen:,} unacknowledged, {quiet:,} shelved or out of service"


def _of_notifier(notifier: dict[str, Any]) -> str:
    failing = "; ".join(f"{target}: {why}" for target, why in notifier["failing"].items())
    waiting = sum(notifier["waiting"].values())
    told = f"{count(notifier['delivered'], 'message')} delivered, {waiting:,} waiting"
    return f"{told}; [red]{escape(failing)}[/]" if failing else told


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns[:-1]:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    table.add_column(columns[-1], overflow="fold")  # reasons: none of them is cut
    return table


def _coloured(state: str) -> str:
    colour = "green" if state in _GOOD else "yellow" if state in _MIDDLING else "red"
    return f"[{colour}]{escape(state.lower())}[/]"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _duration(seconds: float) -> str:
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"
