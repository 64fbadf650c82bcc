"""The first reading of a file: nothing is stored of one with an error."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from core.batch import Int64s
from core.errors import OperationError
from core.files import file_errors
from core.time_limits import TimeLimits
from core.timestamps import iso
from history.imports.fields import bad_input
from history.imports.kinds import ValueForms
from history.imports.portion import FileReader, ImportPortion, joined
from history.imports.whole_hours import HourCounts

Duplicates: TypeAlias = Literal["error", "first", "last"]  # of lines with one channel and time, which one stays

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Example:
    """A sample as it was understood."""

    line: int
    channel: str
    time: int  # µs
    value: float
    status: int


@dataclass(slots=True)
class Checked:
    """Content of a checked file."""

    reader: FileReader
    sha256: str
    duplicates: Duplicates = "error"
    samples: int = 0
    dropped: int = 0  # samples in place of which another one of the same channel and time stays
    examples: list[Example] = field(default_factory=list)
    # By channel, in the order of the reader's names
    counts: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    first: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))  # µs
    last: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    first_line: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))  # of the oldest sample
    forms: ValueForms = field(default_factory=ValueForms)
    hours: HourCounts = field(default_factory=HourCounts)

    @property
    def file(self) -> Path:
        """The file."""
        return self.reader.file

    def describe(self) -> list[tuple[str, str]]:
        """Describe how the file is understood, for people: what, and how."""
        lines = list(self.reader.describe())
        if self.duplicates != "error":
            stays = f"the {self.duplicates} of equal channel and time stays"
            lines.append(("twice", f"{stays}: {self.dropped:,} left out"))
        return lines


def _stamp(file: Path) -> tuple[int, int]:
    """Size and time of change. Raises OperationError."""
    with file_errors(file):
        status = file.stat()
    return status.st_size, status.st_mtime_ns


def check(
    reader: FileReader,
    now: int,
    limits: TimeLimits,
    keep: Callable[[ImportPortion], None],
    duplicates: Duplicates = "error",
) -> Checked:
    """Read all of a file. ``keep`` is given each portion that has no error. Raises OperationError.

    Two samples of a channel with one time and different contents are an error, or one of them stays, if they are
    within one portion, or if the channel's samples are in the order of time. Others are found by the database, as
    conflicts.
    """
    file = reader.file
    before = _stamp(file)
    with file.open("rb") as raw:
        digest = hashlib.file_digest(raw, "sha256").hexdigest()
    checked = Checked(reader, digest, duplicates)
    newest: ImportPortion | None = None
    portions = reader.portions()
    for portion in portions if duplicates == "error" else _distinct(portions, checked):
        _check_times(file, portion, now, limits)
        with_newest = portion if newest is None else joined((newest, portion))
        ordered = with_newest.part(with_newest.samples.order())
        _check_distinct(file, reader, ordered)
        newest = _add(checked, portion, ordered, len(reader.names))
        for index in range(min(_EXAMPLES - len(checked.examples), len(portion))):
            checked.examples.append(_example(portion, index, reader.names[portion.samples.channel[index]]))
        keep(portion)
    if _stamp(file) != before:
        raise OperationError(f"{file} was changed while it was read: run the command again")
    if not checked.samples:
        raise OperationError(f"{file} has no samples")
    return checked


def _example(portion: ImportPortion, index: int, name: str) -> Example:
    s = portion.samples
    time, value, status = (column[index].item() for column in (s.time, s.value, s.status))
    return Example(int(portion.line[index]), name, time, value, status)


def _check_times(file: Path, portion: ImportPortion, now: int, limits: TimeLimits) -> None:
    inside = limits.inside(now, portion.samples.time)
    if inside.all():
        return
    index = int(np.argmin(inside))
    time = int(portion.samples.time[index])
    earliest, latest = limits.bounds(now)
    legal = (
        f"times until {iso(latest)} ([writer] future_limit)"
        if time > latest
        else f"times from {iso(earliest)} on ([writer] oldest)"
    )
    raise bad_input(file, int(portion.line[index]), "time", iso(time), legal)


def _check_distinct(file: Path, reader: FileReader, ordered: ImportPortion) -> None:
    """Raise OperationError for a second, different sample of a channel and time."""
    s = ordered.samples
    differs = (s.bits[1:] != s.bits[:-1]) | (s.status[1:] != s.status[:-1])
    twice = np.flatnonzero(s.repeats()[1:] & differs) + 1
    if len(twice):
        index = int(twice[0])
        channel = reader.names[s.channel[index]]
        legal = (
            f"the value of line {ordered.line[index - 1]}, {s.value[index - 1]:.17g}: {channel} has one value at "
            f"{iso(int(s.time[index]))}; or say which one stays: --duplicates first or last"
        )
        raise bad_input(file, int(ordered.line[index]), "value", f"{s.value[index]:.17g}", legal)


def _distinct(portions: Iterable[ImportPortion], checked: Checked) -> Iterator[ImportPortion]:
    """Portions with one sample of each channel and time, sorted by them: the first or the last one.

    The newest sample of each channel is held back, as the next portion may have its time.
    """
    newest: ImportPortion | None = None
    for portion in portions:
        both = portion if newest is None else joined((newest, portion))
        ordered = both.part(both.samples.order())  # stable: equal ones are in the order of lines
        repeats = ordered.samples.repeats()
        dropped = repeats if checked.duplicates == "first" else np.append(repeats[1:], False)[: len(repeats)]
        checked.dropped += int(np.count_nonzero(dropped))
        kept = ordered.part(~dropped)
        channel = kept.samples.channel
        is_newest = np.append(channel[1:] != channel[:-1], True)[: len(channel)]
        newest = kept.part(is_newest)
        yield kept.part(~is_newest)
    if newest is not None:
        yield newest


def _add(checked: Checked, portion: ImportPortion, ordered: ImportPortion, channels: int) -> ImportPortion:
    """Count a portion; ``ordered``: with the newest samples before it. Returns the newest samples now."""
    more = channels - len(checked.counts)
    checked.counts = np.append(checked.counts, np.zeros(more, np.int64)) + np.bincount(
        portion.samples.channel, minlength=channels
    )
    checked.first = np.append(checked.first, np.full(more, np.iinfo(np.int64).max))
    checked.last = np.append(checked.last, np.full(more, np.iinfo(np.int64).min))
    checked.first_line = np.append(checked.first_line, np.zeros(more, np.int64))
    checked.samples += len(portion)
    checked.hours.add(portion)
    checked.forms.add(ordered.samples, channels)
    numbers, begins = np.unique(ordered.samples.channel, return_index=True)
    if not len(numbers):
        return ordered
    oldest, newest = ordered.part(begins), ordered.part(np.append(begins[1:], len(ordered)) - 1)
    earlier = oldest.samples.time < checked.first[numbers]
    checked.first_line[numbers[earlier]] = oldest.line[earlier]
    checked.first[numbers] = np.minimum(checked.first[numbers], oldest.samples.time)
    checked.last[numbers] = np.maximum(checked.last[numbers], newest.samples.time)
    return newest
