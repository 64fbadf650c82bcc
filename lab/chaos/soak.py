"""Measurements of a soak while faults are injected: whether processes grow, and errors that no fault explains."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from core.paths import State
from lab.chaos.log_errors import unexplained
from lab.chaos.usage import Trend, UsageSampler, trends


@dataclass(frozen=True, slots=True)
class SoakResult:
    """Trends by process and quantity (``memory`` in MiB, ``descriptors``), and lines of the logs."""

    trends: Mapping[str, Mapping[str, Trend]]
    errors: Sequence[str]

    def lines(self) -> Iterator[str]:
        """For a log: the comparison that follows takes a while, and may fail."""
        for name, of_process in self.trends.items():
            yield f"{name}: memory {of_process['memory']} MiB, descriptors {of_process['descriptors']}"
        yield f"{len(self.errors):,} errors in the logs that are about no fault"


class Soak:
    """A soak that runs."""

    def __init__(self, state: State) -> None:
        self.sampler = UsageSampler(state)
        self._state = state
        self._since = time.time()
        self._faults: list[tuple[float, float]] = []  # begin and end, seconds since 1970

    @contextmanager
    def fault(self) -> Iterator[None]:
        """A fault lasts as long as the block."""
        begin = time.time()
        try:
            yield
        finally:
            self._faults.append((begin, time.time()))

    def result(self, until: float) -> SoakResult:
        """Results that were measured, and logged before ``until`` (seconds since 1970)."""
        samples = self.sampler.samples
        errors = unexplained(self._state.log, self._since, until, self._faults)
        return SoakResult({name: trends(samples[name]) for name in sorted(samples)}, errors)


@asynccontextmanager
async def soaking(state: State) -> AsyncIterator[Soak]:
    """Measure the appliance of ``state`` while the block runs."""
    soak = Soak(state)
    sampling = asyncio.create_task(soak.sampler.run())
    try:
        yield soak
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
