"""Reads the samples of a file in InfluxDB's line protocol, with the parser of push sources."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from core.errors import OperationError
from core.files import file_errors
from core.samples import Samples
from history.imports.fields import bad_input
from history.imports.portion import ImportPortion
from history.imports.times import unit_of
from ingest.push.line_protocol import Point, Precision, Series, parse
from ingest.push.mapping import NoChannelName, Template

_BYTES = 4_000_000  # read at a time
_FIRST_BYTES = 10_000  # that tell the form of a file
_TEXT = "a number, true or false; leave the texts of this field out: --column NAME=ignore"


class LineProtocolFile:
    """``ignored``: fields that are left out. Raises OperationError."""

    def __init__(self, file: Path, template: str, ignored: Collection[str] = (), size: int = _BYTES) -> None:
        self.file = file
        self.names: list[str] = []
        self.rounded: set[int] = set()
        self._template_text = template
        self._template = Template(template)
        self._ignored = ignored
        self._size = size
        self._indices: dict[tuple[Series, str], int] = {}
        self._known: dict[str, int] = {}  # name of a channel → its index
        self._series: dict[str, tuple[object, str]] = {}  # name of a channel → the series and field that it is of
        self._precision = _precision(file)

    def describe(self) -> Sequence[tuple[str, str]]:
        """Describe how the file is understood."""
        return [
            ("form", "line protocol"),
            ("time", f"number of {self._precision} since 1970"),
            ("channel", self._template_text),
            *([("ignored", ", ".join(sorted(self._ignored)))] if self._ignored else []),
        ]

    def portions(self) -> Iterator[ImportPortion]:
        """All samples, from the first line on. Raises OperationError."""
        before = 0  # lines
        with self.file.open("rb") as raw:
            while body := raw.read(self._size):
                body += raw.readline()
                if not body.endswith(b"\n"):
                    line = before + body.count(b"\n") + 1
                    legal = "a line end: the file ends in the middle of a line. If it is whole, add a line end"
                    rest = body[body.rfind(b"\n") + 1 :].decode(errors="replace")
                    raise bad_input(self.file, line, "line", rest, legal)
                yield self._portion(body, before, raw.tell())
                before += body.count(b"\n")

    def _portion(self, body: bytes, before: int, bytes_read: int) -> ImportPortion:
        parsed = parse(body, self._precision)
        if parsed.bad:
            raise OperationError(f"{self.file}:{before + parsed.bad[0].line}: {parsed.bad[0].problem}")
        self._indices.clear()  # a series is an object of its body
        rows: list[tuple[int, int, float, int]] = []
        for point in parsed.points:
            line = before + point.line
            if point.time is None:
                raise bad_input(self.file, line, "time", "the end of the line", "a time: its samples are history")
            for name, value in point.fields:
                if name in self._ignored:
                    continue
                if isinstance(value, str):
                    raise bad_input(self.file, line, name, value, _TEXT.replace("NAME", name))
                rows.append((self._index(point, name, line), point.time, float(value), line))
                if rows[-1][2] != value:  # Python compares an integer with a float exactly
                    self.rounded.add(rows[-1][0])
        channel, time, value_, line_ = zip(*rows, strict=True) if rows else ((), (), (), ())
        return ImportPortion(
            Samples(
                np.array(channel, np.int32),
                np.array(time, np.int64),
                np.array(value_, np.float64),
                np.zeros(len(rows), np.uint32),
            ),
            np.array(line_, np.int64),
            bytes_read,
        )

    def _index(self, point: Point, field: str, line: int) -> int:
        """Position of a field's channel in ``names``."""
        key = point.series, field
        if key not in self._indices:
            try:
                name = self._template.name(*key)
            except NoChannelName as error:
                raise OperationError(f"{self.file}:{line}: {field}: {error}") from None
            content = (point.series.measurement, tuple(sorted(point.series.tags.items()))), field
            if self._series.setdefault(name, content) != content:
                legal = f"a channel for each series: {name} is of another one, too. Name the tags: --channel"
                raise bad_input(self.file, line, field, name, legal)
            if name not in self._known:
                self._known[name] = len(self.names)
                self.names.append(name)
            self._indices[key] = self._known[name]
        return self._indices[key]


def is_line_protocol(file: Path) -> bool:
    """Return whether the first lines of a file are line protocol with times. Raises OperationError."""
    return _first_time(file) is not None


def _first_time(file: Path) -> str | None:
    """The first time, as written."""
    with file_errors(file), file.open("rb") as raw:
        body = raw.read(_FIRST_BYTES)
    complete = body[: body.rfind(b"\n") + 1]
    for line in complete.splitlines():
        parsed = parse(line)
        if parsed.bad:
            return None
        if parsed.points:
            return None if parsed.points[0].time is None else line.split()[-1].decode()
    return None


def _precision(file: Path) -> Precision:
    first = _first_time(file) or ""
    unit = unit_of(first)
    if unit is None:
        raise bad_input(file, 1, "time", first, "a number of s, ms, us or ns since 1970")
    return unit
