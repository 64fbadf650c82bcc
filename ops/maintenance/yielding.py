"""What maintenance gives up while ingest wants the machine, in which order, and how much it may take all the same.

In the order of :data:`ORDER` the jobs wait that may: each from another age of the oldest batch that the database does
not have yet, or from polls that are as far apart for want of a processor. A job that is under way then ends what it
does; all it committed stays. So that a machine that is always busy packs and rolls up, too, the jobs that wait have
turns, one at a time: a slice, then a pause in proportion.

What a reader asks steps back from the start, with its backends (see ``readers``). Everything else goes on: nothing that
was acknowledged, no presence, no end of readers' sessions, no logins, and no retention is given up.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from ops.overload.state import BEHIND, PRESSED, Look, Threshold, clock

# Job → s by which ingest is late when this job waits, too; what is first is given up first.
ORDER: Mapping[str, float] = {"rollups": 2.0, "compress": 3.0, "seal": 4.0, "analyze": 5.0}
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Budget:
    """What a job may still take: s of a slice, which doubles until it is enough, and pauses as a multiple of it."""

    slice: float
    pause: float


_WHILE_BEHIND = Budget(5.0, 9.0)  # a tenth of the time
_WHILE_PRESSED = Budget(20.0, 1.0)  # half of it: the machine is short of processors, and ingest is in time


@dataclass(slots=True, eq=False)
class Turn:
    """A run that is under way."""

    job: str
    give_way: asyncio.Event = field(default_factory=asyncio.Event)  # set: it has to end
    began: float = field(default_factory=time.monotonic)


class Yielding:
    """Who may run now."""

    def __init__(self) -> None:
        self._behind = {job: Threshold(lag, BEHIND[1], 1, 3) for job, lag in ORDER.items()}
        self._pressed = Threshold(*PRESSED, 3, 3)
        self._one = asyncio.Lock()  # of those that wait, in the order in which they came
        self._turns: set[Turn] = set()
        self._free_at = 0.0  # monotonic: when the pause after the last slice is over
        self._cut: Counter[str] = Counter()  # job → slices in a row that were not enough

    def look(self, seen: Look) -> None:
        """What was measured now; a run that has had its slice has to end."""
        self._pressed.take(seen.pressure, seen.at)
        late = max(seen.lag, seen.pace if self._pressed.since is not None else 0.0)
        begins = [behind.take(late, seen.at) and behind.since is not None for behind in self._behind.values()]
        if any(begins):
            self._free_at = time.monotonic() + _WHILE_BEHIND.pause * _WHILE_BEHIND.slice
        for turn in self._turns:
            if self._budget(turn.job) and time.monotonic() - turn.began >= self._slice(turn.job):
                turn.give_way.set()

    def why(self, job: str) -> str:
        """Why a job has to wait, in words; nothing where it has not."""
        behind = self._behind.get(job)
        if behind is None:
            return ""
        if behind.since is not None:
            return f"waits: ingest is behind since {clock(behind.since)}"
        since = self._pressed.since
        return "" if since is None else f"waits: the machine is busy since {clock(since)}"

    def waits(self, job: str) -> bool:
        """Whether it has no turn yet."""
        return self._budget(job) is not None and time.monotonic() < self._free_at

    @asynccontextmanager
    async def turn(self, job: str) -> AsyncIterator[asyncio.Event]:
        """Wait until a job may run; what the block gets is set when it has to end."""
        async with AsyncExitStack() as alone:
            if self._budget(job):
                await alone.enter_async_context(self._one)
            while self.waits(job):
                await asyncio.sleep(_LOOK_SECONDS)
            if not self._budget(job):
                await alone.aclose()
            turn = Turn(job)
            self._turns.add(turn)
            try:
                yield turn.give_way
            finally:
                self._turns.remove(turn)
                self._ended(turn)

    def _ended(self, turn: Turn) -> None:
        now = time.monotonic()
        if budget := self._budget(turn.job):
            self._free_at = now + budget.pause * min(now - turn.began, self._slice(turn.job))
        self._cut[turn.job] = self._cut[turn.job] + 1 if turn.give_way.is_set() else 0

    def _budget(self, job: str) -> Budget | None:
        """None: as much as it wants."""
        behind = self._behind.get(job)
        if behind is None:
            return None
        if behind.since is not None:
            return _WHILE_BEHIND
        return _WHILE_PRESSED if self._pressed.since is not None else None

    def _slice(self, job: str) -> float:
        budget = self._budget(job)
        return budget.slice * 2.0 ** min(self._cut[job], 16) if budget else 0.0
