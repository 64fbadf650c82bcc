"""Fills holes from the server's history, in a lane of its own: a spool that the writer empties when nothing else waits.

What is wanted is a note in the spool, so that a restart goes on with it. A hole counts as filled for a channel only if
the server proved that its history reaches back to the hole's beginning; what remains stays a gap.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
from asyncua import Client, ua

from ingest.appender import Appender
from ingest.batch import Batch, Event, EventBatch, Gap, Int32s, SampleBatch, now_us
from ingest.config.model import OpcuaSource
from ingest.errors import DecodeError, SpoolError, SpoolFull
from ingest.gaps import Gaps
from ingest.opcua.data_change import DataChange
from ingest.opcua.history import read_history
from ingest.opcua.items import chunks
from ingest.status import SourceStatus

log = logging.getLogger(__name__)

_NODES = 10  # a request
_PAUSE = 0.02  # s, between requests: live data goes first
_REFUSED_SECONDS = 1.0  # between two tries where the disk refuses
_BOUND_NOT_FOUND = 0x80D7_0000


class Backfill:
    """The holes of one source that are to be read."""

    def __init__(
        self, source: OpcuaSource, ids: Int32s, status: SourceStatus, spool: Appender, lane: Appender, gaps: Gaps
    ) -> None:
        self._source = source
        self._ids = ids  # (n,) channel ids of the tags
        self._is_text = np.array([tag.kind == "text" for tag in source.tags], bool)
        self._status = status
        self._spool = spool
        self._lane = lane
        self._gaps = gaps
        self._note = f"backfill:{status.source_id}"
        # (from µs, to µs, reason, channel ids; None: all of the source)
        self._wanted: list[tuple[int, int, str, list[int] | None]] = [
            (start, end, reason, channels)
            for start, end, reason, channels in json.loads(spool.notes.get(self._note, "[]"))
        ]
        self._something = asyncio.Event()

    async def want(self, from_time: int, to_time: int, reason: str, channels: Iterable[int] | None) -> None:
        """Read this hole when there is time."""
        if not self._source.backfill or to_time <= from_time:
            return
        self._wanted.append((from_time, to_time, reason, None if channels is None else list(channels)))
        await self._remember()
        self._something.set()

    async def _remember(self) -> None:
        # Where the disk refuses, a process that is killed now leaves the gap as it is, or reads it twice.
        with suppress(SpoolError):
            await self._spool.note({self._note: json.dumps(self._wanted) if self._wanted else None})

    async def run(self, client: Client) -> None:
        """Read until cancelled. Raises OSError or ua.UaError where the session is no good any more."""
        while True:
            while not self._wanted:
                self._something.clear()
                await self._something.wait()
            await self._fill(client, *self._wanted[0])
            del self._wanted[0]
            await self._remember()

    async def _fill(self, client: Client, start: int, end: int, reason: str, channels: list[int] | None) -> None:
        wanted = range(len(self._ids)) if channels is None else np.flatnonzero(np.isin(self._ids, channels)).tolist()
        remains: dict[int, int] = {}  # channel id → until when (µs) the history knows nothing
        count = 0
        for some in chunks(wanted, _NODES):
            tags = [i for i in some if self._source.tags[i].name not in self._status.bad_channels]
            try:
                count += await self._read(client, tags, start, end, remains)
            except (ua.UaStatusCodeError, DecodeError) as error:
                if isinstance(error, ua.uaerrors.BadConnectionClosed | ua.uaerrors.BadSessionIdInvalid):
                    raise
                log.info("source %s: no history: %s", self._source.name, type(error).__name__)
                remains |= {int(self._ids[i]): end for i in tags}
            await asyncio.sleep(_PAUSE)
        known = [int(self._ids[i]) for i in wanted if int(self._ids[i]) not in remains]
        log.info(
            "source %s: %d values of %d channels read from history, none of %d",
            self._source.name, count, len(known), len(remains),
        )  # fmt: skip
        if not known:
            return  # nothing was filled: the gap stays as it is
        if remains:
            await self._gaps.record_each([(c, start, to) for c, to in remains.items()], reason, "not in the history")
        of = None if channels is None else tuple(channels)
        detail = f"{len(known)} of {len(wanted)} channels filled from the server's history"
        await self._gaps.backfilled(Gap(start, end, reason, of, detail))

    async def _read(self, client: Client, tags: list[int], start: int, end: int, remains: dict[int, int]) -> int:
        """Read some tags' history into the lane; how many values that were."""
        begun: set[int] = set()
        count = 0
        async for page in read_history(client, self._source, tags, start, end):
            channel = int(self._ids[page.tag])
            if page.change is None:
                remains[channel] = end
                continue
            if page.tag not in begun:
                begun.add(page.tag)
                unknown = _unknown_until(page.change, start, end)
                if unknown is not None:
                    remains[channel] = unknown
            count += await self._keep(page.change, channel, bool(self._is_text[page.tag]), start, end)
        return count

    async def _keep(self, change: DataChange, channel: int, is_text: bool, start: int, end: int) -> int:
        received = now_us()
        batch: Batch
        if is_text:
            events = [Event("text", t.time, channel, t.status, t.text) for t in change.texts if start <= t.time <= end]
            if not events:
                return 0
            batch = EventBatch(self._status.source_id, received, events)
        else:
            if not change.handle:
                return 0
            time, value = np.concatenate(change.time), np.concatenate(change.value)
            status = np.concatenate(change.status)
            ours = (time >= start) & (time <= end) & (status & 0xFFFF_0000 != _BOUND_NOT_FOUND)
            if not ours.any():
                return 0
            ids = np.full(int(ours.sum()), channel, np.int32)
            batch = SampleBatch(self._status.source_id, received, ids, time[ours], value[ours], status[ours])
        while True:
            try:
                await self._lane.append(batch)
                return len(batch)
            except SpoolFull:
                await self._lane.wait_for_room()
            except SpoolError as error:
                log.error("source %s: %s", self._source.name, error)
                await asyncio.sleep(_REFUSED_SECONDS)


def _unknown_until(change: DataChange, start: int, end: int) -> int | None:
    """Until when (µs) a first page's node has no history; None: it reaches back to ``start``, by its lower bound."""
    times = np.concatenate([*change.time, np.array([t.time for t in change.texts], np.int64)])
    status = np.concatenate([*change.status, np.array([t.status for t in change.texts], np.uint32)])
    found = times[status & 0xFFFF_0000 != _BOUND_NOT_FOUND]
    if not len(found):
        return end
    first = int(found.min())
    return None if first <= start else min(first, end)
