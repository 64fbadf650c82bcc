"""Map the points of a body to columns of samples and counts, and to text events.

The source's options ``channel``, ``counts``, ``status`` and ``status_codes`` say how.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from core.batch import MAX_INCREMENT, CountBatch, Event, Int64s, sequence_of
from core.config.addresses.push_address import encoded
from core.config.sources import CHANNEL_NAME_LENGTH, ChannelKind
from core.samples import Samples
from core.status_codes import UNCERTAIN, status_of
from ingest.no_data import BAD_NO_DATA, NoData
from ingest.push.line_protocol import BadLine, Point, Series, Value

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_BAD_TYPE_MISMATCH = 0x80740000  # OPC 10000-4, 7.39.2
_MAX_WORD = 100  # characters of an unknown status
_NO_NUMBER = 'text value for a numeric channel; stored as an event. Set kind = "text" for text values'

Key: TypeAlias = tuple[Series, str]  # a field of a series: one channel
Resolved: TypeAlias = int | str | None  # a channel's id, an error, or None: not created yet


class NoChannelName(Exception):  # noqa: N818  (an error of a line; caught where lines are mapped)
    """A field has no valid channel name."""


class Template:
    """``"{tag.host}/{measurement}.{field}"``; characters not allowed in channel names are percent-encoded."""

    def __init__(self, text: str) -> None:
        self._text = text

    def name(self, series: Series, field: str) -> str:
        """The name of the channel. Raises NoChannelName."""
        name = _PLACEHOLDER.sub(lambda match: encoded(self._filled(match[1], series, field)), self._text)
        if len(name) > CHANNEL_NAME_LENGTH:
            raise NoChannelName(
                f"the channel name is {len(name)} characters long; at most {CHANNEL_NAME_LENGTH} are legal"
            )
        return name

    def _filled(self, placeholder: str, series: Series, field: str) -> str:
        if placeholder == "measurement":
            return series.measurement
        if placeholder == "field":
            return field
        tag = placeholder.removeprefix("tag.")
        if tag not in series.tags:
            raise NoChannelName(f"tag {tag!r} of the template {self._text!r} is missing")
        return series.tags[tag]


class StatusRule:
    """The source's options ``status`` and ``status_codes``."""

    def __init__(self, location: str = "", codes: Sequence[str] = ()) -> None:
        kind, _, name = location.partition(".")
        self._field = name if kind == "field" else None
        self._tag = name if kind == "tag" else None
        pairs = [code.rpartition("=") for code in codes]
        self._codes = {word.strip().lower(): status_of(status) for word, _, status in pairs}

    def values(self, point: Point) -> Sequence[tuple[str, Value]]:
        """The fields of a line that are values."""
        return (
            point.fields
            if self._field is None
            else [(name, value) for name, value in point.fields if name != self._field]
        )

    def word(self, point: Point) -> str | None:
        """Status word of a line; None: it has none."""
        if self._tag is not None:
            return point.series.tags.get(self._tag)
        if self._field is None:
            return None
        return next((_word(value) for name, value in point.fields if name == self._field), None)

    def status(self, word: str) -> int | None:
        """The StatusCode of a word; None: unknown."""
        code = self._codes.get(word.strip().lower())
        return status_of(word) if code is None else code


NO_STATUS = StatusRule()


def _word(value: Value) -> str:
    """A status value in the form of ``status_codes``, as in ``192``."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


class CountRule:
    """The source's option ``counts``: measurements, or fields as ``measurement.field``; ``*`` stands for any text."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)

    def type(self, series: Series, field: str) -> str | None:
        """``measurement.field``, percent-encoded like a channel name; None: not a count."""
        names = (series.measurement, f"{series.measurement}.{field}")
        if not any(fnmatchcase(name, pattern) for pattern in self._patterns for name in names):
            return None
        return f"{encoded(series.measurement)}.{encoded(field)}"


NO_COUNTS = CountRule(())


