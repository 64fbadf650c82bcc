"""The configured tags of one source in columns, and by channel id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s, Int32s, Int64s, UInt32s
from core.config.addresses.value_path import Indexes, parse_index
from core.config.sources import OpcuaSource, OpcuaTag, TimeOrigin
from core.status_codes import BAD
from ingest.no_data import BAD_NO_DATA, NoData
from ingest.opcua.decode.decoded import DataChange, DecodeRules
from ingest.versions import NO_VERSIONS

_ORIGINS: tuple[TimeOrigin, ...] = ("source", "server", "arrival")
_SERVER = 1

ReadTarget: TypeAlias = tuple[str, str | None, str]  # address, index, member


class Tags:
    """Columns over a source's n tags; immutable, replaced when the configuration changes.

    The client handle of a monitored item is its channel id, combined with the key of its subscription. So notifications
    stay valid however the tag list is edited, even for a restarted process that takes over the subscription.
    """

    def __init__(
        self, source: OpcuaSource, channel_ids: Mapping[str, int], versions: Mapping[int, int] = NO_VERSIONS
    ) -> None:
        self.source = source
        self.versions = versions  # channel id → version
        self.ids: Int32s = np.array([channel_ids[tag.name] for tag in source.tags], np.int32)  # (n,) channel ids
        self.is_text = np.array([tag.kind == "text" for tag in source.tags], bool)  # (n,)
        self.is_part = np.array([tag.index is not None or bool(tag.member) for tag in source.tags], bool)  # (n,)
        self._position = {channel: position for position, channel in enumerate(self.ids.tolist())}
        # Client handle → index of the tag; n for unknown handles.
        self._positions = np.full(int(self.ids.max(initial=-1)) + 2, len(self.ids), np.uint32)
        self._positions[self.ids] = np.arange(len(self.ids), dtype=np.uint32)
        self.rules = DecodeRules(self._exact(), *self._elements())  # by client handle
        self.no_data = NoData(enumerate(tag.no_data for tag in source.tags))  # by index
        origins = [_ORIGINS.index(tag.time or source.time) for tag in source.tags]
        self._origin = np.array([*origins, 0], np.uint8)  # (n + 1,) of times; the last one is for unknown handles

    def _exact(self) -> NDArray[np.bool_] | None:
        """Mask of text channels, by client handle; None: there are none."""
        if not self.is_text.any():
            return None
        exact = np.zeros(len(self._positions), bool)
        exact[self.ids[self.is_text]] = True
        return exact

    def _elements(self) -> tuple[Int64s | None, list[Indexes]]:
        """Place of the array element of each channel, by client handle; and these elements."""
        indexes = {
            c: tag.index for c, tag in zip(self.ids, self.source.tags, strict=True) if tag.index and not tag.reads_whole
        }
        if not indexes:
            return None, []
        positions = {index: i for i, index in enumerate(dict.fromkeys(indexes.values()))}
        elements = np.full(len(self._positions), -1, np.int64)
        for channel, index in indexes.items():
            elements[channel] = positions[index]
        return elements, [parse_index(index) for index in positions]

    def __len__(self) -> int:
        return len(self.ids)

    def position(self, channel: int) -> int | None:
        """The position of a channel's tag; None: this source has no such tag."""
        return self._position.get(channel)

    def positions(self, channels: Iterable[int]) -> list[int]:
        """The positions of the channels that belong to this source."""
        return [self._position[channel] for channel in channels if channel in self._position]

    def tag(self, channel: int) -> OpcuaTag:
        """The tag of a channel. Raises KeyError."""
        return self.source.tags[self._position[channel]]

    def definition(self, channel: int) -> list[str]:
        """Node id, kind, unit, index and member: if they change, it is another quantity. Raises KeyError."""
        tag = self.tag(channel)
        part = [] if tag.index is None else [tag.index]
        return [tag.address, tag.kind, tag.unit, *part, *([f".{tag.member}"] if tag.member else [])]

    def target_of(self, channel: int) -> ReadTarget:
        """Node, element and member of a channel. Raises KeyError."""
        tag = self.tag(channel)
        return tag.address, tag.index, tag.member

    def by_position(self, change: DataChange) -> DataChange:
        """``change`` with positions instead of client handles; n for unknown handles (invented by the server, or
        of a removed tag)."""
        change.handle = [self._of(handles) for handles in change.handle]
        change.server_time = [self._of(handles) for handles in change.server_time]
        change.arrival_time = [self._of(handles) for handles in change.arrival_time]
        for text in change.texts:
            text.handle = self._position.get(text.handle, len(self))
        change.rounded = [self._of(handles) for handles in change.rounded]
        for unsupported in change.unsupported:
            unsupported.handle = self._position.get(unsupported.handle, len(self))
        return change

    def date(self, change: DataChange, arrival: int = 0) -> DataChange:
        """``change``, by index, with times of the configured origin. ``arrival``: µs; 0: unknown, as of history."""
        if not self._origin.any():
            return change
        for run, (positions, server) in enumerate(zip(change.handle, change.server, strict=True)):
            configured = self._origin[positions]
            by_server = (configured > 0) & (server > 0) & ((configured == _SERVER) | (arrival == 0))
            by_arrival = (configured > 0) & ~by_server & (arrival > 0)
            change.time[run] = np.where(by_server, server, np.where(by_arrival, arrival, change.time[run]))
            change.server[run] = np.where(by_arrival, 0, server)
            change.server_time.append(positions[by_server])
            change.arrival_time.append(positions[by_arrival])
        for text in change.texts:
            origin = self._origin[text.handle]
            if origin and text.server and (origin == _SERVER or not arrival):
                text.time = text.server
            elif origin and arrival:
                text.time, text.server = arrival, 0
        return change

    def without_no_data(self, position: UInt32s, value: Float64s, status: UInt32s) -> tuple[Float64s, UInt32s]:
        """Values and status codes, by index, in which values that mean no value are Bad."""
        if not self.no_data or not (none := self.no_data.mask(position, value) & (status < BAD)).any():
            return value, status
        return np.where(none, np.nan, value), np.where(none, np.uint32(BAD_NO_DATA), status)

    def _of(self, handles: UInt32s) -> UInt32s:
        positions: UInt32s = self._positions[np.minimum(handles, np.uint32(len(self._positions) - 1))]
        return positions


@dataclass(frozen=True, slots=True, eq=False)
class SampleTimes:
    """A snapshot of the time (µs) of each tag's last sample; 0: unknown."""

    tags: Tags
    time: Int64s  # (n,)

    def of_tags(self, tags: Tags) -> Int64s:
        """Times indexed like ``tags``."""
        if tags is self.tags:
            return self.time
        time = np.zeros(len(tags), np.int64)
        stay = np.flatnonzero(np.isin(tags.ids, self.tags.ids))
        time[stay] = self.time[self.tags.positions(tags.ids[stay].tolist())]
        return time
