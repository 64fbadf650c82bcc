"""Throttling of maintenance jobs while ingest is behind: in which order they wait, and what they may still use.

Jobs that may wait do so in the order of :data:`MAX_LAG`: each from its own age of the oldest batch that the database
does not have yet, or from polls that are so far apart because the machine is busy. A job that is under way then ends
what it does; all it committed stays. A machine that is always busy packs and rolls up, too, because the waiting jobs
take turns, one at a time: a slice, then a pause in proportion.

Queries of readers have a low priority from the start (see ``readers``). Everything else continues: acknowledged data,
presence, the end of readers' sessions, logins and retention.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from ops.maintenance.overload.state import LAG_THRESHOLDS, PRESSURE_THRESHOLDS, Indicators, Threshold, format_time

# Job → s by which ingest is late when this job waits, too; what is first is given up first.
MAX_LAG: Mapping[str, float] = {"rollups": 2.0, "compress": 3.0, "seal": 4.0, "archive": 4.5, "analyze": 5.0}
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Allowance:
    """Allowance of a job: s of a slice, which doubles until it is enough, and pauses as a multiple of it."""

    slice: float
    pause: float


_WHILE_BEHIND = Allowance(5.0, 9.0)  # a tenth of the time
_WHILE_PRESSED = Allowance(20.0, 1.0)  # half of it: the machine is short of processors, and ingest is in time


@dataclass(slots=True, eq=False)
class Turn:
    """A run that is under way."""

    job: str
    stop_requested: asyncio.Event = field(default_factory=asyncio.Event)  # set: it has to end
    began: float = field(default_factory=time.monotonic)


class Throttle:
    """Throttle that decides which jobs may run now."""

    def __init__(self) -> None:
        self._behind = {job: Threshold(lag, LAG_THRESHOLDS[1], 1, 3) for job, lag in MAX_LAG.items()}
        self._pressed = Threshold(*PRESSURE_THRESHOLDS, 3, 3)
        self._turn_lock = asyncio.Lock()  # of those that wait, in the order in which they came
        self._turns: set[Turn] = set()
        self._free_at = 0.0  # monotonic: when the pause after the last slice is over
        self._cut_slices: Counter[str] = Counter()  # job → slices in a row that were not enough

    def observe(self, indicators: Indicators) -> None:
        """Take new measurements; a run that has had its slice has to end."""
        self._pressed.update(indicators.pressure, indicators.at)
        lag = max(indicators.lag, indicators.pace if self._pressed.since is not None else 0.0)
        begins = [behind.update(lag, indicators.at) and behind.since is not None for behind in self._behind.values()]
        if any(begins):
            self._free_at = time.monotonic() + _WHILE_BEHIND.pause * _WHILE_BEHIND.slice
        for turn in self._turns:
            if self._allowance(turn.job) and time.monotonic() - turn.began >= self._slice(turn.job):
                turn.stop_requested.set()

    def wait_reason(self, job: str) -> str:
        """Describe why a job has to wait; empty where it need not."""
        behind = self._behind.get(job)
        if behind is None:
            return ""
        if behind.since is not None:
            return f"waits: ingest has been behind since {format_time(behind.since)}"
        since = self._pressed.since
        return "" if since is None else f"waits: the machine has been busy since {format_time(since)}"

    def waits(self, job: str) -> bool:
        """Return whether it has no turn yet."""
        return self._allowance(job) is not None and time.monotonic() < self._free_at

    @asynccontextmanager
    async def turn(self, job: str) -> AsyncIterator[asyncio.Event]:
        """Wait until a job may run; what the block gets is set when it has to end."""
        async with AsyncExitStack() as stack:
            if self._allowance(job):
                await stack.enter_async_context(self._turn_lock)
            while self.waits(job):
                await asyncio.sleep(_POLL_SECONDS)
            if not self._allowance(job):
                await stack.aclose()
            turn = Turn(job)
            self._turns.add(turn)
            try:
                yield turn.stop_requested
            finally:
                self._turns.remove(turn)
                self._end_turn(turn)

    def _end_turn(self, turn: Turn) -> None:
        now = time.monotonic()
        if allowance := self._allowance(turn.job):
            self._free_at = now + allowance.pause * min(now - turn.began, self._slice(turn.job))
        self._cut_slices[turn.job] = self._cut_slices[turn.job] + 1 if turn.stop_requested.is_set() else 0

    def _allowance(self, job: str) -> Allowance | None:
        """Share of the CPU that a job may use; None: as much as it wants."""
        behind = self._behind.get(job)
        if behind is None:
            return None
        if behind.since is not None:
            return _WHILE_BEHIND
        return _WHILE_PRESSED if self._pressed.since is not None else None

    def _slice(self, job: str) -> float:
        allowance = self._allowance(job)
        return allowance.slice * 2.0 ** min(self._cut_slices[job], 16) if allowance else 0.0
