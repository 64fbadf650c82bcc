"""At the day's end: every sample is there once, and seals and rollups are what the samples give."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg
import numpy as np

from ingest.writer.clock import timestamp
from ops.bench.choose.data import HOUR
from ops.evidence import verify as seals
from ops.paths import State
from ops.rollups import verify as rollups
from schema.queries import load

_CHANNELS = 8


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found wrong; nothing: all is well."""

    samples: int  # counted
    wrong: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)  # days that were verified
    channels: int = 0  # of which seals and rollups were compared
    failed_jobs: dict[str, int] = field(default_factory=dict)


async def check(
    owner: asyncpg.Connection[Any], state: State, channels: int, step: int, start: int, until: int
) -> Checked:
    """Samples from ``start`` to ``until`` (µs), one of each channel a ``step``."""
    wrong: list[str] = []
    counted = {row["hour"]: row for row in await owner.fetch(load("day")["counted"], timestamp(start))}
    for begin in range(start, until, HOUR):
        expected = -(-(min(until, begin + HOUR) - begin) // step)
        row = counted.pop(timestamp(begin), None)
        found = (row["channels"], row["least"], row["most"]) if row else (0, 0, 0)
        if found != (channels, expected, expected):
            said = "{:,} channels, of each {:,} to {:,} samples".format(*found)
            wrong.append(f"{timestamp(begin):%Y-%m-%d %H:%M}: {said}; {channels:,} with {expected:,} were generated")
    wrong += [f"{at:%Y-%m-%d %H:%M}: {row['samples']:,} samples that nobody generated" for at, row in counted.items()]
    total = await owner.fetchval(load("day")["written"])
    some = await owner.fetch(load("rollups")["channels"])
    chosen = [some[int(i)] for i in np.random.default_rng(5).permutation(len(some))[:_CHANNELS]]
    names = [row["name"] for row in await owner.fetch(load("rollups")["names"], [row["id"] for row in chosen])]
    days = [row["day"] for row in await owner.fetch(load("day")["sealed"])]
    reader = state.dsn_file("reader").read_text().strip()
    verified = []
    for day in [day for day in days if day >= timestamp(start).date()]:
        report = await seals.verify(reader, state, None, day, names)
        verified.append(f"{day}")
        wrong += [] if report.ok else [f"{day} is not as it was sealed"]
    compared = await rollups.verify(owner, timestamp(start), timestamp(until) + timedelta(seconds=1), chosen)
    wrong += [f"{one.relation} of {one.channel} at {one.bucket}: {one.column}" for one in compared.differences]
    failed = {f"{row['job']}: {row['detail']}": row["n"] for row in await owner.fetch(load("day")["failed"])}
    return Checked(total, wrong, verified, len(chosen), failed)
