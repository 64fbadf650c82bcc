"""From when on a source's channels are read as they are defined now (``plant.channel_version``).

A registration's version of a channel waits without a time until its collector says since when it reads by it: in the
spool, before the first sample that it reads so. The writer sets the version's ``valid_from`` to that.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest import metrics
from ingest.appender import Appender
from ingest.batch import Event, EventBatch, now_us

NO_VERSIONS: Mapping[Any, int] = MappingProxyType({})


class Versions:
    """Those of one source: what its collector has said, which a restart does not forget."""

    def __init__(self, source: str, source_id: int, spool: Appender) -> None:
        self._source = source
        self._source_id = source_id
        self._spool = spool
        self._note = f"versions:{source_id}"
        self._said: dict[int, tuple[int, int]] = {  # channel id → version, floor µs
            int(channel): (version, floor)
            for channel, (version, floor) in json.loads(spool.notes.get(self._note, "{}")).items()
        }
        self._begun: dict[int, tuple[int, int, int]] = {}  # channel id → version, floor, since µs; not on disk yet
        self._saying = asyncio.Lock()

    def unsaid(self, versions: Mapping[int, int]) -> dict[int, int]:
        """Those of ``versions`` (channel id → version) that nothing was read by yet."""
        said = {**self._said, **self._begun}
        return {c: version for c, version in versions.items() if said.get(c, (0,))[0] < version}

    def floor(self, channel: int) -> int:
        """µs: what is older is of another place than that which the channel is read from now. 0: always the same."""
        said = self._begun.get(channel) or self._said.get(channel)
        return said[1] if said is not None else 0

    def begin(self, channel: int, version: int, since: int, *, another_place: bool = False) -> None:
        """A channel is read by a version of it since a time (µs). Said by :meth:`say`."""
        self._begun[channel] = (version, since if another_place else self.floor(channel), since)

    async def say(self) -> None:
        """Make durable what began; to be awaited before samples that were read so are. Raises SpoolError."""
        async with self._saying:
            if not self._begun:
                return
            begun = dict(self._begun)
            events = [Event("version_read", at, c, detail={"version": number}) for c, (number, _, at) in begun.items()]
            said = {**self._said, **{c: (version, floor) for c, (version, floor, _) in begun.items()}}
            await self._spool.append(EventBatch(self._source_id, now_us(), events), {self._note: json.dumps(said)})
            self._said = said
            self._begun = {c: one for c, one in self._begun.items() if begun.get(c) != one}
            metrics.events.labels(source=self._source, type="version_read").inc(len(events))
