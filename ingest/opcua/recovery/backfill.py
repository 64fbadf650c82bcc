"""Fills gaps from the server's history, through a low-priority spool that the writer reads when nothing else waits.

Pending gaps are notes in the spool, so that they survive a restart. A gap counts as filled for a channel only if
the server proved that its history reaches back to the start of the gap; the rest stays a gap.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from asyncua import Client, ua

from core.batch import ROUNDED_DETAIL, Batch, Event, EventBatch, SampleBatch
from core.errors import DecodeError, SourceError, SpoolError
from core.opcua.namespaces import read_namespaces
from core.opcua.service import TOO_LARGE, chunks, sends_whole_arrays
from core.samples import Samples
from core.status_codes import BAD
from core.timestamps import now_us
from ingest.appender import Appender, until_durable
from ingest.gaps import Gaps
from ingest.notes import Note
from ingest.opcua.decode.decoded import DataChange
from ingest.opcua.decode.structures import Structures
from ingest.opcua.recovery.history import BOUND_NOT_FOUND, NO_DATA, read_history, server_start
from ingest.opcua.subscription.repeated_timestamps import RepeatedTimestamps
from ingest.opcua.subscription.tags import Tags
from ingest.status import SourceStatus
from ingest.versions import ChannelVersions

log = logging.getLogger(__name__)

PendingGap: TypeAlias = tuple[int, int, str, list[int] | None]  # from µs, to µs, reason, channel ids (None: all)

_NODES = 50  # per request
_PAUSE = 0.02  # s, between requests: live data goes first
_MAX_TRIES = 3  # some servers end the session over history requests; live data must continue
_NOT_IN_HISTORY = "not in the history"


class Backfill:
    """The pending gaps of one source."""

    def __init__(
        self,
        tags: Tags,
        status: SourceStatus,
        spool: Appender,
        backfill_spool: Appender,
        gaps: Gaps,
        versions: ChannelVersions,
    ) -> None:
        self._tags = self._next_tags = tags
        self._status = status
        self._spool = spool
        self._backfill_spool = backfill_spool
        self._gaps = gaps
        self._versions = versions
        self._note = Note.BACKFILL.of(status.source_id)
        self._pending: list[PendingGap] = [
            (start, end, reason, channels)
            for start, end, reason, channels in json.loads(spool.notes.get(self._note, "[]"))
        ]
        self._wake_up = asyncio.Event()
        self._rounded: set[int] = set()  # channels whose rounding was recorded
        self._whole_arrays = False  # the server does not support IndexRange
        self._structures = Structures()
        self._faults: dict[int, str] = {}  # channel id → why the server did not say what its history has
        self._tries = 0  # consecutive ones that ended with the session

    def configure(self, tags: Tags) -> None:
        """Use these tags from the next gap on."""
        self._next_tags = tags

    async def request(self, from_time: int, to_time: int, reason: str, channels: Iterable[int] | None) -> None:
        """Queue a gap to be read."""
        if not self._tags.source.backfill or to_time <= from_time:
            return
        self._pending.append((from_time, to_time, reason, None if channels is None else list(channels)))
        await self._save()
        self._wake_up.set()

    async def withdraw(self, from_time: int, to_time: int, channels: Iterable[int] | None) -> None:
        """Withdraw a part of a gap (µs) in which nothing is missing."""
        ids = None if channels is None else sorted(channels)
        same = [gap for gap in self._pending if gap[3] == ids and gap[0] <= from_time and to_time <= gap[1]]
        for start, end, reason, _ in same:
            self._pending.remove((start, end, reason, ids))
            for remaining in ((start, from_time), (to_time, end)):
                if remaining[0] < remaining[1]:
                    self._pending.append((*remaining, reason, ids))
        await self._save()

    async def _save(self) -> None:
        # After a disk error, a process killed now leaves the gap unfilled, or reads it twice.
        with suppress(SpoolError):
            await self._spool.note({self._note: json.dumps(self._pending) if self._pending else None})

    async def run(self, client: Client) -> None:
        """Read until cancelled. Raises OSError or ua.UaError if the session is broken."""
        self._structures.begin_session()
        while True:
            while not self._pending:
                self._wake_up.clear()
                await self._wake_up.wait()
            self._tags = self._next_tags
            gaps = _overlapping(self._pending)
            self._tries += 1
            if self._tries <= _MAX_TRIES:
                await self._fill(client, gaps)
            else:
                log.error(
                    "source %s: giving up reading history: the connection was lost during each attempt",
                    self._status.name,
                )
            self._tries = 0
            self._pending = [gap for gap in self._pending if gap not in gaps]
            await self._save()

    async def _fill(self, client: Client, gaps: list[PendingGap]) -> None:
        """Read the range spanned by ``gaps`` of the same channels, once."""
        start, end = min(gap[0] for gap in gaps), max(gap[1] for gap in gaps)
        channels = gaps[0][3]
        positions = (
            range(len(self._tags.ids))
            if channels is None
            else np.flatnonzero(np.isin(self._tags.ids, channels)).tolist()
        )
        unknown: dict[int, int] = {}  # channel id → the history is unknown up to here (µs)
        count = 0
        self._faults = {}
        began = await server_start(client, self._tags.source)
        nodes = await self._nodes(client, positions)
        self._whole_arrays = await sends_whole_arrays(client, self._tags.source.time_out)
        for portion in chunks(positions, _NODES):
            tags = {i: nodes[i] for i in portion if i in nodes}
            self._not_read([i for i in portion if i not in tags], "the node cannot be read", end, unknown)
            try:
                count += await self._read_within_limits(client, tags, start, end, unknown)
            except (TimeoutError, ua.UaStatusCodeError, DecodeError) as error:  # a slow history is no dead session
                if isinstance(error, ua.uaerrors.BadConnectionClosed | ua.uaerrors.BadSessionIdInvalid):
                    raise
                self._not_read(tags, f"the history cannot be read: {type(error).__name__}", end, unknown)
            await asyncio.sleep(_PAUSE)
        if start < began:
            # Data published just before a server crash may be lost, whatever its history contains.
            unknown |= {
                int(self._tags.ids[i]): max(unknown.get(int(self._tags.ids[i]), 0), min(began, end)) for i in positions
            }
        for i in positions:  # before the floor the channel belonged to another node
            channel = int(self._tags.ids[i])
            if (floor := self._versions.floor(channel)) > start:
                unknown[channel] = max(unknown.get(channel, 0), min(floor, end))
        log.info(
            "source %s: read %d values of %d channels from history; the history of %d channels is incomplete",
            self._status.name, count, len(positions), len(unknown),
        )  # fmt: skip
        for fault, number in Counter(self._faults.values()).items():
            log.warning("source %s: %d channels: %s", self._status.name, number, fault)
        for gap in sorted(gaps, key=itemgetter(0), reverse=True):  # a gap that began where one ended would prolong it
            if gap in self._pending:
                await self._record_outcome(gap, [int(self._tags.ids[i]) for i in positions], unknown)

    def _not_read(self, tags: Iterable[int], fault: str, end: int, unknown: dict[int, int]) -> None:
        """The server did not say whether it has the history of these tags."""
        channels = [int(self._tags.ids[i]) for i in tags]
        unknown |= dict.fromkeys(channels, end)
        self._faults |= dict.fromkeys(channels, fault)

    async def _nodes(self, client: Client, positions: Iterable[int]) -> dict[int, ua.NodeId]:
        """The node ids of readable tags in this session, by index."""
        namespaces = await read_namespaces(client, self._tags.source.time_out)
        unreadable = {c for reason in ("refused", "undecodable") for c in self._gaps.channels_open_for(reason)}
        nodes = {}
        for i in positions:
            tag = self._tags.source.tags[i]
            if int(self._tags.ids[i]) not in unreadable:
                with suppress(SourceError):  # the channel is rejected for this reason, or will be
                    nodes[i] = namespaces.node_id(tag.address)
        return nodes

    async def _record_outcome(self, gap: PendingGap, channel_ids: list[int], unknown: dict[int, int]) -> None:
        """Record the outcome of a gap."""
        start, end, reason, channels = gap
        remains = {channel: min(to, end) for channel, to in unknown.items() if to > start}
        empty = sum(to == end for to in remains.values())
        if empty == len(channel_ids):
            # Recorded again: an earlier fill may refer to a gap that contained both.
            details = sorted({self._faults.get(channel, _NOT_IN_HISTORY) for channel in remains})
            await self._gaps.record(start, end, reason, "; ".join(details), channels)
            return
        by_detail: dict[str, list[tuple[list[int], int, int]]] = {}
        for channel, to in remains.items():
            by_detail.setdefault(self._faults.get(channel, _NOT_IN_HISTORY), []).append(([channel], start, to))
        for detail, gaps in by_detail.items():
            await self._gaps.record_each(gaps, reason, detail)
        filled = None if channels is None else tuple(channel for channel in channels if channel not in remains)
        detail = (
            f"{len(channel_ids) - len(remains)} of {len(channel_ids)} channels backfilled from the server's history"
        )
        if empty < len(remains):
            detail += f", {len(remains) - empty} partly"
        if filled is None or filled:
            await self._gaps.backfilled(start, end, reason, detail, filled)

    async def _read_within_limits(
        self, client: Client, tags: Mapping[int, ua.NodeId], start: int, end: int, unknown: dict[int, int]
    ) -> int:
        """Respect the server's limit of nodes per request (MaxNodesPerHistoryReadData, OPC 10000-5, 6.3.11)."""
        try:
            return await self._read(client, tags, start, end, unknown)
        except TOO_LARGE:
            if len(tags) == 1:
                raise
            halves = [dict(half) for half in chunks(list(tags.items()), -(-len(tags) // 2))]
            return sum([await self._read_within_limits(client, half, start, end, unknown) for half in halves])

    async def _read(
        self, client: Client, tags: Mapping[int, ua.NodeId], start: int, end: int, unknown: dict[int, int]
    ) -> int:
        """Read the history of some tags into the backfill spool. Returns the number of values."""
        tags_read: set[int] = set()
        changes: list[tuple[int, DataChange]] = []  # values of a tag
        events: list[Event] = []
        texts = 0
        source, whole_arrays = self._tags.source, self._whole_arrays
        async for page in read_history(client, source, tags, start, end, whole_arrays, self._structures):
            channel = int(self._tags.ids[page.tag])
            if page.change is None:
                unknown[channel] = end
                if page.status not in NO_DATA:
                    status = ua.StatusCode(page.status).name if page.status & BAD else "it does not end"
                    self._faults[channel] = f"the history cannot be read: {status}"
                continue
            self._tags.date(page.change)
            if page.tag not in tags_read:
                tags_read.add(page.tag)
                until = _unknown_until(page.change, start, end)
                if until is not None:
                    unknown[channel] = until
            if self._tags.is_text[page.tag]:
                since = max(start, self._versions.floor(channel))
                texts_of_page = [
                    Event("text", t.time, channel, t.status, t.text)
                    for t in page.change.texts
                    if since <= t.time <= end and t.status & 0xFFFF_0000 != BOUND_NOT_FOUND
                ]
                texts += len(texts_of_page)
                events += texts_of_page
            elif page.change.handle:
                changes.append((page.tag, page.change))
            if page.change.rounded and channel not in self._rounded:
                self._rounded.add(channel)
                events.append(Event("rounded", now_us(), channel, detail=ROUNDED_DETAIL))
        if events:
            await self._append(EventBatch(self._status.source_id, now_us(), events))
        samples = self._samples(changes, start, end)
        if samples is not None:
            await self._append(samples)
        return texts + (0 if samples is None else len(samples))

    def _samples(self, changes: list[tuple[int, DataChange]], start: int, end: int) -> SampleBatch | None:
        """One batch with the values of all channels between ``start`` and ``end`` (µs); None: there are none."""
        if not changes:
            return None
        source = np.concatenate([run for _, change in changes for run in change.time])
        server = np.concatenate([run for _, change in changes for run in change.server])
        value = np.concatenate([run for _, change in changes for run in change.value])
        status = np.concatenate([run for _, change in changes for run in change.status])
        sizes = [sum(map(len, change.time)) for _, change in changes]
        position = np.repeat(np.array([tag for tag, _ in changes], np.uint32), sizes)
        ids = self._tags.ids[position]
        floors = [max(start, self._versions.floor(int(self._tags.ids[tag]))) for tag, _ in changes]
        value, status = self._tags.without_no_data(position, value, status)
        dated = RepeatedTimestamps(self._tags).date(position, source, server, value, status, 0)
        time = dated.time
        in_range = (time >= np.repeat(floors, sizes)) & (time <= end) & (status & 0xFFFF_0000 != BOUND_NOT_FOUND)
        if dated.keep is not None:
            in_range &= dated.keep
        if not in_range.any():
            return None
        return SampleBatch(
            self._status.source_id, now_us(), Samples(ids[in_range], time[in_range], value[in_range], status[in_range])
        )

    async def _append(self, batch: Batch) -> None:
        spool = self._backfill_spool
        await until_durable(spool, self._status.name, lambda: spool.append(batch))


def _overlapping(gaps: list[PendingGap]) -> list[PendingGap]:
    """The oldest gap, and those of the same channels that overlap it, directly or through others."""
    start, end, _, channels = gaps[0]
    overlapping = [gaps[0]]
    for gap in gaps[1:]:
        if gap[3] == channels and gap[0] <= end and gap[1] >= start:
            start, end = min(start, gap[0]), max(end, gap[1])
            overlapping.append(gap)
    return overlapping


def _unknown_until(change: DataChange, start: int, end: int) -> int | None:
    """Start of the history of a node (µs), by its first page; None: not after ``start``, as its bound shows."""
    times = np.concatenate([*change.time, np.array([t.time for t in change.texts], np.int64)])
    status = np.concatenate([*change.status, np.array([t.status for t in change.texts], np.uint32)])
    bounded = times[status & 0xFFFF_0000 != BOUND_NOT_FOUND]
    if not len(bounded):
        return end
    first = int(bounded.min())
    return None if first <= start else min(first, end)