@dataclass(slots=True)
class CountRows:
    """Counts of a body: increments since the last line, which are added up.

    Unlike a sample, an increment is not idempotent. So all counts of a body are one batch, keyed by :func:`digest_of`:
    the same body sent again adds nothing, however late.
    """

    types: dict[str, int] = field(default_factory=dict)
    type: array[int] = field(default_factory=lambda: array("i"))
    channel_id: array[int] = field(default_factory=lambda: array("i"))
    time: array[int] = field(default_factory=lambda: array("q"))  # µs
    n: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.n)

    def add(self, kind: str, channel_id: int, time: int, value: Value) -> str | None:
        """Add a count; return an error message if the value is not one."""
        if len(kind) > CHANNEL_NAME_LENGTH:
            return f"the type is {len(kind)} characters long; at most {CHANNEL_NAME_LENGTH} are legal"
        if isinstance(value, bool) or not isinstance(value, int):
            text = "a text" if isinstance(value, str) else _text(value)
            return f"found {text}; a count is a whole number, as in 3i"
        if not 0 <= value <= MAX_INCREMENT:
            return f"found {value}; a count is from 0 to {MAX_INCREMENT}"
        self.type.append(self.types.setdefault(kind, len(self.types)))
        self.channel_id.append(channel_id)
        self.time.append(time)
        self.n.append(value)
        return None

    def times(self) -> Int64s:
        """Times (µs), (n,)."""
        return np.array(self.time, np.int64)

    def batch(self, source_id: int, received_at: int, digest: int) -> CountBatch:
        """The batch of all counts."""
        return CountBatch(
            source_id,
            received_at,
            tuple(self.types),
            np.array(self.type, np.int32),
            np.array(self.channel_id, np.int32),
            self.times(),
            np.array(self.n, np.int64),
            digest,
        )


def digest_of(body: bytes, precision: str, arrival: int) -> int:
    """The key of a body's counts.

    ``arrival`` (µs): time of lines without timestamp, 0 if all have one. It distinguishes a retry from a client that
    has the response and sends equal lines without timestamps, which are further counts.
    """
    return sequence_of(b"\n".join((precision.encode(), str(arrival).encode(), body)))


@dataclass(frozen=True, slots=True)
class ChannelNames:
    """The channel names of a body."""

    of: Mapping[Key, str]
    unnamed: Mapping[Key, str]  # error of each field without a name
    kinds: Mapping[str, ChannelKind]  # name → kind of its first value
    counts: Mapping[Key, str]  # type of each count


@dataclass(slots=True)
class MappedRows:
    """The rows of a body."""

    channel_id: array[int] = field(default_factory=lambda: array("i"))
    time: array[int] = field(default_factory=lambda: array("q"))  # µs
    value: array[float] = field(default_factory=lambda: array("d"))
    status: array[int] = field(default_factory=lambda: array("I"))
    texts: list[Event] = field(default_factory=list)
    misplaced: list[Event] = field(default_factory=list)  # texts for channels that have numbers
    rounded: set[int] = field(default_factory=set)  # channels with an integer that float64 cannot hold exactly
    unknown_statuses: set[str] = field(default_factory=set)  # words; their values are stored as Uncertain
    counts: CountRows = field(default_factory=CountRows)
    bad: list[BadLine] = field(default_factory=list)
    waiting: int = 0  # number of values whose channel is not created yet
    no_data: NoData | None = None

    def __len__(self) -> int:
        return len(self.value) + len(self.texts) + len(self.counts)

    def add(self, channel_id: int, time: int, value: Value, status: int = 0) -> bool:
        """Add a sample; False: the value is a text, which is added to ``misplaced``."""
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
            self.unknown_statuses.add(word[:_MAX_WORD])
        return UNCERTAIN if status is None else status

    def times(self) -> Int64s:
        """Times of samples, texts and counts, (n,) µs."""
        texts = np.array([e.time for e in (*self.texts, *self.misplaced)], np.int64)
        return np.concatenate((np.array(self.time, np.int64), texts, self.counts.times()))

    def samples(self) -> Samples:
        """The samples. Values of ``no_data`` are NaN, and Bad."""
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
            except NoChannelName as error:
                unnamed[key] = str(error)
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
        used: set[int] | None = set() if len(point.fields) > 1 else None  # channels of the line's fields so far
        status = mapped.status_of(statuses.word(point), statuses)
        for name, value in statuses.values(point):
            channel = channels[point.series, name]
            if channel is None:
                mapped.waiting += 1
                continue
            kind = counts.get((point.series, name))
            if isinstance(channel, int) and used is not None and kind is None:
                if channel in used:
                    channel = "another field of the line maps to the same channel: add {field} to the template"
                else:
                    used.add(channel)
            if isinstance(channel, str):
                mapped.bad.append(BadLine(point.line, f"field {name!r}: {channel}"))
                continue
            time = None if channel in by_arrival else point.time
            if kind is not None:
                error = mapped.counts.add(kind, channel, arrival if time is None else time, value)
                if error is not None:
                    mapped.bad.append(BadLine(point.line, f"field {name!r}: {error}"))
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
    """The exact text of a value."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(value: Value) -> ChannelKind:
    if isinstance(value, str):
        return "text"
    return "discrete" if isinstance(value, bool) else "analog"
