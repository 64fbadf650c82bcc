"""A gateway that stopped pushing: after a timeout, a gap until newer samples arrive."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import numpy as np

from core.batch import EventBatch, Int64s
from core.clock import ClockStep
from core.errors import SpoolError
from core.source_states import SourceState
from core.timeouts import sleep_overrun
from core.timestamps import now_us
from ingest.appender import Appender, Notes
from ingest.gaps import Gaps
from ingest.notes import Note
from ingest.status import RecordedState, SourceStatus

_CHECK_SECONDS = 1.0  # between two checks, which also measure how long this process did not run


class Silence:
    """State of a source, and its gap of reason ``stale``."""

    def __init__(self, status: SourceStatus, stale_after: float, spool: Appender) -> None:
        self._status = status
        self._stale_after = stale_after
        self._spool = spool
        self.gaps = Gaps(status, spool)
        self._recorded_state = RecordedState(status)
        self._note = Note.PUSH.of(status.source_id, "newest")
        self._newest = int(spool.notes.get(self._note, 0))  # µs, of all samples that were not in the future; 0: none
        self._since = now_us()
        self._active_at = time.monotonic()
        self._activity = asyncio.Event()

    def configure(self, stale_after: float) -> None:
        """Set the length (s) of silence that is a gap."""
        self._stale_after = stale_after

    def record_activity(self) -> None:
        """Note that the gateway sent data, which were accepted or must be sent again."""
        self._active_at = time.monotonic()
        self._activity.set()

    def notes(self, times: Int64s) -> Notes:
        """Notes to store with samples of these times (µs)."""
        return {self._note: str(self._newest_with(times))}

    async def samples_stored(self, times: Int64s) -> None:
        """Note that samples of these times (µs) are durable."""
        self._newest = self._newest_with(times)
        self._status.record_samples(times)
        since = self.gaps.open_since()
        if since is not None and (later := times[times > since]).size:
            await self.gaps.close(int(np.min(later)))
        self.record_activity()  # a gap that was opened while they waited for the disk is closed: watch for the next
        await self.set_state("degraded" if self._status.bad_channels else "connected")

    def _newest_with(self, times: Int64s) -> int:
        return max(self._newest, min(int(times.max()), now_us()))

    async def clock_set(self, step: ClockStep) -> None:
        """Record a clock step; lines without timestamp use our clock."""
        await self.gaps.clock_set(step.before, step.after, polled=False)
        self._newest = min(self._newest, step.after)
        with suppress(SpoolError):
            await self._spool.append(EventBatch(self._status.source_id, now_us(), (step.event(),)))

    async def watch(self) -> None:
        """Open a gap when the source is silent too long, until cancelled."""
        self._status.state, self._status.reason = "connecting", "no data pushed since plantlog started"
        while True:
            wait = self._active_at + self._stale_after - time.monotonic()
            if wait > 0:
                late = await sleep_overrun(min(wait, _CHECK_SECONDS))
                self._active_at += late  # also if the gateway was active meanwhile
                continue
            reason = f"no data pushed for {self._stale_after:g} s"
            self._activity.clear()
            await self.gaps.open(self._newest or self._since, "stale", reason)
            if not self._activity.is_set():  # not while this waited for the disk
                await self.set_state("disconnected", reason)
            await self._activity.wait()

    async def set_state(self, state: SourceState, reason: str = "") -> None:
        """Show the source's state; record a change, or another reason, as an event."""
        if events := self._recorded_state.change(state, reason, now_us):
            with suppress(SpoolError):
                await self._spool.append(EventBatch(self._status.source_id, events[0].time, events))
