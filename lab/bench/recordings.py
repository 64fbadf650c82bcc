"""Public recordings with labelled events: files that others made, in a folder that the user names.

``recordings.toml`` says where they come from, what they are and how events are labelled; ``recordings.sha256`` lists
their files. The folder has one for each project, with the files at their places in the project.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import struct
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from core.errors import OperationError
from core.files import file_errors
from core.timestamps import iso

_TABLE, _DIGESTS = (Path(__file__).parent / f"recordings.{suffix}" for suffix in ("toml", "sha256"))
_SECOND = 1_000_000  # µs
_GAP = 60  # sampling intervals without a sample: another experiment
_BEGIN = 1_767_225_600 * _SECOND  # 2026-01-01, of recordings without dates
_TEP_STEP = 180 * _SECOND
_TEP_FAULT = 160  # row
_TEP_CHANNELS = tuple(f"XMEAS{n:02}" for n in range(1, 42)) + tuple(f"XMV{n:02}" for n in range(1, 12))
Span = tuple[int, int]  # µs: from, until


@dataclass(frozen=True, slots=True)
class Project:
    """Row of the table about the recordings of a project."""

    name: str
    title: str
    project: str
    revision: str
    licence: str
    labels: str  # how events are labelled
    published: str  # how well the methods of the benchmark do
    calm: float  # s of usual operation before an event
    apart: bool = False  # whether to leave out events that follow another within this calm: too many are labelled
    onset: bool = True  # whether labels begin when events do
    missing: Sequence[str] = ()  # texts instead of a number
    discrete: str = ""  # beginning of the names of discrete channels
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # channels by event, or by a group of them
    events: Mapping[str, Sequence[str]] = field(default_factory=dict)  # first and last time, if files have no labels
    tuned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # options by question

    @property
    def calm_us(self) -> int:
        """``calm`` in µs."""
        return round(self.calm * _SECOND)

    def causes_of(self, event: str) -> tuple[str, ...]:
        """The channels in which an event begins, as far as it is known."""
        return tuple(self.causes.get(event) or self.causes.get(event.partition("/")[0]) or ())


@dataclass(frozen=True, slots=True)
class Event:
    """A labelled event."""

    name: str
    since: int  # µs
    until: int  # µs


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Samples of a unit, and its events. Raises OperationError for duplicate times, and labels outside of the data."""

    project: Project
    unit: str  # of the plant
    channels: tuple[str, ...]  # names in the unit
    time: Int64s  # (n,) µs, ascending
    value: Float64s  # (n, channels); NaN: missing
    events: tuple[Event, ...]
    repeated: int = 0  # samples left out: they had the time of the one before

    def __post_init__(self) -> None:
        steps = np.diff(self.time)
        if len(bad := np.flatnonzero(steps <= 0)):
            found = "twice" if steps[bad[0]] == 0 else "after a later time"
            raise OperationError(
                f"{self.unit}: found {iso(int(self.time[bad[0] + 1]))} {found}; legal: ascending times"
            )
        for event in self.events:
            if not self.time[0] <= event.since < event.until <= self.time[-1] + self.step_us:
                raise OperationError(
                    f"{self.unit}: found event {event.name} from {iso(event.since)} to {iso(event.until)}; legal: "
                    f"within the data, from {iso(int(self.time[0]))} to {iso(int(self.time[-1]))}"
                )
            if np.isnan(self.between(event.since, event.until)).all():
                raise OperationError(
                    f"{self.unit}: found event {event.name} from {iso(event.since)} to {iso(event.until)} without a "
                    "value; legal: an event has values"
                )

    @property
    def step_us(self) -> int:
        """Sampling interval in µs."""
        return int(np.median(np.diff(self.time)))

    @property
    def events_apart(self) -> list[Event]:
        """Events that questions are asked about: all, or those that are apart from the one before."""
        calm = self.project.calm_us if self.project.apart else 0
        ends = [int(self.time[0]), *(event.until for event in self.events)]
        return [event for end, event in zip(ends, self.events, strict=False) if not calm or event.since - end >= calm]

    def notes(self) -> list[str]:
        """Lines about what the recording lacks."""
        missing = np.isnan(self.value)
        notes = [f"{missing.sum()} values of {missing.any(0).sum()} channels are missing"] if missing.any() else []
        if self.repeated:
            notes.append(f"{self.repeated} samples at the time of the one before are left out")
        if apart := len(self.events) - len(self.events_apart):
            notes.append(f"{apart} of {len(self.events)} events follow another too closely and are left out")
        return [f"{self.unit}: {note}" for note in notes]

    def filled(self) -> Recording:
        """The recording with the value before in place of a missing one, or of the mean where there is none."""
        is_missing = np.isnan(self.value)
        if not is_missing.any():
            return self
        rows = np.where(is_missing, 0, np.arange(len(self.time))[:, None])
        value = np.take_along_axis(self.value, np.maximum.accumulate(rows), axis=0)
        mean = np.nansum(self.value, 0) / np.maximum((~is_missing).sum(0), 1)
        return replace(self, value=np.where(np.isnan(value), mean, value))

    def between(self, since: int, until: int) -> Float64s:
        """Values of an interval (µs), (n, channels)."""
        return self.value[(self.time >= since) & (self.time < until)]

    def calm_windows(self) -> list[Span]:
        """Windows without an event, as long as the calm of the project, with as much calm before each."""
        runs = np.split(self.time, np.flatnonzero(np.diff(self.time) > _GAP * self.step_us) + 1)
        windows = list[Span]()
        length = self.project.calm_us
        for run in runs:
            inside = [event for event in self.events if run[0] <= event.since <= run[-1]]
            begins = [int(run[0]), *(event.until for event in inside)]
            ends = [*(event.since for event in inside), int(run[-1]) + self.step_us]
            for begin, end in zip(begins, ends, strict=True):
                windows += [(at, at + length) for at in range(begin + length, end - length + 1, length)]
        return windows


