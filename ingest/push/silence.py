"""A gateway that no longer pushes: after a while that is a gap, until there are samples behind it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import numpy as np

from ingest.appender import Appender, Notes
from ingest.awake import slept
from ingest.batch import Event, EventBatch, Int64s, now_us
from ingest.clock import Step
from ingest.errors import SpoolError
from ingest.gaps import Gaps
from ingest.status import SourceState, SourceStatus

_LOOK_SECONDS = 1.0  # how often at least, so that it is known how long this process did not run


class Silence:
    """Watches one source: its state, and its gap of reason ``stale``."""

    def __init__(self, status: SourceStatus, stale_after: float, spool: Appender) -> None:
        self._status = status
        self._stale_after = stale_after
        self._spool = spool
        self.gaps = Gaps(status, spool)
        self._note = f"push:{status.source_id}:newest"
        self._newest = int(spool.notes.get(self._note, 0))  # µs, of all samples that were not in the future; 0: none
        self._since = now_us()
        self._heard_at = time.monotonic()
        self._heard = asyncio.Event()

    def configure(self, stale_after: float) -> None:
        """Another length (s) of silence is a gap."""
        self._stale_after = stale_after

    def heard(self) -> None:
        """The gateway is there and has samples, whether we could take them or not: it comes again with them."""
        self._heard_at = time.monotonic()
        self._heard.set()

    def notes(self, times: Int64s) -> Notes:
        """What to store with samples of these times (µs)."""
        return {self._note: str(self._newest_with(times))}

    async def over(self, times: Int64s) -> None:
        """Samples of these times (µs) are durable."""
        self._newest = self._newest_with(times)
        self._status.had(times)
        since = self.gaps.opened()
        if since is not None and (behind := times[times > since]).size:
            await self.gaps.close(int(np.min(behind)))
        await self.say("degraded" if self._status.bad_channels else "connected")

    def _newest_with(self, times: Int64s) -> int:
        return max(self._newest, min(int(times.max()), now_us()))

    async def clock_set(self, step: Step) -> None:
        """Our clock was set, of which the times of lines are that have none."""
        await self.gaps.clock_set(step.before, step.after, polled=False)
        self._newest = min(self._newest, step.after)
        with suppress(SpoolError):
            await self._spool.append(EventBatch(self._status.source_id, now_us(), (step.event(),)))

    async def watch(self) -> None:
        """Open a gap whenever the source is silent for too long."""
        self._status.state, self._status.reason = "connecting", "nothing was pushed since plantlog started"
        while True:
            wait = self._heard_at + self._stale_after - time.monotonic()
            if wait > 0:
                late = await slept(min(wait, _LOOK_SECONDS))
                self._heard_at += late  # also where something was heard meanwhile
                continue
            reason = f"nothing was pushed for {self._stale_after:g} s"
            self._heard.clear()
            await self.gaps.open(self._newest or self._since, "stale", reason)
            if not self._heard.is_set():  # while the disk was waited for
                await self.say("disconnected", reason)
            await self._heard.wait()

    async def say(self, state: SourceState, reason: str = "") -> None:
        """The source's state; a change is an event too."""
        changed = state != self._status.state
        self._status.state, self._status.reason = state, reason
        if changed:
            event = Event("source_state", now_us(), text=state, detail={"reason": reason})
            with suppress(SpoolError):
                await self._spool.append(EventBatch(self._status.source_id, event.time, (event,)))
