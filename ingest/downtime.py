"""Notes on disk of how far a source was read, and of a stop, from which the next process derives the downtime.

A collector that polls stores the time of its last durable poll together with it. At its start, the interval from there
to the first sample is a gap, because plantlog was stopped or killed. Of OPC UA it is known from the subscriptions how
far they were read, except for the last notification, so the note has the time of the last sample. A gateway pushes
until it has an answer: nothing is missing.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Literal, TypeAlias

from core.errors import SpoolError
from ingest.appender import Appender, Notes
from ingest.notes import Note

Shutdown: TypeAlias = Literal["stopped", "killed"]

DETAILS: dict[Shutdown, str] = {"stopped": "plantlog was stopped", "killed": "plantlog was killed"}  # of the gaps

_IDLE_SECONDS = 1.0  # a source without samples is noted this often at most


class Downtime:
    """The notes of one source on when it was last seen, and stopped (µs)."""

    def __init__(self, source_id: int, spool: Appender) -> None:
        self._spool = spool
        self._last_seen_note = Note.LAST_SEEN.of(source_id)
        self._stopped_note = Note.STOPPED.of(source_id)
        self._written = float("-inf")  # monotonic s

    def interruption(self) -> tuple[int, Shutdown] | None:
        """Start (µs) and cause of the downtime before this process; None: the source was never read.

        Call it at start, before any note is written: the first note removes that of an orderly stop.
        """
        last_seen = self._spool.notes.get(self._last_seen_note)
        return None if last_seen is None else (int(last_seen), self.shutdown())

    def shutdown(self) -> Shutdown:
        """End of the process before this one. Call it at start, too."""
        return "stopped" if self._stopped_note in self._spool.notes else "killed"

    async def begin(self) -> None:
        """Begin once the last shutdown is on record: remove the note of an orderly stop. Raises SpoolError."""
        await self._spool.note({self._stopped_note: None})

    def notes(self, at: int) -> Notes:
        """Notes to append with samples, the newest of which arrived at ``at`` (µs)."""
        self._written = time.monotonic()
        return {self._last_seen_note: str(at), self._stopped_note: None}

    async def touch(self, at: int) -> None:
        """Record that nothing but open gaps is missing up to ``at`` (µs). Written at most once a second.

        On a disk error nothing is written; the downtime at the next start is then longer.
        """
        if time.monotonic() - self._written < _IDLE_SECONDS:
            return
        with suppress(SpoolError):
            await self._spool.note(self.notes(at))

    async def record_stop(self, at: int) -> None:
        """Record an orderly stop at ``at`` (µs), with all data durable.

        On a disk error, the next start assumes a kill.
        """
        with suppress(SpoolError):
            await self._spool.note({self._stopped_note: str(at)})
