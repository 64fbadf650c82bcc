"""Each case: the appliance as it is, the strain for a while, and what there is after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ingest.batch import now_us
from ops.bench.overload.appliance import Appliance, Seen, appliance
from ops.bench.overload.strains import at_most, busy, slowed
from ops.overload.measure import Pressure
from simulator.compare import compare

_LOOK_SECONDS = 0.5
_LOOKS = 6  # in a row that are as before
_MOST_SECONDS = 180.0  # after which a case has not recovered
_AGE_SECONDS = 1.5  # behind its interval the newest sample of a source may be
_LAG_SECONDS = 1.5  # that the oldest batch may wait
_LANDED_US = 5_000_000
_HOLDS_SECONDS = 10.0
_FASTEST = 1e7  # lines/s that nobody sends


@dataclass(frozen=True, slots=True)
class Asked:
    """Which cases, and how long."""

    channels: int
    hz: float
    seconds: float
    busy: tuple[int, ...] = ()
    load: tuple[float, ...] = ()  # times what the machine holds
    database: tuple[float, ...] = ()  # share of the time in which the database runs
    window: float = 10.0  # s before and after, over which CPU is measured


@dataclass(slots=True)
class Case:
    """What one strain did."""

    name: str
    recovered: float | None  # s after its end until all was as before; None: it was not
    lost: int  # samples that were published, are not in the table, and no gap says so
    recorded: int  # the same, and a gap says so
    gap_reasons: dict[str, tuple[int, int]]  # rows, and gaps: channels share some
    samples: float  # a second, stored before
    samples_during: float
    worst_lag: float  # s
    worst_pace: float  # s between two polls; 0: as configured
    overloaded: bool  # the appliance said so
    cpu_before: float  # µs a stored sample, all processes but the plant
    cpu_after: float
    pressure: float  # CPU pressure before: what else the machine does
    gateway: dict[str, int] = field(default_factory=dict)  # lines that were taken and refused, and stored
    examples: list[str] = field(default_factory=list)

    @property
    def gap_rows(self) -> int:
        """Rows in the table of gaps."""
        return sum(rows for rows, _ in self.gap_reasons.values())

    @property
    def gaps(self) -> int:
        """The same, those of one source and time as one."""
        return sum(gaps for _, gaps in self.gap_reasons.values())

    @property
    def cpu_ratio(self) -> float:
        """CPU a sample after it, of that before."""
        return self.cpu_after / self.cpu_before if self.cpu_before else 0.0

    def json(self) -> dict[str, Any]:
        """For ``--json``."""
        sums = {"gap_rows": self.gap_rows, "gaps": self.gaps, "cpu_ratio": round(self.cpu_ratio, 3)}
        return {**asdict(self), **sums}


async def measure(asked: Asked, folder: Path, say: Callable[[str], None]) -> list[Case]:
    """All cases, one after the other, on one appliance."""
    say(f"bringing up {asked.channels:,} channels at {asked.hz:g} Hz")
    cases: list[Case] = []
    async with appliance(folder, asked.channels, asked.hz) as running:
        await asyncio.sleep(2 * asked.window)  # connections, first chunk, caches
        for number in asked.busy:
            cases.append(await _case(f"{number} busy", busy(number), running, asked, say))
        for share in asked.database:
            strain = slowed(running.postgres, share)
            cases.append(await _case(f"database × {share:g}", strain, running, asked, say))
        if asked.load:
            say("how much it holds")
            holds = await at_most(_FASTEST, running.flood, _HOLDS_SECONDS, running.written)
            say(f"it holds {holds:,.0f} samples/s")
            await _until(running, _calm(asked))
            for times in asked.load:
                flood = running.flood.at(times * holds, max(1, round(times)))
                case = await _case(f"load × {times:g}", flood, running, asked, say)
                case.gateway["asked_per_second"] = round(times * holds)
                cases.append(case)
    return cases


async def _case(
    name: str,
    strain: AbstractAsyncContextManager[None],
    running: Appliance,
    asked: Asked,
    say: Callable[[str], None],
) -> Case:
    say(f"{name}: before")
    start = now_us()
    pressure = Pressure()
    pressure.look()
    before, cpu_before = await _window(running, asked.window)
    pressed = pressure.look()
    rate = (before[1].samples - before[0].samples) / (before[1].at - before[0].at)
    taken, refused, flooded = running.flood.taken, running.flood.refused, await running.flooded()
    worst_lag = worst_pace = 0.0
    overloaded = False
    say(f"{name}: {asked.seconds:.0f} s of it, after {rate:,.0f} samples/s with {cpu_before:.1f} µs each")
    async with _watched(running) as looks, strain:
        begun, written = time.monotonic(), await asyncio.to_thread(running.written)
        await asyncio.sleep(asked.seconds)
        during = (await asyncio.to_thread(running.written) - written) / (time.monotonic() - begun)
    recovered = await _until(running, _calm(asked), looks)
    for seen in looks:
        worst_lag, worst_pace = max(worst_lag, seen.lag), max(worst_pace, seen.pace)
        overloaded |= seen.overloaded
    said = "all is as before" if recovered is not None else f"not as before after {_MOST_SECONDS:.0f} s"
    say(f"{name}: {said}" + (f" after {recovered:.1f} s" if recovered is not None else ""))
    _, cpu_after = await _window(running, asked.window)
    gaps = await running.gaps_since(start)
    say(
        f"{name}: gaps: "
        + (", ".join(f"{number:,} {why} in {n:,} rows" for why, (n, number) in gaps.items()) or "none")
    )
    stored = await running.flooded() - flooded
    gateway = {"taken": running.flood.taken - taken, "refused": running.flood.refused - refused, "stored": stored}
    compared = (await compare(running.truth, running.owner, start, now_us() - _LANDED_US))["all"]
    lost = compared.missing_silent + max(0, gateway["taken"] - stored)
    return Case(
        name, recovered, lost, compared.missing_recorded, gaps, rate, during, worst_lag, worst_pace, overloaded,
        cpu_before, cpu_after, pressed, gateway if gateway["taken"] else {},
        compared.examples if compared.missing_silent else [],
    )  # fmt: skip


async def _window(running: Appliance, seconds: float) -> tuple[tuple[Seen, Seen], float]:
    """A look at its begin and at its end, and CPU µs a sample that was written between."""
    first, used = await asyncio.to_thread(running.look), running.cpu()
    await asyncio.sleep(seconds)
    last, then = await asyncio.to_thread(running.look), running.cpu()
    return (first, last), (then - used) / max(1, last.written - first.written) * 1e6


@asynccontextmanager
async def _watched(running: Appliance) -> AsyncIterator[list[Seen]]:
    """Looks that are taken inside the block, a second apart."""
    looks: list[Seen] = []

    async def watch() -> None:
        while True:
            looks.append(await asyncio.to_thread(running.look))
            await asyncio.sleep(1.0)

    task = asyncio.create_task(watch())
    try:
        yield looks
    finally:
        task.cancel()
        await asyncio.wait((task,))


def _calm(asked: Asked) -> Callable[[Seen, Seen], bool]:
    """Whether all is as before at a look: every source in time, no poll missed since the one before, nothing waits."""

    def judge(before: Seen, now: Seen) -> bool:
        in_time = now.connected and now.age < 1 / asked.hz + _AGE_SECONDS
        return in_time and now.missed == before.missed and now.pace == 0.0 and now.lag < _LAG_SECONDS

    return judge


async def _until(
    running: Appliance, calm: Callable[[Seen, Seen], bool], looks: list[Seen] | None = None
) -> float | None:
    """Seconds from now until looks in a row are calm, up to the first of them; None: they are not."""
    began = time.monotonic()
    seen = [await asyncio.to_thread(running.look)]
    in_a_row = 0
    while time.monotonic() - began < _MOST_SECONDS:
        await asyncio.sleep(_LOOK_SECONDS)
        seen.append(await asyncio.to_thread(running.look))
        in_a_row = in_a_row + 1 if calm(seen[-2], seen[-1]) else 0
        if in_a_row >= _LOOKS:
            if looks is not None:
                looks += seen
            return max(0.0, seen[-_LOOKS].at - began)
    if looks is not None:
        looks += seen
    return None
