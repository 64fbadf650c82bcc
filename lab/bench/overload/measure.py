"""Each case: measure the appliance before, during and after an overload."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from core.timestamps import now_us
from lab.bench.overload.appliance import Appliance, running_appliance
from lab.bench.overload.cost import Cost, costs, describe_changes, readings
from lab.bench.overload.flood import GATEWAYS, LINES
from lab.bench.tables import table
from lab.chaos.stress import busy, slowed
from lab.recovery import Observation, wait_for_recovery
from ops.maintenance.overload.measure import Pressure
from simulator.compare import compare

_RECOVERY_SECONDS = 180.0  # after which a case has not recovered
_IN_FLIGHT_US = 5_000_000
_CAPACITY_SECONDS = 10.0  # at most


@dataclass(frozen=True, slots=True)
class OverloadOptions:
    """Cases, and how long they last."""

    channels: int
    hz: float
    seconds: float
    busy: Sequence[int] = ()
    load: Sequence[float] = ()  # times what the machine holds
    database: Sequence[float] = ()  # share of the time in which the database runs
    window: float = 10.0  # s after, over which CPU is measured
    before: float = 60.0  # the same before; of a minute, the same seconds count
    warm_up: float = 20.0  # s; the first minutes after a start are made from what is stored


@dataclass(slots=True)
class OverloadResult:
    """Effects of one strain."""

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
    cpu_before: Cost  # of a stored sample, all processes but the plant
    cpu_after: Cost
    pressure: float  # CPU pressure before: what else the machine does
    memory_mib: dict[str, tuple[float, float]]  # of each process before, and the most since
    spool_mib: float  # the most that all spools were
    remaining: list[str]  # what was not as before in the end
    gateway: dict[str, int] = field(default_factory=dict)  # how many, lines by answer, and what was stored of them
    examples: list[str] = field(default_factory=list)

    @property
    def gap_rows(self) -> int:
        """Rows in the table of gaps."""
        return sum(rows for rows, _ in self.gap_reasons.values())

    @property
    def gaps(self) -> int:
        """Gaps, those of one source and time as one."""
        return sum(gaps for _, gaps in self.gap_reasons.values())

    @property
    def cpu_ratio(self) -> float:
        """CPU a sample after it, of that before."""
        return self.cpu_after.sum / self.cpu_before.sum if self.cpu_before.sum else 0.0

    def json(self) -> dict[str, Any]:
        """The measurement for ``--json``."""
        sums = {"gap_rows": self.gap_rows, "gaps": self.gaps, "cpu_ratio": round(self.cpu_ratio, 3)}
        cpu = {
            "cpu_before": self.cpu_before.sum,
            "cpu_after": self.cpu_after.sum,
            "parts_before": self.cpu_before.parts,
            "parts_after": self.cpu_after.parts,
        }
        return {**asdict(self), **sums, **cpu}


async def measure(options: OverloadOptions, folder: Path, progress: Callable[[str], None]) -> list[OverloadResult]:
    """Measure all cases, one after the other, on one appliance."""
    progress(f"starting the appliance with {options.channels:,} channels at {options.hz:g} Hz")
    cases: list[OverloadResult] = []
    async with running_appliance(folder, options.channels, options.hz) as appliance:
        await asyncio.sleep(options.warm_up)
        for number in options.busy:
            cases.append(await _measure_case(f"{number} busy", busy(number), appliance, options, progress))
        for share in options.database:
            stress = slowed(appliance.postgres, share)
            cases.append(await _measure_case(f"database × {share:g}", stress, appliance, options, progress))
        if options.load:
            progress("measuring capacity")
            await appliance.flood.create_channels()
            capacity = await appliance.flood.capacity(min(_CAPACITY_SECONDS, options.seconds), appliance.written)
            progress(f"capacity: {capacity:,.0f} samples/s")
            await wait_for_recovery(appliance.observe, time.monotonic(), 1 / options.hz, _RECOVERY_SECONDS)
            for times in options.load:
                flood = appliance.flood.at(times * capacity)
                case = await _measure_case(f"load × {times:g}", flood, appliance, options, progress)
                case.gateway = {
                    "gateways": GATEWAYS,
                    "asked": round(times * capacity * options.seconds),
                    **case.gateway,
                }
                cases.append(case)
    return cases


async def _measure_case(
    name: str,
    stress: AbstractAsyncContextManager[None],
    appliance: Appliance,
    options: OverloadOptions,
    progress: Callable[[str], None],
) -> OverloadResult:
    progress(f"{name}: before")
    start = now_us()
    pressure = Pressure()
    pressure.sample()
    first = await asyncio.to_thread(appliance.observe)
    before = await readings(appliance.read, options.before)
    last = await asyncio.to_thread(appliance.observe)
    pressure_before = pressure.sample()
    rate = (_samples(last) - _samples(first)) / (last.at - first.at)
    answers, accepted = Counter(appliance.flood.answers), set(appliance.flood.accepted)
    memory = await asyncio.to_thread(appliance.memory)
    progress(f"{name}: {options.seconds:.0f} s of it, after {rate:,.0f} samples/s")
    async with _sampled(appliance) as (observations, largest):
        async with stress:
            stress_began, written = time.monotonic(), await asyncio.to_thread(appliance.written)
            await asyncio.sleep(options.seconds)
            during = (await asyncio.to_thread(appliance.written) - written) / (time.monotonic() - stress_began)
            ended = time.monotonic()
        after = await wait_for_recovery(appliance.observe, ended, 1 / options.hz, _RECOVERY_SECONDS)
    observations += after.observations
    recovered = None if after.remaining else after.seconds
    message = f"not recovered after {after.seconds:.0f} s: {'; '.join(after.remaining)}"
    progress(f"{name}: " + (message if after.remaining else f"recovered after {after.seconds:.1f} s"))
    cpu_before, cpu_after = costs(before, await readings(appliance.read, options.window))
    progress(
        f"{name}: CPU µs a sample: {cpu_before.sum:.2f} → {cpu_after.sum:.2f};"
        f" {describe_changes(cpu_before, cpu_after)}"
    )
    gaps = await appliance.gaps_since(start)
    progress(
        f"{name}: gaps: "
        + (", ".join(f"{number:,} {why} in {n:,} rows" for why, (n, number) in gaps.items()) or "none")
    )
    gateway, unstored = await _lost_pushes(
        appliance, appliance.flood.answers - answers, appliance.flood.accepted - accepted, start
    )
    compared = (await compare(appliance.truth, appliance.dsn, start, now_us() - _IN_FLIGHT_US))["all"]
    return OverloadResult(
        name,
        options.seconds,
        recovered,
        compared.missing_silent + unstored,
        compared.missing_recorded,
        gaps,
        rate,
        during,
        max(observation.lag for observation in observations),
        max(observation.pace for observation in observations),
        any(observation.overloaded for observation in observations),
        cpu_before,
        cpu_after,
        pressure_before,
        {process: (round(mib), round(largest[process])) for process, mib in memory.items()},
        round(
            max(sum(wait.bytes for wait in observation.backlogs.values()) for observation in observations) / 1024**2, 1
        ),
        after.remaining,
        gateway,
        compared.examples if compared.missing_silent else [],
    )


def _samples(observation: Observation) -> int:
    return sum(source["samples"] for source in observation.read)


async def _lost_pushes(
    appliance: Appliance, answers: Counter[str], accepted: set[int], since: int
) -> tuple[dict[str, int], int]:
    """Lines by answer and stored, and those that were answered with 204 and are not in the table."""
    if not answers:
        return {}, 0
    bodies, stored = await appliance.flooded(since)
    lost = max(LINES * len(accepted - bodies), LINES * len(bodies) - stored)
    return {**answers, "stored": stored}, lost


@asynccontextmanager
async def _sampled(appliance: Appliance) -> AsyncIterator[tuple[list[Observation], Counter[str]]]:
    """Looks that are taken inside the block, a second apart, and the most that each process has had of memory."""
    observations: list[Observation] = []
    largest: Counter[str] = Counter()

    async def watch() -> None:
        while True:
            observations.append(await asyncio.to_thread(appliance.observe))
            for process, mib in (await asyncio.to_thread(appliance.memory)).items():
                largest[process] = max(largest[process], round(mib))
            await asyncio.sleep(1.0)

    task = asyncio.create_task(watch())
    try:
        yield observations, largest
    finally:
        task.cancel()
        await asyncio.wait((task,))


def overload_table(cases: Sequence[OverloadResult]) -> Table:
    """Effects of each overload, and the recovery time."""
    heads = ("s", "lost", "with gap", "gaps", "rows", "lag", "polls", "CPU", "after", "ratio")
    shown = table("overload: seconds until recovery; CPU µs per sample of the appliance", ["overload"], heads)
    for case in cases:
        shown.add_row(
            case.name,
            "never" if case.recovered is None else f"{case.recovered:.1f}",
            f"{case.lost:,}",
            f"{case.recorded:,}",
            f"{case.gaps:,}",
            f"{case.gap_rows:,}",
            f"{case.worst_lag:.1f}",
            f"{case.worst_pace:.1f}" if case.worst_pace else "",
            f"{case.cpu_before.sum:.1f}",
            f"{case.cpu_after.sum:.1f}",
            f"{case.cpu_ratio:.2f}",
        )
    return shown


def flooded_table(cases: Sequence[OverloadResult]) -> Table:
    """Pushed lines by outcome; the gateways do not wait for responses."""
    pushed = [case for case in cases if case.gateway]
    gateways = max((case.gateway["gateways"] for case in pushed), default=0)
    heads = ("asked", "offered", "taken", "refused", "unanswered", "wrong", "stored")
    shown = table(f"lines/s of {gateways} gateways that do not wait for responses", ["overload"], heads)
    for case in pushed:
        shown.add_row(case.name, *(f"{case.gateway.get(head, 0) / case.seconds:,.0f}" for head in heads))
    return shown