@cache
def projects() -> dict[str, Project]:
    """Projects of the table by name."""
    return {name: Project(name, **entry) for name, entry in tomllib.loads(_TABLE.read_text()).items()}


def read(folder: Path, name: str) -> list[Recording]:
    """The recordings of a project below a folder.

    Raises OperationError, which says what to bring, for a file that is missing or not the one of the table.
    """
    project = projects()[name]
    files = {}
    for line in _DIGESTS.read_text().splitlines():
        digest, path = line.split("  ", 1)
        if path.startswith(f"{name}/"):
            files[path.removeprefix(f"{name}/")] = _checked(folder / path, digest, project)
    return _READERS[name](project, files)


def _checked(path: Path, digest: str, project: Project) -> bytes:
    bring = f"bring the files of {project.project}, revision {project.revision[:10]}, into a folder {project.name!r}"
    if not path.exists():
        raise OperationError(f"{path} is missing: {bring}")
    with file_errors(path, f"a file of {project.project}"):
        content = path.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != digest:
        raise OperationError(f"{path}: found SHA-256 {found}; legal: {digest}: {bring}")
    return content


def _microseconds(times: Sequence[Any]) -> Int64s:
    return np.array(times, "datetime64[us]").astype(np.int64)


def _columns(content: bytes, delimiter: str = ",") -> dict[str, NDArray[np.str_]]:
    """Columns (texts) of a CSV file."""
    rows = list(csv.reader(content.decode().splitlines(), delimiter=delimiter))
    return dict(zip((name.strip() for name in rows[0]), np.array(rows[1:]).T, strict=True))


def _rows(content: bytes, delimiter: str, time: str) -> tuple[Int64s, dict[str, NDArray[np.str_]]]:
    """Times and columns (texts) of a CSV file."""
    columns = _columns(content, delimiter)
    # 04/07/16 00: the hour from 0:00 of 4 July
    texts = [re.sub("^(..)/(..)/(..) ", r"20\3-\2-\1T", text) for text in columns.pop(time).tolist()]
    return _microseconds(texts), columns


def _numbers(project: Project, columns: Mapping[str, NDArray[np.str_]]) -> Float64s:
    """Values of columns, (n, columns); NaN where the project says that a text means that the value is missing."""
    text = np.column_stack([*columns.values()])
    is_missing = np.isin(text, project.missing)
    try:
        return np.where(is_missing, "nan", text).astype(float)
    except ValueError as problem:
        legal = ", ".join(["a number", *map(repr, project.missing)])
        raise OperationError(f"{project.name}: {problem}; legal: {legal}") from problem


