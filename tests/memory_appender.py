"""An in-memory Appender, for tests of a collector without a spool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from core.batch import Batch, Event, EventBatch, Gap, SampleBatch
from core.errors import SpoolFull
from core.time_limits import TimeLimits
from ingest.appender import Notes
from tests.batches import events_of, gaps_of
from tests.waiting import PATIENCE, until


class MemoryAppender:
    """An Appender that keeps batches in order of their append."""

    def __init__(self, notes: Mapping[str, str] | None = None) -> None:
        self.batches: list[Batch] = []
        self.full = False
        self.limits = TimeLimits(86_400.0, 3650 * 86_400.0)
        self.notes: dict[str, str] = dict(notes or {})
        self._changed = asyncio.Event()

    async def append(self, batch: Batch, notes: Notes | None = None, beside: Sequence[EventBatch] = ()) -> None:
        if self.full and isinstance(batch, SampleBatch):
            raise SpoolFull("full, by the test")
        self.batches += [*beside, batch]
        await self.note(notes or {})

    async def note(self, notes: Notes) -> None:
        for name, value in notes.items():
            if value is None:
                self.notes.pop(name, None)
            else:
                self.notes[name] = value

    async def wait_for_room(self) -> None:
        while self.full:
            await asyncio.sleep(0.01)

    def samples(self, channel_id: int) -> list[tuple[int, float, int]]:
        """(time, value, status) of one channel."""
        rows: list[tuple[int, float, int]] = []
        for batch in self.batches:
            if isinstance(batch, SampleBatch):
                s = batch.samples.part(batch.samples.channel == channel_id)
                rows += zip(s.time.tolist(), s.value.tolist(), s.status.tolist(), strict=True)
        return rows

    def events(self, kind: str) -> list[Event]:
        """Events of one type."""
        return events_of(self.batches, kind)

    def gaps(self) -> list[Gap]:
        """Gaps, each as it was recorded last: one of each (channels, from)."""
        return list({(gap.channel_ids, gap.from_time): gap for gap in gaps_of(self.batches)}.values())

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until ``condition`` holds."""
        await until(condition, seconds)
