"""The day as tables for people, a line a generated hour, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ops.bench.day.hour import Hour
from ops.bench.day.measure import Day

_GIB = 1024**3


def tables(day: Day) -> list[Table]:
    """Speed, CPU, room and balance, memory, and what was found at the end."""
    return [_speed(day.hours), _cpu(day.hours), _room(day.hours), _balance(day.hours), _memory(day.hours), _end(day)]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=0)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _clock(one: Hour) -> str:
    return f"{datetime.fromtimestamp(one.begin / 1e6, UTC):%d. %H:%M}"


def _speed(hours: Sequence[Hour]) -> Table:
    heads = (
        "hour",
        "samples",
        "s",
        "samples/s",
        "speed",
        "lag s",
        "spool MiB",
        "waited s",
        "µs CPU",
        "WAL B",
        "images",
    )
    table = _table("speed; lag: the longest wait in the spool; CPU, WAL and page images (a thousand) a sample", *heads)
    for one in hours:
        table.add_row(
            *(_clock(one), f"{one.samples:,}", f"{one.seconds:.0f}", f"{one.rate:,.0f}", f"{one.speed:.1f}"),
            *(f"{one.worst_lag:.1f}", f"{one.spool_bytes / 1024**2:.0f}", f"{one.waited:.0f}"),
            *(f"{one.microseconds():.2f}", f"{one.wal_bytes:.0f}", f"{one.wal_images:.2f}"),
        )
    return table


def _cpu(hours: Sequence[Hour]) -> Table:
    parts = sorted(
        {part for one in hours for part in one.cpu}, key=lambda part: -sum(one.cpu.get(part, 0.0) for one in hours)
    )
    table = _table("CPU, µs a sample that was written", "part", *(_clock(one) for one in hours))
    for part in parts:
        table.add_row(part, *(f"{one.microseconds(part):.2f}" for one in hours))
    return table


def _room(hours: Sequence[Hour]) -> Table:
    heads = ("hour", "rows", "heap GiB", "key GiB", "B/row", "levels", "dead", "vacuums", "packed", "B/sample")
    table = _table("rows that are not packed, their key, and what is packed", *heads, "rollups GiB", "disk GiB")
    for one in hours:
        key, packed = one.key_bytes_a_row, one.packed_bytes_a_sample
        table.add_row(
            *(_clock(one), f"{one.rows:,}", f"{one.heap_bytes / _GIB:.2f}", f"{one.key_bytes / _GIB:.2f}"),
            *("" if key is None else f"{key:.1f}", "" if one.key_levels is None else f"{one.key_levels}"),
            *(f"{one.dead_rows:,}", f"{one.vacuums}", f"{one.packed:,}", "" if packed is None else f"{packed:.2f}"),
            *(f"{one.rollup_bytes / _GIB:.2f}", f"{one.disk / _GIB:.2f}"),
        )
    return table


def _balance(hours: Sequence[Hour]) -> Table:
    heads = ("hour", "oldest row h", "dirty minutes", "sealed days", "dropped")
    table = _table("what waits for maintenance, in generated time, and what it did", *heads)
    for one in hours:
        states = (f"{one.dirty_minutes:,}", f"{one.sealed_days}", f"{one.dropped:,}")
        table.add_row(_clock(one), f"{one.oldest_hours:.2f}", *states)
    return table


def _memory(hours: Sequence[Hour]) -> Table:
    table = _table("memory, MiB", "process", *(_clock(one) for one in hours))
    for name in sorted({name for one in hours for name in one.memory}):
        table.add_row(name, *(f"{one.memory.get(name, 0.0):.0f}" for one in hours))
    return table


def _end(day: Day) -> Table:
    table = Table(title=f"at the end: {day.ended}", box=SIMPLE_HEAD, show_header=False)
    checked = day.checked
    if checked is not None:
        table.add_row("samples", f"{checked.samples:,}")
        table.add_row("wrong", "\n".join(checked.wrong) or "nothing: each sample is there once")
        table.add_row("seals verified", ", ".join(checked.sealed) or "none: no day was closed")
        table.add_row("channels compared", f"{checked.channels}, with their rollups")
        table.add_row("failed jobs", "\n".join(f"{n} x {said}" for said, n in checked.failed_jobs.items()) or "none")
    return table


def plot(day: Day, path: Path) -> None:
    """Speed, CPU by part, room, and age of the oldest row over generated time."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (only where a plot is wanted)

    figure = Figure(figsize=(11, 7), layout="constrained")
    (speed, cpu), (room, age) = figure.subplots(2, 2, sharex=True)
    at = [(one.end - day.hours[0].begin) / 3.6e9 for one in day.hours]
    speed.plot(at, [one.rate for one in day.hours], marker="o")
    names = sorted({part for one in day.hours for part in one.cpu})
    cpu.stackplot(at, [[one.microseconds(name) for one in day.hours] for name in names], labels=names)
    kinds = {"heap": "heap_bytes", "key": "key_bytes", "packed": "packed_bytes", "rollups": "rollup_bytes"}
    for label, name in kinds.items():
        room.plot(at, [getattr(one, name) / _GIB for one in day.hours], marker="o", label=label)
    age.plot(at, [one.oldest_hours for one in day.hours], marker="o")
    titles = ("samples/s", "CPU, µs a sample", "GiB", "age of the oldest row, h")
    for axes, title in zip((speed, cpu, room, age), titles, strict=True):
        axes.set_title(title, fontsize=11)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
    for axes in (cpu, room):
        axes.legend(frameon=False, fontsize=7)
    for axes in (room, age):
        axes.set_xlabel("generated hours")
    figure.savefig(path)
