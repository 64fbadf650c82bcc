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
from typing import TypeAlias

import numpy as np
from asyncua import Client, ua

from ingest.appender import Appender
from ingest.batch import Batch, Event, EventBatch, Gap, SampleBatch, now_us
from ingest.errors import DecodeError, SpoolError, SpoolFull
from ingest.gaps import Gaps
from ingest.opcua.data_change import DataChange
from ingest.opcua.history import read_history, server_start
from ingest.opcua.items import chunks
from ingest.opcua.tags import Tags
from ingest.status import SourceStatus
from ingest.versions import Versions

log = logging.getLogger(__name__)

Hole: TypeAlias = tuple[int, int, str, list[int] | None]  # from µs, to µs, reason, channel ids (None: all)

_NODES = 50  # a request
_PAUSE = 0.02  # s, between requests: live data goes first
_TRIES = 3  # a server that ends the session over what it is asked is to be read live all the same
_REFUSED_SECONDS = 1.0  # between two tries where the disk refuses
_BOUND_NOT_FOUND = 0x80D7_0000


class Backfill:
    """The holes of one source that are to be read."""

    def __init__(
        self, tags: Tags, status: SourceStatus, spool: Appender, lane: Appender, gaps: Gaps, versions: Versions
    ) -> None:
        self._tags = self._configured = tags
        self._status = status
        self._spool = spool
        self._lane = lane
        self._gaps = gaps
        self._versions = versions
        self._note = f"backfill:{status.source_id}"
        self._wanted: list[Hole] = [
            (start, end, reason, channels)
            for start, end, reason, channels in json.loads(spool.notes.get(self._note, "[]"))
        ]
        self._something = asyncio.Event()
        self._tries = 0  # in a row that ended with the session

    def configure(self, tags: Tags) -> None:
        """Holes are looked for in the history of these tags from the next one on."""
        self._configured = tags

    async def want(self, from_time: int, to_time: int, reason: str, channels: Iterable[int] | None) -> None:
        """Read this hole when there is time."""
        if not self._tags.source.backfill or to_time <= from_time:
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
            self._tags = self._configured
            holes = _together(self._wanted)
            self._tries += 1
            if self._tries <= _TRIES:
                await self._fill(client, holes)
            else:
                log.error("source %s: history is not read: the session ended each time", self._status.name)
            self._tries = 0
            for hole in holes:
                self._wanted.remove(hole)
            await self._remember()

    async def _fill(self, client: Client, holes: list[Hole]) -> None:
        """Read what ``holes`` of the same channels span, once."""
        start, end = min(hole[0] for hole in holes), max(hole[1] for hole in holes)
        channels = holes[0][3]
        wanted = (
            range(len(self._tags.ids))
            if channels is None
            else np.flatnonzero(np.isin(self._tags.ids, channels)).tolist()
        )
        unknown: dict[int, int] = {}  # channel id → until when (µs) the history knows nothing
        count = 0
        began = await server_start(client)
        for some in chunks(wanted, _NODES):
            tags = [i for i in some if self._tags.source.tags[i].name not in self._status.bad_channels]
            unknown |= {int(self._tags.ids[i]): end for i in some if i not in tags}
            try:
                count += await self._read_as_many_as_allowed(client, tags, start, end, unknown)
            except (TimeoutError, ua.UaStatusCodeError, DecodeError) as error:  # a slow history is no dead session
                if isinstance(error, ua.uaerrors.BadConnectionClosed | ua.uaerrors.BadSessionIdInvalid):
                    raise
                log.info("source %s: no history: %s", self._status.name, type(error).__name__)
                unknown |= {int(self._tags.ids[i]): end for i in tags}
            await asyncio.sleep(_PAUSE)
        if start < began:
            # What a server published just before it went down may be gone with it, whatever its history says.
            unknown |= {
                int(self._tags.ids[i]): max(unknown.get(int(self._tags.ids[i]), 0), min(began, end)) for i in wanted
            }
        for i in wanted:  # before its floor a channel was another node
            channel = int(self._tags.ids[i])
            if (floor := self._versions.floor(channel)) > start:
                unknown[channel] = max(unknown.get(channel, 0), min(floor, end))
        log.info(
            "source %s: %d values of %d channels read from history, not all of %d",
            self._status.name, count, len(wanted), len(unknown),
        )  # fmt: skip
        for hole in holes:
            await self._filled(hole, [int(self._tags.ids[i]) for i in wanted], unknown)

    async def _filled(self, hole: Hole, wanted: list[int], unknown: dict[int, int]) -> None:
        """Put on record what became of a hole."""
        start, end, reason, channels = hole
        remains = {channel: min(to, end) for channel, to in unknown.items() if to > start}
        nothing = sum(to == end for to in remains.values())
        if nothing == len(wanted):
            # Said again: what was filled before it may have been said of a gap that both were.
            await self._gaps.record(start, end, reason, "not in the history", channels)
            return
        if remains:
            await self._gaps.record_each([([c], start, to) for c, to in remains.items()], reason, "not in the history")
        of = None if channels is None else tuple(channel for channel in channels if channel not in remains)
        detail = f"{len(wanted) - len(remains)} of {len(wanted)} channels filled from the server's history"
        if nothing < len(remains):
            detail += f", {len(remains) - nothing} from a later time on"
        if of is None or of:
            await self._gaps.backfilled(Gap(start, end, reason, of, detail))

    async def _read_as_many_as_allowed(
        self, client: Client, tags: list[int], start: int, end: int, unknown: dict[int, int]
    ) -> int:
        """Servers limit the nodes of a request (OperationLimits.MaxNodesPerHistoryReadData, OPC 10000-5, 6.3.11)."""
        try:
            return await self._read(client, tags, start, end, unknown)
        except ua.uaerrors.BadTooManyOperations:
            if len(tags) == 1:
                raise
            halves = tags[: len(tags) // 2], tags[len(tags) // 2 :]
            return sum([await self._read_as_many_as_allowed(client, half, start, end, unknown) for half in halves])

    async def _read(self, client: Client, tags: list[int], start: int, end: int, unknown: dict[int, int]) -> int:
        """Read some tags' history into the lane; how many values that were."""
        begun: set[int] = set()
        kept: list[tuple[int, DataChange]] = []  # a channel's values
        texts: list[Event] = []
        async for page in read_history(client, self._tags.source, tags, start, end):
            channel = int(self._tags.ids[page.tag])
            if page.change is None:
                unknown[channel] = end
                continue
            if page.tag not in begun:
                begun.add(page.tag)
                until = _unknown_until(page.change, start, end)
                if until is not None:
                    unknown[channel] = until
            if self._tags.is_text[page.tag]:
                since = max(start, self._versions.floor(channel))
                texts += [
                    Event("text", t.time, channel, t.status, t.text)
                    for t in page.change.texts
                    if since <= t.time <= end and t.status & 0xFFFF_0000 != _BOUND_NOT_FOUND
                ]
            elif page.change.handle:
                kept.append((channel, page.change))
        if texts:
            await self._keep(EventBatch(self._status.source_id, now_us(), texts))
        samples = self._samples(kept, start, end)
        if samples is not None:
            await self._keep(samples)
        return len(texts) + (0 if samples is None else len(samples))

    def _samples(self, kept: list[tuple[int, DataChange]], start: int, end: int) -> SampleBatch | None:
        """One batch of all channels' values between ``start`` and ``end`` (µs)."""
        if not kept:
            return None
        columns = [(np.concatenate(c.time), np.concatenate(c.value), np.concatenate(c.status)) for _, c in kept]
        time, value, status = (np.concatenate([column[k] for column in columns]) for k in range(3))
        sizes = [len(column[0]) for column in columns]
        ids = np.repeat(np.array([channel for channel, _ in kept], np.int32), sizes)
        since = np.repeat(np.array([max(start, self._versions.floor(channel)) for channel, _ in kept], np.int64), sizes)
        ours = (time >= since) & (time <= end) & (status & 0xFFFF_0000 != _BOUND_NOT_FOUND)
        if not ours.any():
            return None
        return SampleBatch(self._status.source_id, now_us(), ids[ours], time[ours], value[ours], status[ours])

    async def _keep(self, batch: Batch) -> None:
        while True:
            try:
                return await self._lane.append(batch)
            except SpoolFull:
                await self._lane.wait_for_room()
            except SpoolError as error:
                log.error("source %s: %s", self._status.name, error)
                await asyncio.sleep(_REFUSED_SECONDS)


def _together(wanted: list[Hole]) -> list[Hole]:
    """The oldest hole, and those of the same channels that overlap it, or one that does."""
    start, end, _, channels = wanted[0]
    together = [wanted[0]]
    for hole in wanted[1:]:
        if hole[3] == channels and hole[0] <= end and hole[1] >= start:
            start, end = min(start, hole[0]), max(end, hole[1])
            together.append(hole)
    return together


def _unknown_until(change: DataChange, start: int, end: int) -> int | None:
    """Until when (µs) a first page's node has no history; None: it reaches back to ``start``, by its lower bound."""
    times = np.concatenate([*change.time, np.array([t.time for t in change.texts], np.int64)])
    status = np.concatenate([*change.status, np.array([t.status for t in change.texts], np.uint32)])
    found = times[status & 0xFFFF_0000 != _BOUND_NOT_FOUND]
    if not len(found):
        return end
    first = int(found.min())
    return None if first <= start else min(first, end)
