"""An appender that keeps what it is given, for tests of a collector alone (the spool has tests of its own)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from ingest.batch import Batch, Event, EventBatch, SampleBatch
from ingest.errors import SpoolFull


class Kept:
    """Everything that was appended, in order."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.full = False
        self._changed = asyncio.Event()

    async def append(self, batch: Batch) -> None:
        if self.full:
            raise SpoolFull("full, as the test wants it")
        self.batches.append(batch)
        self._changed.set()

    async def wait_for_room(self) -> None:
        while self.full:
            await asyncio.sleep(0.01)

    def samples(self, channel_id: int) -> list[tuple[int, float, int]]:
        """(time, value, status) of one channel."""
        found = []
        for batch in self.batches:
            if isinstance(batch, SampleBatch):
                for i in np.flatnonzero(batch.channel_id == channel_id):
                    found.append((int(batch.time[i]), float(batch.value[i]), int(batch.status[i])))
        return found

    def events(self, kind: str) -> list[Event]:
        """Events of one type."""
        return [e for b in self.batches if isinstance(b, EventBatch) for e in b.events if e.type == kind]

    async def until(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        """Wait until ``condition`` holds; looked at after each append."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), 0.2)
                except TimeoutError:
                    continue
