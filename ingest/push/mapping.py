"""Map the points of a body to columns of samples and counts, and to text events."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from core.batch import Event, Int64s
from core.config.sources import ChannelKind
from core.samples import Samples
from core.status_words import UNCERTAIN
from ingest.no_data import BAD_NO_DATA, NoData
from ingest.push.counts import NO_COUNTS, CountRows, CountRule
from ingest.push.line_protocol import BadLine, Point, Series, Value
from ingest.push.status_rule import NO_STATUS, StatusRule
from ingest.push.template import NoChannelName, Template

_BAD_TYPE_MISMATCH = 0x80740000  # OPC 10000-4, 7.39.2
_LONGEST_WORD = 100  # characters, of an unknown status
_NO_NUMBER = 'text value for a numeric channel; stored as an event. Set kind = "text" for text values'

Key: TypeAlias = tuple[Series, str]  # a field of a series: one channel
Resolved: TypeAlias = int | str | None  # a channel's id; why there is none; or that there is none yet


@dataclass(frozen=True, slots=True)
class ChannelNames:
    """The channel names of a body."""

    of: Mapping[Key, str]
    unnamed: Mapping[Key, str]  # why it has none
    kinds: Mapping[str, ChannelKind]  # name → kind of its first value
    counts: Mapping[Key, str]  # the type of what is a count


@dataclass(slots=True)
class MappedRows:
    """The rows of a body."""

    channel_id: array[int] = field(default_factory=lambda: array("i"))
    time: array[int] = field(default_factory=lambda: array("q"))  # µs
    value: array[float] = field(default_factory=lambda: array("d"))
    status: array[int] = field(default_factory=lambda: array("I"))
    texts: list[Event] = field(default_factory=list)
    misplaced: list[Event] = field(default_factory=list)  # texts for channels that have numbers
    rounded: set[int] = field(default_factory=set)  # channels with an integer that no float64 is equal to
    unknown_statuses: set[str] = field(default_factory=set)  # the words, of values that are stored as Uncertain
    counts: CountRows = field(default_factory=CountRows)
    bad: list[BadLine] = field(default_factory=list)
    waiting: int = 0  # values whose channel there is not yet
    no_data: NoData | None = None

    def __len__(self) -> int:
        return len(self.value) + len(self.texts) + len(self.counts)

    def add(self, channel_id: int, time: int, value: Value, status: int = 0) -> bool:
        """A sample, if it is a number."""
        if isinstance(value, str):
            self.misplaced.append(Event("text", time, channel_id, _BAD_TYPE_MISMATCH, value))
            return False
        self.channel_id.append(channel_id)
        self.time.append(time)
        self.value.append(value)
        self.status.append(status)
        if self.value[-1] != value:  # Python compares an integer with a float exactly
            self.rounded.add(channel_id)
        return True

    def status_of(self, word: str | None, statuses: StatusRule) -> int:
        """The StatusCode of a line's values."""
        if word is None:
            return 0
        status = statuses.status(word)
        if status is None:
            self.unknown_statuses.add(word[:_LONGEST_WORD])
        return UNCERTAIN if status is None else status

    def times(self) -> Int64s:
        """Times of all samples that are kept, (n,) µs."""
        texts = np.array([e.time for e in (*self.texts, *self.misplaced)], np.int64)
        return np.concatenate((np.array(self.time, np.int64), texts, self.counts.times()))

    def samples(self) -> Samples:
        """The samples: Bad where the value means no value."""
        channel, value = np.array(self.channel_id, np.int32), np.array(self.value, np.float64)
        status = np.array(self.status, np.uint32)
        if self.no_data:
            none = self.no_data.mask(channel, value)
            value[none], status[none] = np.nan, BAD_NO_DATA
        return Samples(channel, np.array(self.time, np.int64), value, status)


def names(
    points: Sequence[Point], template: Template, rule: CountRule = NO_COUNTS, status: StatusRule = NO_STATUS
) -> ChannelNames:
    """Channel names for all points, computed once per series and field."""
    name_of: dict[Key, str] = {}
    unnamed: dict[Key, str] = {}
    kinds: dict[str, ChannelKind] = {}
    counts: dict[Key, str] = {}
    for point in points:
        for name, value in status.values(point):
            key = (point.series, name)
            if key in name_of or key in unnamed:
                continue
            if (kind := rule.type(*key)) is not None:
                counts[key] = kind
            try:
                name_of[key] = template.name(*key)
            except NoChannelName as why:
                unnamed[key] = str(why)
            else:
                kinds.setdefault(name_of[key], "counter" if key in counts else _kind(value))
    return ChannelNames(name_of, unnamed, kinds, counts)


def rows(
    points: Sequence[Point],
    channels: Mapping[Key, Resolved],
    arrival: int,
    counts: Mapping[Key, str] = MappingProxyType({}),
    text_channels: Set[int] = frozenset(),
    statuses: StatusRule = NO_STATUS,
    by_arrival: Set[Resolved] = frozenset(),
) -> MappedRows:
    """Samples, texts and ``counts`` of ``points``. ``text_channels`` store all values as texts.
    A text for another channel is reported as bad, and stored as an event with a Bad status.

    Lines without a timestamp, and those of channels ``by_arrival``, get ``arrival`` (µs), a channel's second such line
    a microsecond more, and so on, because two samples of a channel cannot have the same time. Counts can.
    """
    mapped = MappedRows()
    untimed: Counter[int] = Counter()
    for point in points:
        several: set[int] | None = set() if len(point.fields) > 1 else None
        status = mapped.status_of(statuses.word(point), statuses)
        for name, value in statuses.values(point):
            channel = channels[point.series, name]
            if channel is None:
                mapped.waiting += 1
                continue
            kind = counts.get((point.series, name))
            if isinstance(channel, int) and several is not None and kind is None:
                if channel in several:
                    channel = "another field of the line maps to the same channel: add {field} to the template"
                else:
                    several.add(channel)
            if isinstance(channel, str):
                mapped.bad.append(BadLine(point.line, f"field {name!r}: {channel}"))
                continue
            time = None if channel in by_arrival else point.time
            if kind is not None:
                why = mapped.counts.add(kind, channel, arrival if time is None else time, value)
                if why is not None:
                    mapped.bad.append(BadLine(point.line, f"field {name!r}: {why}"))
                continue
            if time is None:
                time = arrival + untimed[channel]
                untimed[channel] += 1
            if channel in text_channels:
                mapped.texts.append(Event("text", time, channel, status, _text(value)))
            elif not mapped.add(channel, time, value, status):
                mapped.bad.append(BadLine(point.line, f"field {name!r}: {_NO_NUMBER}"))
    return mapped


def _text(value: Value) -> str:
    """A number's exact form."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(value: Value) -> ChannelKind:
    if isinstance(value, str):
        return "text"
    return "discrete" if isinstance(value, bool) else "analog"
