"""The highest rate that the appliance sustains: lag, CPU, memory, bytes per sample and losses by rate.

Each rate is a fresh appliance (``./plantlog up --channels … --hz …``) with everything on that runs by default. Its load
is the simulator's, over real sockets; at the end the last samples are held against its ground truth.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from core.database import connected
from core.errors import OperationError
from core.paths import CHECKOUT, State
from core.timestamps import now_us
from lab.bench.end_to_end import EndToEnd, ProcessUse, measure
from schema.queries import load as queries

CHANNELS = 20_000  # at most: higher rates are faster channels
_COMPARED_SECONDS = 20.0  # at most
_IN_FLIGHT_US = 5_000_000  # an answer of a device that is younger does not count yet
_DEADLINE_SECONDS = 120.0  # what is not in the table by then counts as missing
_POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RateResult:
    """A rate for a time."""

    run: EndToEnd
    bytes_per_sample: float  # in the database: rows and their key, what is packed already packed
    compared: int  # samples that the simulator published in the last seconds
    missing: int  # of these, with a gap on record or without
    silent: int  # of these, without a gap: lost, or later than two minutes
    limit: float  # s, the highest p99 of the lag

    @property
    def rate(self) -> float:
        """Samples a second that were asked for."""
        return self.run.channels * self.run.hz

    @property
    def held(self) -> bool:
        """Return whether the rate was stored in time, and nothing was missing."""
        return self.run.oldest_p99 <= self.limit and not self.missing and self.run.rows_per_second > 0.98 * self.rate

    def figures(self) -> dict[str, Any]:
        """Figures for ``--json``."""
        return {**asdict(self), "held": self.held}


async def ramp(
    rates: Sequence[float],
    seconds: float,
    warm_up: float,
    limit: float,
    folder: Path,
    port: int | None,
    progress: Callable[[str], None],
) -> list[RateResult]:
    """Hold each of ``rates`` for ``seconds``, up to the first one that is not held."""
    done: list[RateResult] = []
    for rate in rates:
        done.append(await hold(rate, seconds, warm_up, limit, folder / f"state-{len(done)}", port, progress))
        if not done[-1].held:
            break
    return done


async def hold(
    rate: float,
    seconds: float,
    warm_up: float,
    limit: float,
    state: Path,
    port: int | None,
    progress: Callable[[str], None],
) -> RateResult:
    """Hold one rate for ``seconds``, after ``warm_up`` of them.

    Raises OperationError where the appliance does not come up or stores nothing.
    """
    channels = max(1, min(CHANNELS, int(rate)))
    stored: dict[str, Any] = {}

    async def before_down() -> None:
        stored.update(await _footprint(state))
        stored.update(await _compared(state, min(seconds, _COMPARED_SECONDS)))

    run = await measure(channels, rate / channels, seconds, state, progress, port, before_down, warm_up)
    row_bytes = stored["bytes"] / stored["rows"]
    result = RateResult(run, row_bytes, stored["published"], 0, stored["missing_silent"], limit)
    result = replace(result, missing=stored["missing_recorded"] + stored["missing_silent"])
    verdict = "held" if result.held else "not held"
    progress(
        f"{rate:,.0f} samples/s {verdict}: p99 {run.oldest_p99:.2f} s, "
        f"{result.missing:,} of {result.compared:,} missing"
    )
    return result


async def _footprint(state: Path) -> dict[str, Any]:
    async with connected(State(state).dsn("reader"), "plantlog bench") as connection:
        row = await connection.fetchrow(queries("bench")["select_footprint"])
    assert row is not None
    return dict(row)


async def _compared(state: Path, seconds: float) -> dict[str, Any]:
    """The last ``seconds`` against the ground truth, once they had the time to reach the table."""
    to = now_us() - _IN_FLIGHT_US
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        compared = await asyncio.to_thread(_compare, state, to - round(seconds * 1e6), to)
        if not compared["missing_silent"] or time.monotonic() > deadline:
            return compared
        await asyncio.sleep(_POLL_SECONDS)


def _compare(state: Path, from_us: int, to_us: int) -> dict[str, Any]:
    """Compare in a process of its own: it takes memory."""
    command = [sys.executable, "-P", "-m", "simulator", "compare", "--truth", str(state / "simulator" / "truth")]
    command += ["--secrets", str(state / "secrets"), "--from", str(from_us), "--to", str(to_us), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise OperationError(f"comparison with the ground truth failed:\n{run.stderr}")
    compared: dict[str, Any] = json.loads(run.stdout)
    return compared


def plot(steps: Sequence[RateResult], path: Path) -> None:
    """Lag, CPU by process, memory and bytes a sample over the rate that was stored: SVG, PNG or PDF."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (only where a plot is wanted)

    figure = Figure(figsize=(11, 7), layout="constrained")
    (lag, cpu), (memory, size) = figure.subplots(2, 2, sharex=True)
    shown = sorted(steps, key=lambda step: step.run.rows_per_second)
    rates = [step.run.rows_per_second for step in shown]
    lag.plot(rates, [step.run.oldest_p50 for step in shown], marker="o", label="p50")
    lag.plot(rates, [step.run.oldest_p99 for step in shown], marker="o", label="p99")
    lag.axhline(shown[0].limit if shown else 1.0, color="grey", linestyle="--", linewidth=1)
    names = sorted({name for step in shown for name in step.run.processes})
    used = [[_usage(step, name) for step in shown] for name in names]
    cpu.stackplot(rates, [[use.cpu_seconds / step.run.seconds for use, step in zip(row, shown, strict=True)]
                          for row in used], labels=names)  # fmt: skip
    for name, row in zip(names, used, strict=True):
        memory.plot(rates, [use.rss_mib[-1] if use.rss_mib else 0.0 for use in row], marker="o", label=name)
    size.plot(rates, [step.bytes_per_sample for step in shown], marker="o")
    for axes, title in ((lag, "lag, s"), (cpu, "CPU, cores"), (memory, "memory, MiB"), (size, "bytes per sample")):
        axes.set_title(title, fontsize=11)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
        if axes is not size:
            axes.legend(frameon=False, fontsize=8)
    for axes in (memory, size):
        axes.set_xlabel("samples/s stored")
    figure.savefig(path)


def _usage(step: RateResult, name: str) -> ProcessUse:
    return step.run.processes.get(name) or ProcessUse()
