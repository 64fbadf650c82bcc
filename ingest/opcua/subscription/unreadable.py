"""Channels that can't be read: one event when that begins, one when it ends.

A value of an unsupported type is no sample, so there is a gap. An element that an array does not have, or a member of a
value that does not fit its definition, is a Bad sample. An optional member may be absent: that is a value, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.batch import Event, Int64s, UInt32s
from core.config.sources import OpcuaTag
from core.errors import DecodeError
from core.status_codes import BAD
from core.timestamps import now_us
from ingest.gaps import Gaps
from ingest.opcua.decode.decoded import DataChange
from ingest.opcua.decode.member_steps import ABSENT
from ingest.opcua.subscription.tags import Tags
from ingest.status import SourceStatus

_REASON = "undecodable"
_UNDECODABLE = "a notification can't be decoded"  # begins the detail of the other gaps of this reason
_NO_ELEMENT = (0x8036_0000, 0x8037_0000)  # BadIndexRangeInvalid, BadIndexRangeNoData
_UNFIT = (0x8007_0000, 0x8039_0000, 0x8074_0000)  # BadDecodingError, BadDataEncodingUnsupported, BadTypeMismatch
_MISSING = np.array([*_NO_ELEMENT, *_UNFIT], np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class NotificationValues:
    """The values of a part of a notification, whose handles are positions."""

    tags: Tags
    change: DataChange
    position: UInt32s  # (n,) of its numbers
    time: Int64s  # (n,) µs
    status: UInt32s  # (n,)

    def numbers(self, mask: NDArray[np.bool_], channels: set[int]) -> dict[int, int]:
        """Channel → time (µs) of the last of its numbers in ``mask``."""
        mask = mask & np.isin(self.tags.ids[self.position], list(channels))
        return dict(zip(self.tags.ids[self.position[mask]].tolist(), self.time[mask].tolist(), strict=True))

    def texts(self, channels: set[int]) -> Iterator[tuple[int, int]]:
        """(channel, time in µs) of the texts that are not Bad."""
        for text in self.change.texts:
            if text.handle < len(self.tags) and text.status < BAD:
                channel = int(self.tags.ids[text.handle])
                if channel in channels:
                    yield channel, text.time

    def unsupported_types(self) -> dict[int, str]:
        """Channel → unsupported type."""
        tags = self.tags
        unsupported = {int(tags.ids[u.handle]): u.reason for u in self.change.unsupported if u.handle < len(tags)}
        for text in self.change.texts:
            if text.handle < len(tags) and not tags.is_text[text.handle]:
                unsupported[int(tags.ids[text.handle])] = f'a {text.type}, which is not a number: set kind = "text"'
        return unsupported


class Unreadable:
    """The channels of one source that can't be read. After a restart the unsupported ones are known by their gaps."""

    def __init__(self, tags: Tags, status: SourceStatus, gaps: Gaps) -> None:
        self._status = status
        self._gaps = gaps
        self._channels = {
            channel
            for channel in gaps.channels_open_for(_REASON)
            if tags.position(channel) is not None and not gaps.detail(channel).startswith(_UNDECODABLE)
        }
        self._missing: set[int] = set()  # channels whose element or member can't be read in the newest value
        for channel in self._channels:
            status.bad_channels[tags.tag(channel).name] = gaps.detail(channel)

    async def check(self, values: NotificationValues, last: Int64s, arrival: int) -> list[Event]:
        """Events to record. ``last``: time of the last sample (µs) by position."""
        tags = values.tags
        events: list[Event] = []
        unsupported = values.unsupported_types()
        for channel, reason in unsupported.items():
            at = tags.position(channel)
            assert at is not None
            self._status.bad_channels[tags.tag(channel).name] = reason
            if channel in self._channels:
                continue
            self._channels.add(channel)
            await self._gaps.open(int(last[at]) or arrival, _REASON, reason, [channel])
            events.append(Event("channel_state", now_us(), channel, text="bad", detail={"reason": reason}))
        for channel, again in self._supported_since(values, unsupported):
            if not self._gaps.ends_with(again):
                continue
            self._channels.discard(channel)
            self._status.bad_channels.pop(tags.tag(channel).name, None)
            if self._gaps.reason(channel) == _REASON:
                await self._gaps.close(again, [channel])
            events.append(Event("channel_state", now_us(), channel, text="good"))
        if self._missing or tags.is_part.any():
            events += self._check_parts(values)
        if self._status.state in {"connected", "degraded"}:
            self._status.state = "degraded" if self._status.bad_channels else "connected"
        return events

    def _check_parts(self, values: NotificationValues) -> list[Event]:
        """Events for elements and members that can no longer be read, or can again."""
        tags = values.tags
        bad = np.flatnonzero(tags.is_part[values.position] & np.isin(values.status, _MISSING))
        missing = {int(tags.ids[values.position[k]]): k for k in bad.tolist()}  # channel → its last such value
        if not (watched := self._missing | missing.keys()):
            return []
        there = values.numbers((values.status < BAD) | (values.status == ABSENT), watched)  # channel → since when
        for channel, time in values.texts(watched):
            there[channel] = max(time, there.get(channel, 0))
        events = []
        for channel, k in missing.items():
            if channel in self._channels or there.get(channel, -1) > values.time[k]:
                continue
            why = _why_missing(tags.tag(channel), int(values.status[k]))
            self._status.bad_channels[tags.tag(channel).name] = why
            if channel not in self._missing:
                events.append(Event("channel_state", now_us(), channel, text="bad", detail={"reason": why}))
            self._missing.add(channel)
            there.pop(channel, None)
        for channel in self._missing & there.keys():
            self._status.bad_channels.pop(tags.tag(channel).name, None)
            events.append(Event("channel_state", now_us(), channel, text="good"))
        self._missing -= there.keys() | self._channels
        return events

    def _supported_since(self, values: NotificationValues, unsupported: Mapping[int, str]) -> list[tuple[int, int]]:
        """(channel, µs) of those with a supported value."""
        remaining = self._channels - unsupported.keys()
        if not remaining:
            return []
        again = values.numbers(~values.tags.is_text[values.position] & (values.status < BAD), remaining)
        for channel, time in values.texts(remaining):
            again.setdefault(channel, time)
        return list(again.items())


