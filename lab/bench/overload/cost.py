"""CPU per stored sample before and after an overload, by part, in the same seconds of the minute.

Some work is done once per minute, such as closing a minute of the rollups: ten seconds with it cannot be compared
with ten seconds without.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

_MINUTE = 60
_ALL_SECONDS = frozenset(range(_MINUTE))
_MIN_DIFFERENCE = 0.05  # µs a sample, by which a part has to differ


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at a time."""

    at: float  # s since 1970
    written: int  # samples
    cpu: dict[str, float]  # s, by part


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU µs a sample, by part."""

    parts: dict[str, float]

    @property
    def sum(self) -> float:
        """Sum of all parts."""
        return sum(self.parts.values())


async def readings(read: Callable[[], Awaitable[Reading]], seconds: float) -> list[Reading]:
    """Take a reading at each whole second, for so many ``seconds``."""
    series: list[Reading] = []
    while not series or round(series[-1].at - series[0].at) < seconds:
        await asyncio.sleep(1 - time.time() % 1)
        series.append(await read())
    return series


def costs(before: Sequence[Reading], after: Sequence[Reading]) -> tuple[Cost, Cost]:
    """Costs of ``before``, in the seconds of a minute that ``after`` has (all if it is shorter), and of ``after``."""
    covers_minute = round(before[-1].at - before[0].at) >= _MINUTE
    seconds = {_second(sample) for sample in after[:-1]} if covers_minute else _ALL_SECONDS
    return _cost(before, seconds), _cost(after, _ALL_SECONDS)


def describe_changes(before: Cost, after: Cost) -> str:
    """The parts whose cost changed, largest increase first."""
    increase = {part: cost - before.parts.get(part, 0.0) for part, cost in after.parts.items()}
    shown = [
        part for part in sorted(increase, key=lambda part: -increase[part]) if abs(increase[part]) >= _MIN_DIFFERENCE
    ]
    return ", ".join(f"{part} {before.parts.get(part, 0.0):.2f} → {after.parts[part]:.2f}" for part in shown)


def _second(reading: Reading) -> int:
    return round(reading.at) % _MINUTE


def _cost(series: Sequence[Reading], seconds: AbstractSet[int]) -> Cost:
    """Cost between each reading in one of ``seconds`` and the next."""
    used: dict[str, float] = {}
    written = 0
    for sample, following in itertools.pairwise(series):
        if _second(sample) in seconds:
            written += following.written - sample.written
            for part, cpu in following.cpu.items():
                used[part] = used.get(part, 0.0) + cpu - sample.cpu.get(part, 0.0)
    return Cost({part: cpu / max(1, written) * 1e6 for part, cpu in used.items()})
