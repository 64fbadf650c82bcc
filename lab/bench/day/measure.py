"""A run: a plant of one push source, with a snapshot of the appliance at the end of each simulated hour."""

from __future__ import annotations

import asyncio
import csv
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from core.config import token_file
from core.config.processes import PORTS as HEALTH_PORTS
from core.paths import State
from core.timestamps import microseconds, timestamp, utc
from history import rollups
from history.seals import verify as seal_verification
from lab.bench.data import HOUR, SECOND, channel_names, channel_units
from lab.bench.day.appliance import Appliance, running
from lab.bench.day.hour import Hour, hour
from ops import ports
from schema.queries import load

_POLL_SECONDS = 0.5
_LATENESS = HOUR  # as it is by default
_SLACK = HOUR  # of generated time, for which packing may take longer than a real day has
_DRAIN_SECONDS = 300.0
_CHECKED = 8  # whose seals and rollups are compared
_PORTS = 2 + len(HEALTH_PORTS)
_PLANT = """[plant]
name = "day"

[health]
port = {health}

[viewer]
port = {viewer}

[push]
port = {push}

[retention.default]
raw = "1d"

[[source]]
name = "day"
kind = "push"
token_file = "token"
stale_after = "366d"
tags = "tags.csv"
"""


@dataclass(frozen=True, slots=True)
class DayOptions:
    """Options of the measurement."""

    channels: int
    hz: float
    hours: float
    minutes: float  # of our clock, after which nothing more is generated
    first_hour: int  # of the day (UTC), in which it begins
    keep_free: int  # bytes of the disk

    @property
    def start(self) -> int:
        """µs: of a day from which on all that is generated is past."""
        days = timedelta(days=-(-(self.first_hour + self.hours) // 24) + 1)
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return microseconds(midnight - days) + self.first_hour * HOUR


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check: faults, if there are any."""

    samples: int  # counted
    wrong: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)  # days that were verified
    channels: int = 0  # of which seals and rollups were compared
    failed_jobs: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Day:
    """Results of a day."""

    options: DayOptions
    hours: list[Hour] = field(default_factory=list)
    ended: str = ""  # why
    checked: CheckResult | None = None

    def figures(self) -> dict[str, Any]:
        """Figures for ``--json``."""
        checked = asdict(self.checked) if self.checked is not None else None
        hours = [row.figures() for row in self.hours]
        return {"asked": asdict(self.options), "ended": self.ended, "checked": checked, "hours": hours}


async def measure(options: DayOptions, folder: Path, port: int | None, progress: Callable[[str], None]) -> Day:
    """Bring the appliance up in ``folder``, feed it, check it, bring it down."""
    state, start = State(folder / "state"), options.start
    config = _configure(folder / "config", options.channels, port if port is not None else ports.free_ports(_PORTS))
    day = Day(options)
    async with AsyncExitStack() as stack:
        progress(f"starting the appliance with {options.channels:,} channels")
        appliance = await stack.enter_async_context(running(state, config, start))
        until = start + round(options.hours * HOUR)
        await appliance.feed(options.channels, options.hz, start, until)
        progress(f"feeding from {utc(start):%Y-%m-%d %H:%M} UTC on")
        try:
            await _watch(day, appliance, start, until, progress)
        finally:
            await appliance.stop_generator()
        progress(f"{day.ended}; draining the spool, then counting samples")
        await appliance.drain(_DRAIN_SECONDS)
        await appliance.stop_maintenance()  # nothing is packed while it is counted
        step = round(SECOND / options.hz)
        day.checked = await check(appliance.owner, state, options.channels, step, start, appliance.clock.generated)
    return day


def _configure(folder: Path, channels: int, port: int) -> Path:
    """Write ``plant.toml`` and what it names into ``folder``. ``port``: the first of :data:`_PORTS`."""
    folder.mkdir(parents=True)
    token_file.write(folder / "token", secrets.token_urlsafe(24))
    with (folder / "tags.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("name", "address", "unit"))
        names = channel_names(channels)
        rows.writerows(zip(names, names, channel_units(channels), strict=True))
    config = folder / "plant.toml"
    config.write_text(_PLANT.format(viewer=port, push=port + 1, health=port + 2))
    return config


async def _watch(day: Day, appliance: Appliance, start: int, until: int, progress: Callable[[str], None]) -> None:
    """Measure until the day, the time or the disk ends; ``day`` gets an hour for each generated, and for the rest."""
    clock, options = appliance.clock, day.options
    started_at = time.monotonic()
    before = await appliance.snapshot(start)
    while not day.ended:
        oldest = max(start, await appliance.packed_until(options.channels) or start)
        generated = clock.generated
        await appliance.set_lateness(generated - _LATENESS)
        clock.allowed = min(until, oldest + HOUR + _LATENESS + _SLACK)
        if generated >= until:
            day.ended = "end of the day"
        elif time.monotonic() - started_at > options.minutes * 60:
            day.ended = "time limit"
        elif shutil.disk_usage(appliance.state.root).free < options.keep_free:
            day.ended = "disk nearly full"
        elif appliance.generator_ended:
            day.ended = "generator exited"
        if day.ended or generated // HOUR > before.generated // HOUR:
            now = await appliance.snapshot(oldest)
            day.hours.append(hour(before, now))
            before = now
            progress(_summary(day.hours[-1]))
        await asyncio.sleep(_POLL_SECONDS)
        await appliance.sample()


def _summary(row: Hour) -> str:
    begin = utc(row.begin)
    return (
        f"{begin:%H:%M}: {row.rate:,.0f} samples/s, {row.speed:.1f} times real time; "
        f"{row.microseconds():.1f} µs of CPU a sample; oldest row {row.oldest_hours:.1f} h"
    )


async def check(
    owner: asyncpg.Connection[Any], state: State, channels: int, step: int, start: int, until: int
) -> CheckResult:
    """Check that each channel has a sample a ``step`` (µs) from ``start`` to ``until``, stored once, and that seals and
    rollups match."""
    wrong: list[str] = []
    counted = {row["hour"]: row for row in await owner.fetch(load("day")["count_samples_by_hour"], timestamp(start))}
    for begin in range(start, until, HOUR):
        expected = -(-(min(until, begin + HOUR) - begin) // step)
        row = counted.pop(timestamp(begin), None)
        counts = (row["channels"], row["least"], row["most"]) if row else (0, 0, 0)
        if counts != (channels, expected, expected):
            stored = "{:,} channels with {:,} to {:,} samples each".format(*counts)
            wrong.append(f"{timestamp(begin):%Y-%m-%d %H:%M}: {stored}; {channels:,} with {expected:,} were generated")
    wrong += [f"{at:%Y-%m-%d %H:%M}: {row['samples']:,} samples that were not generated" for at, row in counted.items()]
    total = await owner.fetchval(load("day")["count_written_samples"])
    registered = await owner.fetch(load("rollups")["select_channels"])
    chosen = [registered[int(i)] for i in np.random.default_rng(5).permutation(len(registered))[:_CHECKED]]
    names = [
        row["name"] for row in await owner.fetch(load("rollups")["select_channel_names"], [row["id"] for row in chosen])
    ]
    days = [row["day"] for row in await owner.fetch(load("day")["select_sealed_days"])]
    reader = state.dsn("reader")
    verified = []
    for day in [day for day in days if day >= timestamp(start).date()]:
        [report] = await seal_verification.verify(reader, state, None, day, names)
        verified.append(f"{day}")
        wrong += [] if report.ok else [f"{day} does not match its seal"]
    compared = await rollups.verify(owner, timestamp(start), timestamp(until) + timedelta(seconds=1), chosen)
    wrong += [
        f"{difference.relation} of {difference.channel} at {difference.bucket}: {difference.column}"
        for difference in compared.differences
    ]
    failed = {
        f"{row['job']}: {row['detail']}": row["n"] for row in await owner.fetch(load("day")["select_failed_runs"])
    }
    return CheckResult(total, wrong, verified, len(chosen), failed)
