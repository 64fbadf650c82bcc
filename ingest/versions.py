"""The time from which a source's channels are read by their current definition (``plant.channel_version``).

A registered version of a channel has no start time until its collector reports from when on it reads by it: in the
spool, before the first such sample. The writer sets the version's ``valid_from`` to that time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from core import metrics
from core.batch import Event, EventBatch
from core.timestamps import now_us
from ingest.appender import Appender
from ingest.notes import Note

NO_VERSIONS: Mapping[Any, int] = MappingProxyType({})


def versions_of(channel_ids: Mapping[str, int], versions: Mapping[str, int]) -> dict[int, int]:
    """Channel id → version, of those of a source's channels that have one."""
    return {channel_ids[name]: versions[name] for name in channel_ids.keys() & versions.keys()}


class _ReadVersion(NamedTuple):
    """The version by which a channel is read."""

    version: int
    floor: int = 0  # µs, see :meth:`ChannelVersions.floor`
    is_pending: bool = True  # no value was as new as the floor yet


class ChannelVersions:
    """The versions of one source's channels, preserved across restarts."""

    def __init__(self, source: str, source_id: int, spool: Appender) -> None:
        self._source = source
        self._source_id = source_id
        self._spool = spool
        self._note = Note.VERSIONS.of(source_id)
        notes = json.loads(spool.notes.get(self._note, "{}"))
        self._durable = {int(channel): _ReadVersion(*read) for channel, read in notes.items()}  # by channel id
        self._started: dict[int, tuple[_ReadVersion, int]] = {}  # channel id → by what, since µs; not on disk yet
        self._writing = asyncio.Lock()

    def not_yet_read(self, versions: Mapping[int, int]) -> dict[int, int]:
        """Entries of ``versions`` (channel id → version) that are newer than those read so far."""
        return {c: version for c, version in versions.items() if self._current(c).version < version}

    def floor(self, channel: int) -> int:
        """Time (µs) before which samples are from another address than now; 0: the address never changed."""
        return self._current(channel).floor

    def pending_floor(self, channel: int) -> int:
        """µs: the floor, until a value was as new as that; from then on 0."""
        read = self._current(channel)
        return read.floor if read.is_pending else 0

    def _current(self, channel: int) -> _ReadVersion:
        started = self._started.get(channel)
        return started[0] if started is not None else self._durable.get(channel, _ReadVersion(0))

    def start(self, channel: int, version: int, since: int, *, new_address: bool = False) -> None:
        """A channel is read by ``version`` since a time (µs). :meth:`flush` makes it durable."""
        read = _ReadVersion(version, since) if new_address else self._current(channel)._replace(version=version)
        self._started[channel] = (read, since)

    async def flush(self) -> None:
        """Write new versions to disk, before samples that were read by them. Raises SpoolError."""
        async with self._writing:
            if not self._started:
                return
            started = dict(self._started)
            events = [Event("version_read", at, c, detail={"version": r.version}) for c, (r, at) in started.items()]
            durable = {**self._durable, **{c: read for c, (read, _) in started.items()}}
            await self._spool.append(EventBatch(self._source_id, now_us(), events), {self._note: json.dumps(durable)})
            self._durable = durable
            self._started = {c: version for c, version in self._started.items() if started.get(c) != version}
            metrics.events.labels(source=self._source, type="version_read").inc(len(events))

    async def floor_reached(self, floors: Mapping[int, int]) -> None:
        """Make durable that channels had a value as new as their floor (channel id → µs). Raises SpoolError."""
        async with self._writing:
            ended = {c for c, read in self._durable.items() if read.floor == floors.get(c)}
            durable = {c: read._replace(is_pending=False) if c in ended else read for c, read in self._durable.items()}
            await self._spool.note({self._note: json.dumps(durable)})
            self._durable = durable
