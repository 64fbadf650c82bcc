"""Each case: the appliance as it is, the strain for a while, and what there is after it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ingest.batch import now_us
from ops.bench.overload.appliance import Appliance, appliance
from ops.bench.overload.flood import GATEWAYS, LINES
from ops.bench.overload.strains import busy, slowed
from ops.overload.calm import Seen, as_before
from ops.overload.measure import Pressure
from simulator.compare import compare

_MOST_SECONDS = 180.0  # after which a case has not recovered
_LANDED_US = 5_000_000
_HOLDS_SECONDS = 10.0


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
    warm_up: float = 20.0  # s; the first minutes after a start are made from what is stored


@dataclass(slots=True)
class Case:
    """What one strain did."""

    name: str
    seconds: float
    recovered: float | None  # s after its end until all was as before; None: it was not
    lost: int  # samples that were published, are not in the table, and no gap says so
    recorded: int  # the same, and a gap says so
    gap_reasons: dict[str, tuple[int, int]]  # rows, and gaps: channels share some
    samples: float  # a second, stored before
    samples_during: float
    worst_lag: float  # s that the oldest batch of what is polled or subscribed to waited for the database
    worst_pace: float  # s between two polls; 0: as configured
    overloaded: bool  # the appliance said so
    cpu_before: float  # µs a stored sample, all processes but the plant
    cpu_after: float
    pressure: float  # CPU pressure before: what else the machine does
    memory_mib: dict[str, tuple[float, float]]  # of each process before, and the most since
    spool_mib: float  # the most that all spools were
    left: list[str]  # what was not as before in the end
    gateway: dict[str, int] = field(default_factory=dict)  # how many, lines by answer, and what was stored of them
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
        await asyncio.sleep(asked.warm_up)
        for number in asked.busy:
            cases.append(await _case(f"{number} busy", busy(number), running, asked, say))
        for share in asked.database:
            strain = slowed(running.postgres, share)
            cases.append(await _case(f"database × {share:g}", strain, running, asked, say))
        if asked.load:
            say("how much it holds")
            await running.flood.introduce()
            holds = await running.flood.at_most(_HOLDS_SECONDS, running.written)
            say(f"it holds {holds:,.0f} samples/s")
            await as_before(running.look, time.monotonic(), 1 / asked.hz, _MOST_SECONDS)
            for times in asked.load:
                flood = running.flood.at(times * holds)
                case = await _case(f"load × {times:g}", flood, running, asked, say)
                case.gateway = {"gateways": GATEWAYS, "asked": round(times * holds * asked.seconds), **case.gateway}
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
    rate = (_samples(before[1]) - _samples(before[0])) / (before[1].at - before[0].at)
    told, taken = Counter(running.flood.told), set(running.flood.taken)
    memory = await asyncio.to_thread(running.memory)
    say(f"{name}: {asked.seconds:.0f} s of it, after {rate:,.0f} samples/s with {cpu_before:.1f} µs each")
    async with _watched(running) as (looks, largest):
        async with strain:
            begun, written = time.monotonic(), await asyncio.to_thread(running.written)
            await asyncio.sleep(asked.seconds)
            during = (await asyncio.to_thread(running.written) - written) / (time.monotonic() - begun)
            ended = time.monotonic()
        after = await as_before(running.look, ended, 1 / asked.hz, _MOST_SECONDS)
    looks += after.looks
    recovered = None if after.left else after.seconds
    said = f"not as before after {after.seconds:.0f} s: {'; '.join(after.left)}"
    say(f"{name}: " + (said if after.left else f"all is as before after {after.seconds:.1f} s"))
    _, cpu_after = await _window(running, asked.window)
    gaps = await running.gaps_since(start)
    say(
        f"{name}: gaps: "
        + (", ".join(f"{number:,} {why} in {n:,} rows" for why, (n, number) in gaps.items()) or "none")
    )
    gateway, unstored = await _pushed(running, running.flood.told - told, running.flood.taken - taken, start)
    compared = (await compare(running.truth, running.owner, start, now_us() - _LANDED_US))["all"]
    return Case(
        name,
        asked.seconds,
        recovered,
        compared.missing_silent + unstored,
        compared.missing_recorded,
        gaps,
        rate,
        during,
        max(seen.lag for seen in looks),
        max(seen.pace for seen in looks),
        any(seen.overloaded for seen in looks),
        cpu_before,
        cpu_after,
        pressed,
        {process: (round(mib), round(largest[process])) for process, mib in memory.items()},
        round(max(sum(wait.bytes for wait in seen.waits.values()) for seen in looks) / 1024**2, 1),
        after.left,
        gateway,
        compared.examples if compared.missing_silent else [],
    )


def _samples(seen: Seen) -> int:
    return sum(source["samples"] for source in seen.read)


async def _pushed(running: Appliance, told: Counter[str], taken: set[int], since: int) -> tuple[dict[str, int], int]:
    """Lines by answer and stored, and those that were answered with 204 and are not in the table."""
    if not told:
        return {}, 0
    bodies, stored = await running.flooded(since)
    lost = max(LINES * len(taken - bodies), LINES * len(bodies) - stored)
    return {**told, "stored": stored}, lost


async def _window(running: Appliance, seconds: float) -> tuple[tuple[Seen, Seen], float]:
    """A look at its begin and at its end, and CPU µs a sample that was written between."""
    first, used = await asyncio.to_thread(running.look), running.cpu()
    await asyncio.sleep(seconds)
    last, then = await asyncio.to_thread(running.look), running.cpu()
    return (first, last), (then - used) / max(1, _written(last) - _written(first)) * 1e6


def _written(seen: Seen) -> int:
    return int((seen.said["writer"] or {"written": 0})["written"])


@asynccontextmanager
async def _watched(running: Appliance) -> AsyncIterator[tuple[list[Seen], Counter[str]]]:
    """Looks that are taken inside the block, a second apart, and the most that each process has had of memory."""
    looks: list[Seen] = []
    largest: Counter[str] = Counter()

    async def watch() -> None:
        while True:
            looks.append(await asyncio.to_thread(running.look))
            for process, mib in (await asyncio.to_thread(running.memory)).items():
                largest[process] = max(largest[process], round(mib))
            await asyncio.sleep(1.0)

    task = asyncio.create_task(watch())
    try:
        yield looks, largest
    finally:
        task.cancel()
        await asyncio.wait((task,))
