"""From when on a source's channels are read as they are defined now (``plant.channel_version``).

A registration's version of a channel waits without a time until its collector says since when it reads by it: in the
spool, before the first sample that it reads so. The writer sets the version's ``valid_from`` to that.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ingest import metrics
from ingest.appender import Appender
from ingest.batch import Event, EventBatch, now_us

NO_VERSIONS: Mapping[Any, int] = MappingProxyType({})


class _Read(NamedTuple):
    """By what a channel is read."""

    version: int
    floor: int = 0  # µs, see :meth:`Versions.floor`
    lifts: bool = True  # no value was as new as the floor yet


class Versions:
    """Those of one source: what its collector has said, which a restart does not forget."""

    def __init__(self, source: str, source_id: int, spool: Appender) -> None:
        self._source = source
        self._source_id = source_id
        self._spool = spool
        self._note = f"versions:{source_id}"
        notes = json.loads(spool.notes.get(self._note, "{}"))
        self._said = {int(channel): _Read(*read) for channel, read in notes.items()}  # by channel id
        self._begun: dict[int, tuple[_Read, int]] = {}  # channel id → by what, since µs; not on disk yet
        self._saying = asyncio.Lock()

    def unsaid(self, versions: Mapping[int, int]) -> dict[int, int]:
        """Those of ``versions`` (channel id → version) that nothing was read by yet."""
        return {c: version for c, version in versions.items() if self._read(c).version < version}

    def floor(self, channel: int) -> int:
        """µs: what is older is of another place than that which the channel is read from now. 0: always the same."""
        return self._read(channel).floor

    def lift(self, channel: int) -> int:
        """µs: the floor, until a value was as new as that; from then on 0."""
        read = self._read(channel)
        return read.floor if read.lifts else 0

    def _read(self, channel: int) -> _Read:
        begun = self._begun.get(channel)
        return begun[0] if begun is not None else self._said.get(channel, _Read(0))

    def begin(self, channel: int, version: int, since: int, *, another_place: bool = False) -> None:
        """A channel is read by a version of it since a time (µs). Said by :meth:`say`."""
        read = _Read(version, since) if another_place else self._read(channel)._replace(version=version)
        self._begun[channel] = (read, since)

    async def say(self) -> None:
        """Make durable what began; to be awaited before samples that were read so are. Raises SpoolError."""
        async with self._saying:
            if not self._begun:
                return
            begun = dict(self._begun)
            events = [Event("version_read", at, c, detail={"version": r.version}) for c, (r, at) in begun.items()]
            said = {**self._said, **{c: read for c, (read, _) in begun.items()}}
            await self._spool.append(EventBatch(self._source_id, now_us(), events), {self._note: json.dumps(said)})
            self._said = said
            self._begun = {c: one for c, one in self._begun.items() if begun.get(c) != one}
            metrics.events.labels(source=self._source, type="version_read").inc(len(events))

    async def reached(self, floors: Mapping[int, int]) -> None:
        """Make durable that channels had a value as new as their floor (channel id → µs). Raises SpoolError."""
        async with self._saying:
            ended = {c for c, read in self._said.items() if read.floor == floors.get(c)}
            said = {c: read._replace(lifts=False) if c in ended else read for c, read in self._said.items()}
            await self._spool.note({self._note: json.dumps(said)})
            self._said = said
