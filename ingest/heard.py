"""How far a source was heard, on disk: what a process that starts knows of the time in which none ran.

A collector makes the time of its last durable sample or poll durable with it. At its start the interval from there to
the first sample is one in which samples may be missing, because plantlog was stopped or was killed.
"""

from __future__ import annotations

import time
from typing import Literal, TypeAlias

from ingest.appender import Appender, Notes
from ingest.errors import SpoolError

Ending: TypeAlias = Literal["stopped", "killed"]

_IDLE_SECONDS = 1.0  # a source without samples is noted this often at most


class Heard:
    """The notes ``heard:ID`` and ``stopped:ID`` (µs) of one source."""

    def __init__(self, source_id: int, spool: Appender) -> None:
        self._spool = spool
        self._heard = f"heard:{source_id}"
        self._stopped = f"stopped:{source_id}"
        self._written = float("-inf")  # monotonic s

    def interruption(self) -> tuple[int, Ending] | None:
        """Since when (µs) nobody listened and how that came; None: the source was never heard.

        To be asked at start, before anything is noted: the first note removes the one of an orderly stop.
        """
        heard = self._spool.notes.get(self._heard)
        if heard is None:
            return None
        return int(heard), "stopped" if self._stopped in self._spool.notes else "killed"

    def notes(self, at: int) -> Notes:
        """Notes for the append of samples, the newest of which was had at ``at`` (µs)."""
        self._written = time.monotonic()
        return {self._heard: str(at), self._stopped: None}

    async def idle(self, at: int) -> None:
        """Nothing is missing up to ``at`` (µs) but what open gaps say. Written at most once a second.

        Where the disk refuses nothing is written: at the next start the interruption is the longer for it.
        """
        if time.monotonic() - self._written < _IDLE_SECONDS:
            return
        try:
            await self._spool.note(self.notes(at))
        except SpoolError:
            return

    async def stop(self, at: int) -> None:
        """The collector ends because it was told to, at ``at`` (µs), and what it had is durable.

        Where the disk refuses, the next start takes it for killed.
        """
        if self._heard not in self._spool.notes:
            return
        try:
            await self._spool.note({self._stopped: str(at)})
        except SpoolError:
            return
