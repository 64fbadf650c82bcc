"""Final check of a simulated day: every sample is stored exactly once, and seals and rollups match."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg
import numpy as np

from core.paths import State
from core.timestamps import timestamp
from history.rollups import verify as rollup_verification
from history.seals import verify as seal_verification
from lab.bench.data import HOUR
from schema.queries import load

_CHANNELS = 8


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check: faults, if there are any."""

    samples: int  # counted
    wrong: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)  # days that were verified
    channels: int = 0  # of which seals and rollups were compared
    failed_jobs: dict[str, int] = field(default_factory=dict)


async def check(
    owner: asyncpg.Connection[Any], state: State, channels: int, step: int, start: int, until: int
) -> CheckResult:
    """Samples from ``start`` to ``until`` (µs), one of each channel a ``step``."""
    wrong: list[str] = []
    counted = {row["hour"]: row for row in await owner.fetch(load("day")["count_samples_by_hour"], timestamp(start))}
    for begin in range(start, until, HOUR):
        expected = -(-(min(until, begin + HOUR) - begin) // step)
        row = counted.pop(timestamp(begin), None)
        counts = (row["channels"], row["least"], row["most"]) if row else (0, 0, 0)
        if counts != (channels, expected, expected):
            found_text = "{:,} channels with {:,} to {:,} samples each".format(*counts)
            wrong.append(
                f"{timestamp(begin):%Y-%m-%d %H:%M}: {found_text}; {channels:,} with {expected:,} were generated"
            )
    wrong += [f"{at:%Y-%m-%d %H:%M}: {row['samples']:,} samples that were not generated" for at, row in counted.items()]
    total = await owner.fetchval(load("day")["count_written_samples"])
    channels_known = await owner.fetch(load("rollups")["select_channels"])
    chosen = [channels_known[int(i)] for i in np.random.default_rng(5).permutation(len(channels_known))[:_CHANNELS]]
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
    compared = await rollup_verification.verify(
        owner, timestamp(start), timestamp(until) + timedelta(seconds=1), chosen
    )
    wrong += [f"{one.relation} of {one.channel} at {one.bucket}: {one.column}" for one in compared.differences]
    failed = {
        f"{row['job']}: {row['detail']}": row["n"] for row in await owner.fetch(load("day")["select_failed_runs"])
    }
    return CheckResult(total, wrong, verified, len(chosen), failed)
