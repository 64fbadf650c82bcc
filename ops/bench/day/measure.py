"""A run: the appliance, what feeds it, what keeps it, and a look at each end of a generated hour."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ingest.writer.clock import microseconds
from ops import ports
from ops.bench.choose.data import HOUR, SECOND
from ops.bench.day.appliance import Appliance, running
from ops.bench.day.check import Checked, check
from ops.bench.day.hour import Hour, hour
from ops.bench.day.plant import PORTS, configure
from ops.paths import State

_LOOK_SECONDS = 0.5
_LATENESS = HOUR  # as it is by default
_SLACK = HOUR  # of generated time, for which packing may take longer than a real day has
_DRAIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is measured."""

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


@dataclass(slots=True)
class Day:
    """What was found."""

    asked: Asked
    hours: list[Hour] = field(default_factory=list)
    ended: str = ""  # why
    checked: Checked | None = None

    def figures(self) -> dict[str, Any]:
        """All of it."""
        checked = asdict(self.checked) if self.checked is not None else None
        hours = [one.figures() for one in self.hours]
        return {"asked": asdict(self.asked), "ended": self.ended, "checked": checked, "hours": hours}


async def measure(asked: Asked, folder: Path, port: int | None, say: Callable[[str], None]) -> Day:
    """Bring the appliance up in ``folder``, feed it, check it, bring it down."""
    state, start = State(folder / "state"), asked.start
    config = configure(folder / "config", asked.channels, port if port is not None else ports.free_ports(PORTS))
    day, task = Day(asked), asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # nothing is left behind
    async with AsyncExitStack() as stack:
        say(f"bringing up {asked.channels:,} channels")
        appliance = await stack.enter_async_context(running(state, config, start))
        until = start + round(asked.hours * HOUR)
        await appliance.feed(asked.channels, asked.hz, start, until)
        say(f"feeding from {datetime.fromtimestamp(start / 1e6, UTC):%Y-%m-%d %H:%M} UTC on")
        try:
            await _watch(day, appliance, start, until, say)
        finally:
            await appliance.stop_feeding()
        say(f"{day.ended}: what is in the spool is written, then all is counted")
        await appliance.drain(_DRAIN_SECONDS)
        await appliance.stop_keeping()  # nothing is packed while it is counted
        step = round(SECOND / asked.hz)
        day.checked = await check(appliance.owner, state, asked.channels, step, start, appliance.clock.generated)
    return day


async def _watch(day: Day, appliance: Appliance, start: int, until: int, say: Callable[[str], None]) -> None:
    """Until the day, the time or the disk ends; ``day`` has an hour for each that was generated, and for the rest."""
    clock, asked = appliance.clock, day.asked
    began = time.monotonic()
    before = await appliance.look(start)
    while not day.ended:
        oldest = max(start, await appliance.packed_until(asked.channels) or start)
        generated = clock.generated
        await appliance.late(generated - _LATENESS)
        clock.allowed = min(until, oldest + HOUR + _LATENESS + _SLACK)
        if generated >= until:
            day.ended = "the day is over"
        elif time.monotonic() - began > asked.minutes * 60:
            day.ended = "the time is over"
        elif shutil.disk_usage(appliance.state.root).free < asked.keep_free:
            day.ended = "the disk is nearly full"
        elif appliance.feeder_ended:
            day.ended = "the generator ended by itself"
        if day.ended or generated // HOUR > before.generated // HOUR:
            now = await appliance.look(oldest)
            day.hours.append(hour(before, now))
            before = now
            say(_said(day.hours[-1]))
        await asyncio.sleep(_LOOK_SECONDS)
        await appliance.glance()


def _said(one: Hour) -> str:
    begin = datetime.fromtimestamp(one.begin / 1e6, UTC)
    return (
        f"{begin:%H:%M}: {one.rate:,.0f} samples/s, {one.speed:.1f} times as fast as it is; "
        f"{one.microseconds():.1f} µs of CPU a sample; oldest row {one.oldest_hours:.1f} h"
    )
