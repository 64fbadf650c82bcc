"""From the points of a body to columns of samples and counts, and to texts."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ingest.batch import Event, Int64s, SampleBatch
from ingest.config.model import ChannelKind
from ingest.push.counts import NO_COUNTS, CountRows, CountRule
from ingest.push.line_protocol import BadLine, Point, Series, Value
from ingest.push.template import Template, Unnamed

_BAD_TYPE_MISMATCH = 0x80740000  # OPC 10000-4, 7.39.2
_NO_NUMBER = 'a text for a channel of numbers, kept as an event and not as a value; kind = "text" takes it'

Key: TypeAlias = tuple[Series, str]  # a field of a series: one channel
Place: TypeAlias = int | str | None  # a channel's id; why there is none; or that there is none yet


@dataclass(frozen=True, slots=True)
class Names:
    """The channels' names that a body speaks of."""

    of: Mapping[Key, str]
    unnamed: Mapping[Key, str]  # why it has none
    kinds: Mapping[str, ChannelKind]  # name → what its first value says
    counts: Mapping[Key, str]  # the type of what is a count


@dataclass(slots=True)
class Rows:
    """What a body comes to."""

    channel_id: array[int] = field(default_factory=lambda: array("i"))
    time: array[int] = field(default_factory=lambda: array("q"))  # µs
    value: array[float] = field(default_factory=lambda: array("d"))
    texts: list[Event] = field(default_factory=list)
    misplaced: list[Event] = field(default_factory=list)  # texts for channels that have numbers
    rounded: set[int] = field(default_factory=set)  # channels with an integer that no float64 is equal to
    counts: CountRows = field(default_factory=CountRows)
    bad: list[BadLine] = field(default_factory=list)
    waiting: int = 0  # values whose channel there is not yet

    def __len__(self) -> int:
        return len(self.value) + len(self.texts) + len(self.counts)

    def add(self, channel_id: int, time: int, value: Value) -> bool:
        """A sample, if it is a number."""
        if isinstance(value, str):
            self.misplaced.append(Event("text", time, channel_id, _BAD_TYPE_MISMATCH, value))
            return False
        self.channel_id.append(channel_id)
        self.time.append(time)
        self.value.append(value)
        if self.value[-1] != value:  # Python compares an integer with a float exactly
            self.rounded.add(channel_id)
        return True

    def times(self) -> Int64s:
        """Of all that is kept, (n,) µs."""
        texts = np.array([e.time for e in (*self.texts, *self.misplaced)], np.int64)
        return np.concatenate((np.array(self.time, np.int64), texts, self.counts.times()))

    def samples(self, source_id: int, received_at: int) -> SampleBatch:
        """The samples, all of them Good."""
        return SampleBatch(
            source_id,
            received_at,
            np.array(self.channel_id, np.int32),
            np.array(self.time, np.int64),
            np.array(self.value, np.float64),
            np.zeros(len(self.value), np.uint32),
        )


def names(points: Sequence[Point], template: Template, rule: CountRule = NO_COUNTS) -> Names:
    """The name of every channel in ``points``, made once for each field of a series."""
    of: dict[Key, str] = {}
    unnamed: dict[Key, str] = {}
    kinds: dict[str, ChannelKind] = {}
    counts: dict[Key, str] = {}
    for point in points:
        for name, value in point.fields:
            key = (point.series, name)
            if key in of or key in unnamed:
                continue
            if (kind := rule.type(*key)) is not None:
                counts[key] = kind
            try:
                of[key] = template.name(*key)
            except Unnamed as why:
                unnamed[key] = str(why)
            else:
                kinds.setdefault(of[key], "counter" if key in counts else _kind(value))
    return Names(of, unnamed, kinds, counts)


def rows(
    points: Sequence[Point],
    places: Mapping[Key, Place],
    arrival: int,
    counts: Mapping[Key, str] = MappingProxyType({}),
    text_channels: Set[int] = frozenset(),
) -> Rows:
    """Samples and texts of ``points``, and ``counts``, which have a type. ``text_channels`` take all values as texts.
    A text for another channel is no value of it: it is named as bad, and kept as an event with a Bad status.

    Lines without a time have ``arrival`` (µs); a channel's second such line a microsecond more, and so on, because
    two samples of a channel cannot share a time. Counts can.
    """
    found = Rows()
    untimed: Counter[int] = Counter()
    for point in points:
        several: set[int] | None = set() if len(point.fields) > 1 else None
        for name, value in point.fields:
            place = places[point.series, name]
            if place is None:
                found.waiting += 1
                continue
            kind = counts.get((point.series, name))
            if isinstance(place, int) and several is not None and kind is None:
                if place in several:
                    place = "another field of the line has the same channel: the template should name the field"
                else:
                    several.add(place)
            if isinstance(place, str):
                found.bad.append(BadLine(point.line, f"field {name!r}: {place}"))
                continue
            if kind is not None:
                why = found.counts.add(kind, place, arrival if point.time is None else point.time, value)
                if why is not None:
                    found.bad.append(BadLine(point.line, f"field {name!r}: {why}"))
                continue
            time = point.time
            if time is None:
                time = arrival + untimed[place]
                untimed[place] += 1
            if place in text_channels:
                found.texts.append(Event("text", time, place, 0, _text(value)))
            elif not found.add(place, time, value):
                found.bad.append(BadLine(point.line, f"field {name!r}: {_NO_NUMBER}"))
    return found


def _text(value: Value) -> str:
    """A number's exact form."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(value: Value) -> ChannelKind:
    if isinstance(value, str):
        return "text"
    return "discrete" if isinstance(value, bool) else "analog"
