"""Results of a simulated day as tables, one line per simulated hour, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from core.timestamps import utc
from lab.bench.day.hour import Hour
from lab.bench.day.measure import Day
from lab.bench.tables import table

_GIB = 1024**3


def tables(day: Day) -> list[Table]:
    """Speed, CPU, room and balance, memory, and what was found at the end."""
    return [_speed(day.hours), _cpu(day.hours), _room(day.hours), _balance(day.hours), _memory(day.hours), _end(day)]


def _label(hour: Hour) -> str:
    return f"{utc(hour.begin):%d. %H:%M}"


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
    shown = table("speed; lag: longest wait in the spool; CPU and WAL per sample, page images per 1,000", (), heads)
    for hour in hours:
        shown.add_row(
            *(_label(hour), f"{hour.samples:,}", f"{hour.seconds:.0f}", f"{hour.rate:,.0f}", f"{hour.speed:.1f}"),
            *(f"{hour.worst_lag:.1f}", f"{hour.spool_bytes / 1024**2:.0f}", f"{hour.waited:.0f}"),
            *(f"{hour.microseconds():.2f}", f"{hour.wal_bytes:.0f}", f"{hour.wal_images:.2f}"),
        )
    return shown


def _cpu(hours: Sequence[Hour]) -> Table:
    parts = sorted(
        {part for hour in hours for part in hour.cpu}, key=lambda part: -sum(hour.cpu.get(part, 0.0) for hour in hours)
    )
    shown = table("CPU, µs per written sample", ["activity"], [*map(_label, hours)])
    for part in parts:
        shown.add_row(part, *(f"{hour.microseconds(part):.2f}" for hour in hours))
    return shown


def _room(hours: Sequence[Hour]) -> Table:
    heads = ("hour", "rows", "heap GiB", "key GiB", "B/row", "levels", "dead", "vacuums", "packed", "B/sample")
    shown = table("unpacked rows with their key, and packed samples", (), (*heads, "rollups GiB", "disk GiB"))
    for hour in hours:
        key, packed = hour.key_bytes_a_row, hour.packed_bytes_a_sample
        shown.add_row(
            *(_label(hour), f"{hour.rows:,}", f"{hour.heap_bytes / _GIB:.2f}", f"{hour.key_bytes / _GIB:.2f}"),
            *("" if key is None else f"{key:.1f}", "" if hour.key_levels is None else f"{hour.key_levels}"),
            *(f"{hour.dead_rows:,}", f"{hour.vacuums}", f"{hour.packed:,}", "" if packed is None else f"{packed:.2f}"),
            *(f"{hour.rollup_bytes / _GIB:.2f}", f"{hour.disk / _GIB:.2f}"),
        )
    return shown


def _balance(hours: Sequence[Hour]) -> Table:
    heads = ("hour", "oldest row h", "dirty minutes", "sealed days", "dropped")
    shown = table("maintenance: backlog in simulated time, and results", (), heads)
    for hour in hours:
        states = (f"{hour.dirty_minutes:,}", f"{hour.sealed_days}", f"{hour.dropped:,}")
        shown.add_row(_label(hour), f"{hour.oldest_hours:.2f}", *states)
    return shown


def _memory(hours: Sequence[Hour]) -> Table:
    shown = table("memory, MiB", ["process"], [*map(_label, hours)])
    for name in sorted({name for hour in hours for name in hour.memory}):
        shown.add_row(name, *(f"{hour.memory.get(name, 0.0):.0f}" for hour in hours))
    return shown


def _end(day: Day) -> Table:
    shown = Table(title=f"at the end: {day.ended}", box=SIMPLE_HEAD, show_header=False)
    checked = day.checked
    if checked is not None:
        shown.add_row("samples", f"{checked.samples:,}")
        shown.add_row("problems", "\n".join(checked.wrong) or "none: every sample is stored exactly once")
        shown.add_row("seals verified", ", ".join(checked.sealed) or "none: no closed day")
        shown.add_row("channels compared", f"{checked.channels}, including rollups")
        shown.add_row("failed jobs", "\n".join(f"{n} x {error}" for error, n in checked.failed_jobs.items()) or "none")
    return shown


def plot(day: Day, path: Path) -> None:
    """Speed, CPU by part, room, and age of the oldest row over generated time."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (only where a plot is wanted)

    figure = Figure(figsize=(11, 7), layout="constrained")
    (speed, cpu), (room, age) = figure.subplots(2, 2, sharex=True)
    at = [(hour.end - day.hours[0].begin) / 3.6e9 for hour in day.hours]
    speed.plot(at, [hour.rate for hour in day.hours], marker="o")
    names = sorted({part for hour in day.hours for part in hour.cpu})
    cpu.stackplot(at, [[hour.microseconds(name) for hour in day.hours] for name in names], labels=names)
    kinds = {"heap": "heap_bytes", "key": "key_bytes", "packed": "packed_bytes", "rollups": "rollup_bytes"}
    for label, name in kinds.items():
        room.plot(at, [getattr(hour, name) / _GIB for hour in day.hours], marker="o", label=label)
    age.plot(at, [hour.oldest_hours for hour in day.hours], marker="o")
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