def _labelled_events(name: str, time: Int64s, is_event: NDArray[np.bool_]) -> tuple[Event, ...]:
    """An event for each run of labelled samples, to the sample after it."""
    edges = np.flatnonzero(np.diff(is_event, prepend=False, append=False))
    after = np.append(time, time[-1] + int(np.median(np.diff(time))))
    spans = after[edges].reshape(-1, 2).tolist()
    return tuple(Event(f"{name}/{n}", since, until) for n, (since, until) in enumerate(spans, 1))


def _tep(project: Project, files: Mapping[str, bytes]) -> list[Recording]:
    """A unit for each run with a fault, after the one without: the same plant in the two days before."""
    runs = {
        path[:3]: np.array(content.split(), float).reshape(-1, len(_TEP_CHANNELS)) for path, content in files.items()
    }
    usual = runs.pop("d00")
    recordings = []
    for name, run in runs.items():
        time: Int64s = _BEGIN + np.arange(len(usual) + len(run) + 1) * _TEP_STEP
        event = Event(name, int(time[len(usual) + _TEP_FAULT]), int(time[-1]))
        value = np.concatenate([usual, run])
        recordings.append(Recording(project, f"tep/{name}", _TEP_CHANNELS, time[:-1], value, (event,)))
    return recordings


def _skab(project: Project, files: Mapping[str, bytes]) -> list[Recording]:
    """All experiments together; where files overlap they have the same samples."""
    times, values, events, names = list[Int64s](), list[Float64s](), list[Event](), tuple[str, ...]()
    for path, content in files.items():
        time, columns = _rows(content, ";", "datetime")
        anomaly = columns.pop("anomaly", np.zeros(0, str)) == "1.0"
        columns.pop("changepoint", None)
        if labelled := np.flatnonzero(anomaly).tolist():
            name = path.removeprefix("data/").removesuffix(".csv")
            events.append(Event(name, int(time[labelled[0]]), int(time[labelled[-1]]) + _SECOND))
        names = tuple(columns)
        times.append(time)
        values.append(np.column_stack([columns[name].astype(float) for name in names]))
    rows = np.unique(np.column_stack([np.concatenate(times), np.concatenate(values).view(np.int64)]), axis=0)
    value = np.ascontiguousarray(rows[:, 1:]).view(np.float64)
    by_time = sorted(events, key=lambda event: event.since)
    return [Recording(project, "skab", names, rows[:, 0], value, tuple(by_time))]


def _nab(project: Project, files: Mapping[str, bytes]) -> list[Recording]:
    labels = json.loads(files["labels/combined_windows.json"])
    recordings = []
    for path, content in files.items():
        if path.endswith(".csv"):
            name = path.rpartition("/")[2].removesuffix(".csv")
            time, columns = _rows(content, ",", "timestamp")
            time, indices = np.unique(time, return_index=True)  # an hour at the end of summer time is there twice
            windows = _microseconds(labels[path.removeprefix("data/")]).tolist()
            events = tuple(Event(f"{name}/{n}", *window) for n, window in enumerate(windows, 1))
            value = columns["value"].astype(float)[indices, None]
            recordings.append(Recording(project, f"nab/{name}", ("value",), time, value, events))
    return recordings


def _batadal(project: Project, files: Mapping[str, bytes]) -> list[Recording]:
    """Two recordings of one network: events of the first are in the table."""
    first, second = (_rows(content, ",", "DATETIME") for content in files.values())
    labels = second[1].pop("ATT_FLAG")
    names = tuple(name for name in second[1] if name)
    values = [np.column_stack([columns[name].astype(float) for name in names]) for _, columns in (first, second)]
    spans = {
        name: np.array(times, "datetime64[us]").astype(np.int64).tolist() for name, times in project.events.items()
    }
    for name in dict.fromkeys(labels[labels != "benign"].tolist()):
        spans[name] = second[0][labels == name][[0, -1]].tolist()
    events = tuple(Event(name, since, until + 3600 * _SECOND) for name, (since, until) in spans.items())
    time = np.concatenate([first[0], second[0]])
    return [Recording(project, "batadal", names, time, np.concatenate(values), events)]


