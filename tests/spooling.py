"""Spools of tests: batches into one, what it holds, and from all spools of a folder into the database."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.batch import Batch, Event, Gap, SampleBatch
from core.samples import Samples, joined
from ingest.journal import journal
from ingest.spool.append import Spool
from ingest.spool.format import SpooledBatch
from ingest.spool.reader import SpoolReader
from ingest.writer.writer import Writer
from tests.batches import events_of, gaps_of
from tests.waiting import PATIENCE, until


@pytest.fixture(autouse=True)
def machine_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal does not leave a sixteenth of the machine's disk free, which may be as full as it is."""
    if "disk" not in request.fixturenames:  # one of their own
        monkeypatch.setattr(journal, "_LEFT_FREE", 0.0)


async def spooled(folder: Path, *batches: Batch, name: str = "opcua") -> None:
    """Append batches to a spool, in order."""
    spool = Spool(folder / f"{name}.sqlite", 512 * 1024**2)
    await asyncio.gather(*(spool.append(batch) for batch in batches))
    await spool.close()


class Spooled:
    """Content of a spool file, read while others write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def taken(self) -> list[SpooledBatch]:
        """Batches with their sequences."""
        if not self._path.exists():
            return []
        with closing(SpoolReader(self._path)) as file:
            return file.read(10**9)

    def depth(self) -> tuple[int, int]:
        """Batches and rows."""
        with closing(SpoolReader(self._path)) as file:
            return file.depth()[:2]

    def read(self) -> list[Any]:
        """Batches."""
        return [taken.batch for taken in self.taken()]

    def samples(self) -> Samples:
        """Samples of all channels, as they were appended."""
        return joined(batch.samples for batch in self.read() if isinstance(batch, SampleBatch))

    def values(self, channel: int) -> list[float]:
        """Values of a channel, each (time, value) once, in the order of time."""
        samples = self.samples()
        of_channel = samples.part(samples.channel == channel)
        rows = set(zip(of_channel.time.tolist(), of_channel.value.tolist(), strict=True))
        return [value for _, value in sorted(rows)]

    def gaps(self, *sources: int) -> list[Gap]:
        """Gaps of these sources (none: of all) in which something is missing, each as it was recorded last."""
        gaps = gaps_of(batch for batch in self.read() if not sources or batch.source_id in sources)
        known = {(gap.channel_ids, gap.from_time): gap for gap in gaps}
        return [gap for gap in known.values() if gap.to_time is None or gap.to_time > gap.from_time]

    def events(self, kind: str) -> list[tuple[int, Event]]:
        """(source id, event) of one type."""
        return [(batch.source_id, event) for batch in self.read() for event in events_of([batch], kind)]

    async def until(self, samples: int) -> None:
        """Wait until there are at least this many samples."""
        await until(lambda: len(self.samples()) >= samples, every=0.05)


async def drained(writer: Writer) -> Writer:
    """Run a writer until the spools are empty; returns it with what it counted."""
    writer.drain()
    await asyncio.wait_for(writer.run(), PATIENCE)
    return writer
