"""Channels with values of unsupported types: one event, and a gap until a supported value comes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ingest.batch import Event, Int64s, UInt32s
from ingest.gaps import Gaps
from ingest.opcua.decoded import DataChange
from ingest.opcua.tags import Tags
from ingest.status import SourceStatus
from ingest.timestamps import now_us

_REASON = "undecodable"
_BAD = np.uint32(0x8000_0000)


class Unreadable:
    """The unsupported channels of one source. After a restart they are known by their gaps."""

    def __init__(self, tags: Tags, status: SourceStatus, gaps: Gaps) -> None:
        self._status = status
        self._gaps = gaps
        self._channels = {c for c in gaps.channels_open_for(_REASON) if tags.place(c) is not None}
        for channel in self._channels:
            status.bad_channels[tags.tag(channel).name] = gaps.detail(channel)

    async def check(
        self, tags: Tags, change: DataChange, place: UInt32s, time: Int64s, status: UInt32s, last: Int64s, arrival: int
    ) -> list[Event]:
        """Events to record. ``place``, ``time``, ``status``: of the numbers in ``change``; ``last`` (µs) by index."""
        events: list[Event] = []
        found = _found(tags, change)
        for channel in found.keys() - self._channels:
            what, at = found[channel], tags.place(channel)
            assert at is not None
            self._channels.add(channel)
            self._status.bad_channels[tags.tag(channel).name] = what
            await self._gaps.open(int(last[at]) or arrival, _REASON, what, [channel])
            events.append(Event("channel_state", now_us(), channel, text="bad", detail={"reason": what}))
        for channel, again in self._again(tags, change, place, time, status, found):
            if not self._gaps.ends_with(again):
                continue
            self._channels.discard(channel)
            self._status.bad_channels.pop(tags.tag(channel).name, None)
            if self._gaps.reason(channel) == _REASON:
                await self._gaps.close(again, [channel])
            events.append(Event("channel_state", now_us(), channel, text="good"))
        if self._status.state in {"connected", "degraded"}:
            self._status.state = "degraded" if self._status.bad_channels else "connected"
        return events

    def _again(
        self,
        tags: Tags,
        change: DataChange,
        place: UInt32s,
        time: Int64s,
        status: UInt32s,
        found: Mapping[int, str],
    ) -> list[tuple[int, int]]:
        """(channel, µs) of those with a supported value."""
        left = self._channels - found.keys()
        if not left:
            return []
        readable = ~tags.is_text[place] & (status < _BAD) & np.isin(tags.ids[place], list(left))
        again = dict(zip(tags.ids[place[readable]].tolist(), time[readable].tolist(), strict=True))
        for text in change.texts:
            if text.handle < len(tags) and text.status < _BAD and int(tags.ids[text.handle]) in left:
                again.setdefault(int(tags.ids[text.handle]), text.time)
        return list(again.items())


def _found(tags: Tags, change: DataChange) -> dict[int, str]:
    """Channel → unsupported type."""
    found = {int(tags.ids[u.handle]): u.what for u in change.unsupported if u.handle < len(tags)}
    for text in change.texts:
        if text.handle < len(tags) and not tags.is_text[text.handle]:
            found[int(tags.ids[text.handle])] = f'a {text.type}, which is not a number: set kind = "text"'
    return found