def _hss(project: Project, files: Mapping[str, bytes]) -> list[Recording]:
    """A unit for each file. Its times begin with each cycle of the machine: a cycle follows the one before."""
    recordings = []
    for path, content in files.items():
        columns = _columns(content)
        steps = np.diff(columns.pop("Timestamp").astype(float))
        steps[steps < 0] = np.median(steps)
        time: Int64s = _BEGIN + np.rint(np.append(0, np.cumsum(steps)) * _SECOND).astype(np.int64)
        labels = columns.pop("Labels").astype(float) > 0
        time, first = np.unique(time, return_index=True)
        name = path.removeprefix("HRSS_").removesuffix(".csv")
        events = _labelled_events(name, time, np.logical_or.reduceat(labels, first))
        value = _numbers(project, columns)[first]
        repeated = len(labels) - len(first)
        recordings.append(Recording(project, f"hss/{name}", tuple(columns), time, value, events, repeated))
    return recordings


def _bibmon(project: Project, files: Mapping[str, bytes]) -> list[Recording]:
    """A unit, whose event is in the table."""
    [content] = files.values()
    time, columns = _rows(content, ",", "")
    spans = {name: _microseconds(span).tolist() for name, span in project.events.items()}
    events = tuple(Event(name, *span) for name, span in spans.items())
    return [Recording(project, "bibmon", tuple(columns), time, _numbers(project, columns), events)]


def _gecco(project: Project, files: Mapping[str, bytes]) -> list[Recording]:
    """A unit, from a data frame of R."""
    [content] = files.values()
    frame = _data_frame(gzip.decompress(content))
    time: Int64s = np.rint(frame.pop("Time") * _SECOND).astype(np.int64)
    events = _labelled_events("event", time, frame.pop("EVENT") == 1)
    return [Recording(project, "gecco", tuple(frame), time, np.column_stack([*frame.values()]), events)]


_R_NIL, _R_SYMBOL, _R_LIST, _R_CHARS, _R_LOGICAL, _R_INTEGER, _R_REAL, _R_STRING, _R_VECTOR, _R_REFERENCE = (
    *(254, 1, 2, 9, 10, 13, 14, 16, 19, 255),
)  # types of R's serialization, in the last byte of the flags of an item
_R_ATTRIBUTES, _R_TAG = 0x200, 0x400  # flags
_R_MISSING = -(2**31)  # integer


def _data_frame(content: bytes) -> dict[str, Float64s]:
    """Columns of numbers of a data frame in R's serialization (XDR, "R Internals" 1.8).

    Raises OperationError for anything but a data frame of numbers.
    """
    at = 14  # after the header
    symbols = list[Any]()

    def integer() -> int:
        nonlocal at
        at += 4
        return int(struct.unpack_from(">i", content, at - 4)[0])

    def item(flags: int) -> Any:
        """The value of an item; of a vector, with its attributes."""
        nonlocal at
        kind = flags & 0xFF
        if kind == _R_NIL:
            return None
        if kind == _R_REFERENCE:
            return symbols[(flags >> 8) - 1]
        if kind == _R_SYMBOL:
            symbols.append(item(integer()))
            return symbols[-1]
        if kind == _R_LIST:
            pairs = {}
            while flags & 0xFF == _R_LIST:
                tag = item(integer()) if flags & _R_TAG else None
                pairs[tag] = item(integer())[0]
                flags = integer()
            return pairs
        size = integer()
        if kind == _R_CHARS:
            at += max(size, 0)
            return content[at - max(size, 0) : at].decode()
        if kind in (_R_STRING, _R_VECTOR):
            values: Any = [item(integer()) for _ in range(size)]
        elif kind in (_R_LOGICAL, _R_INTEGER, _R_REAL):
            width = 8 if kind == _R_REAL else 4
            values = np.frombuffer(content, f">{'f' if width == 8 else 'i'}{width}", size, at).astype(float)
            at += width * size
            if width == 4:
                values[values == _R_MISSING] = np.nan
        else:
            raise OperationError(f"found type {kind} at byte {at - 8} of R's serialization; legal: vectors of numbers")
        return values, item(integer()) if flags & _R_ATTRIBUTES else {}

    columns, attributes = item(integer())
    return {name: values for name, (values, _) in zip(attributes["names"], columns, strict=True)}


_READERS: Mapping[str, Callable[[Project, Mapping[str, bytes]], list[Recording]]] = {
    "tep": _tep,
    "skab": _skab,
    "nab": _nab,
    "batadal": _batadal,
    "hss": _hss,
    "bibmon": _bibmon,
    "gecco": _gecco,
}
