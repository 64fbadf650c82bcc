"""``plantlog status`` as tables for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from core.config.sources import PRIORITIES
from core.formatting import count, duration, table, wide
from core.source_states import UP
from ops.appliance.service import describe_stopped
from ops.appliance.status import StatusMonitor, drift_messages
from ops.maintenance.overload.state import describe as describe_overload

_REFRESH_SECONDS = 1.0
_WIDE = 200
_MAX_BAD_CHANNELS = 3  # bad channels of a source that are named; --channels names all
_GOOD = {"RUNNING", "connected", "standby", "ok"}
_WARNING = {
    *("STARTING", "RESTARTING", "STOPPED", "UNKNOWN"),
    *("starting", "connecting", "degraded", "stopped", "waiting", "skipped"),
}


def live(monitor: StatusMonitor, console: Console) -> None:
    """Show the tables until Ctrl-C."""
    with Live(render(monitor.snapshot()), console=console, screen=False, auto_refresh=False) as shown:
        while True:
            time.sleep(_REFRESH_SECONDS)
            shown.update(render(monitor.snapshot()), refresh=True)


def render(status: dict[str, Any]) -> RenderableType:
    """The tables of one status."""
    title = f"plant {status['plant']}" if status["plant"] else "not started yet"
    drift = (f"[yellow]{escape(line)}[/]" for line in drift_messages(status["configuration"]))
    overload = describe_overload(status["overload"], [job["name"] for job in status["jobs"] if job["waits"]])
    stopped = [f"[yellow]{escape(describe_stopped(status['stopped']))}[/]"] if status["stopped"] else []
    head = [*stopped, *drift, *([f"[yellow]{overload}[/]"] if overload else [])]
    return Group(f"[bold]{escape(title)}[/]  [dim]{escape(status['state'])}[/]", *head, *_tables(status))


def show(monitor: StatusMonitor, console: Console) -> None:
    """Print the tables of one status; where there is no terminal, as wide as they are."""
    wide(console, _WIDE).print(render(monitor.snapshot()))


def _tables(status: dict[str, Any]) -> list[RenderableType]:
    processes = table("process", "state", "ready", ">pid", ">uptime", ">samples", "reason")
    for row in status["processes"]:
        ready = {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[row["ready"]]
        running = row["pid"] is not None
        processes.add_row(
            row["name"],
            _coloured(row["state"]),
            ready,
            str(row["pid"] or ""),
            _span(time.time() - row["since"]) if running else "",
            _number(row["samples"]),
            escape(row["reason"]),
        )
    sources = table("source", "state", ">channels", ">bad", "outage", ">samples/s", ">age", ">reconnects", "reason")
    for row in status["sources"]:
        age = row["last_sample_age_seconds"]
        sources.add_row(
            row["name"],
            _coloured(row["state"]),
            _number(row["channels"]),
            f"[yellow]{len(row['bad_channels'])}[/]" if row["bad_channels"] else "0",
            "[yellow]open[/]" if row["open_gaps"] and row["state"] != "standby" else "",
            "" if row["samples_per_second"] is None else f"{row['samples_per_second']:,.1f}",
            "" if row["samples"] is None else "none yet" if age is None else f"{age:,.1f} s",
            _number(row["reconnects"]),
            escape(_source_remark(row)),
        )
    return [processes, sources, *([_jobs(status["jobs"])] if status["jobs"] else []), _flow(status)]


def _jobs(jobs: list[dict[str, Any]]) -> Table:
    """Table of maintenance jobs: last runs and next ones."""
    shown = table("job", "outcome", ">ended", ">duration", ">rows", ">next", "detail")
    now = time.time()
    for row in jobs:
        running, waits = row["state"] == "running", row["waits"]
        ended = None if row["started_at"] is None else row["started_at"] + row["seconds"]
        shown.add_row(
            row["name"],
            "[green]running[/]" if running else _coloured("waiting" if waits else row["outcome"] or "waiting"),
            "" if ended is None else f"{_span(now - ended)} ago",
            "" if row["seconds"] is None or row["outcome"] == "skipped" else f"{row['seconds']:.1f} s",
            _number(row["rows"]),
            "" if running or waits else f"in {_span(row['next_at'] - now)}",
            escape(waits or row["detail"]),
        )
    return shown


def _source_remark(source: dict[str, Any]) -> str:
    """Reason why a source is not connected, or its first unreadable channel, and other remarks."""
    bad = [f"{name}: {reason}" for name, reason in source["bad_channels"].items()]
    more = (
        f"; and {count(len(bad) - _MAX_BAD_CHANNELS, 'channel')} more: status --channels"
        if len(bad) > _MAX_BAD_CHANNELS
        else ""
    )
    unreadable = ["; ".join(bad[:_MAX_BAD_CHANNELS]) + more] if bad else []
    return str(source["reason"]) or "; ".join([*unreadable, *source.get("remarks", {}).values()])


def bad_channels(status: dict[str, Any]) -> str:
    """Every channel that can't be read, a line each: source, channel and why, with tabs between them.

    A source that is not connected has one line for all of its channels.
    """
    lines = [
        f"{source['name']}\t{channel}\t{reason}"
        for source in status["sources"]
        for channel, reason in (
            source["bad_channels"].items()
            if source["state"] in UP
            else [("all channels", f"{source['state']}: {source['reason']}")]
        )
    ]
    return "\n".join(lines) or "all channels are readable"


def _backlog_text(rows: int) -> str:
    return f"{count(rows, 'row')} waiting"


def _flow(status: dict[str, Any]) -> Table:
    flow = Table.grid(padding=(0, 2))
    for name, spool in status["spools"].items():
        share = f"{_bytes(spool['bytes'])} of {_bytes(spool['max_bytes'])}"
        flow.add_row(f"spool {name}", f"{_backlog_text(spool['rows'])}, {share}")
    if status["alarms"]:
        flow.add_row("alarms", _alarm_text(status["alarms"]))
    if status["notifier"]:
        flow.add_row("notifier", _notifier_text(status["notifier"]))
    for certificate in status["certificates"]:
        flow.add_row("certificate", f"[yellow]{escape(certificate)}[/]")
    if status["writer"]:
        flow.add_row("writer", _writer_text(status["writer"], status["redundancy"]))
    if status["journal"] and (journal := _journal_text(status["journal"])):
        flow.add_row("journal", journal)
    for name, text in _database_rows(status["database"]):
        flow.add_row(name, text)
    return flow


def _database_rows(database: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not database["reachable"]:
        yield "database", f"[red]unreachable[/]: {escape(database['reason'])}"
        return
    versions = f"PostgreSQL {database['postgresql_version']}, TimescaleDB {database['timescaledb_version']}"
    size = f"{_bytes(database['bytes'])}, {count(database['chunks'], 'chunk')}"
    yield "database", escape(f"{database['where']}: {versions} ({database['edition']}), {size}")
    if "," in database["where"]:
        yield "", f"primary {database['server']}, {count(database['standbys'], 'standby')}"
    for problem in database["missing"]:
        yield "", f"[yellow]{escape(problem)}[/]"
    for member in database["members"]:
        yield f"member {member['member']}", escape(member["place"]) + ": " + _member_text(member)
    for other in database["others"]:
        yield "", escape(f"shared with {other}")
    if database["restored"]:
        yield "", f"[yellow]restored {escape(database['restored'])}[/]"
    quarantined = f"{count(database['quarantined'], 'row')} in quarantine"
    gaps = f"{count(database['outages_open'], 'outage')} open, {database['outages_today']:,} since midnight (UTC)"
    installation = database["installation"]
    yield "recorded" + (f" ({escape(installation)})" if installation else ""), f"{gaps}; {quarantined}"


def _writer_text(writer: dict[str, Any], redundancy: dict[str, Any] | None) -> str:
    lag = "nothing written yet" if writer["lag_seconds"] is None else f"lag {writer['lag_seconds']:.3f} s"
    if redundancy and redundancy["role"] == "standby":
        lag = "the other member writes"
    return f"{count(writer['written'], 'sample')} written, {lag}, {_backlog_text(writer['backlog_rows'])}"


def _member_text(member: dict[str, Any]) -> str:
    backlog = _backlog_text(member["backlog_rows"])
    if member["away"]:
        return f"[red]away[/] for {_span(member['age'])}, with {backlog}"
    role = f"[green]writes[/] for {_span(member['held'])}" if member["writes"] else "stands by"
    return f"{role}, {backlog}"


def _journal_text(journal: dict[str, Any]) -> str:
    parts = []
    if journal["begin"] is not None:
        parts.append(f"{_bytes(journal['bytes'])}, reaches back {_span(time.time() - journal['begin'] / 1e6)}")
    if journal["waiting_rows"]:
        parts.append(f"{count(journal['waiting_rows'], 'row')} to be written again")
    if journal["problem"]:
        parts.append(f"[yellow]what is committed now is not kept: {escape(journal['problem'])}[/]")
    return "; ".join(parts)


def _alarm_text(alarms: dict[str, int]) -> str:
    active = [f"{alarms[priority]:,} {priority}" for priority in PRIORITIES if alarms.get(priority)]
    text = f"active: {', '.join(active)}" if active else "none active"
    unacknowledged, inhibited = alarms.get("unacknowledged", 0), alarms.get("inhibited", 0)
    return f"{text}; {unacknowledged:,} unacknowledged, {inhibited:,} shelved or out of service"


def _notifier_text(notifier: dict[str, Any]) -> str:
    failing = "; ".join(f"{target}: {why}" for target, why in notifier["failing"].items())
    waiting = sum(notifier["waiting"].values())
    text = f"{count(notifier['delivered'], 'message')} delivered, {waiting:,} waiting"
    return f"{text}; [red]{escape(failing)}[/]" if failing else text


def _coloured(state: str) -> str:
    colour = "green" if state in _GOOD else "yellow" if state in _WARNING else "red"
    return f"[{colour}]{escape(state.lower())}[/]"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _span(seconds: float) -> str:
    """A duration without parts of a second, which say nothing in a table that is refreshed every second."""
    return duration(max(0, int(seconds)))