class UndecodableNotifications:
    """Gaps of the channels whose notifications can't be decoded: one each, however many notifications."""

    def __init__(self, status: SourceStatus, gaps: Gaps) -> None:
        self._status = status
        self._gaps = gaps
        self.channels = {c for c in gaps.channels() if gaps.detail(c).startswith(_UNDECODABLE)}

    async def open(self, error: DecodeError, channels: Collection[int], intervals: Sequence[tuple[int, int]]) -> None:
        """A notification with these channels can't be decoded: what is missing (see ``missing_intervals``) is a gap."""
        self._status.count_undecodable()
        self._status.remark("undecodable", f"notifications can't be decoded: {error}")
        if self.channels.issuperset(channels):
            return
        self.channels.update(channels)
        detail = f"{_UNDECODABLE}: {error}"
        (since, _), (start, end) = intervals
        await self._gaps.open(since, _REASON, detail, [*channels])
        await self._gaps.record(start, end, _REASON, detail, [*channels])

    async def close(self, time: int, channels: Collection[int]) -> None:
        """A notification with these channels can be decoded again: their gaps end at ``time`` (µs)."""
        decodable = self.channels.intersection(channels)
        await self._gaps.close(time, [c for c in decodable if self._gaps.detail(c).startswith(_UNDECODABLE)])
        self.channels -= decodable
        if not self.channels:
            self._status.remark("undecodable", "")


def _why_missing(tag: OpcuaTag, status: int) -> str:
    """Reason why an element or member can't be read."""
    if status in _NO_ELEMENT and "[" in tag.member:
        return f"an array has no such element as in {tag.path}; the first one has index 0"
    if status in _NO_ELEMENT and tag.index:
        return f"the array has no element {tag.index}; the first one has index {re.sub('[0-9]+', '0', tag.index)}"
    return "the value does not fit the data type that the server describes"
