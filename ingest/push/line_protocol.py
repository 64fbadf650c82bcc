"""InfluxDB's line protocol: ``measurement,tag=value field=1.5,other=2i 1790000000000000000``.

https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/; undocumented cases as in InfluxDB's
parser: a backslash escapes only characters with a special meaning, and a newline within quotes belongs to the
text. An unclosed quote invalidates only its own line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

Value: TypeAlias = float | int | bool | str
Precision: TypeAlias = Literal["ns", "us", "ms", "s"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)

_TIME_LIMITS = (-(2**63), 2**63 - 1)  # µs, as a sample's column holds them
_MAX_EXCERPT = 40  # characters of a quotation

# Possessive quantifiers throughout: no text causes backtracking.
_SERIES = re.compile(r"(?:[^\\ \n]|\\ ?)++")
_MEASUREMENT = re.compile(r"(?:[^\\, ]|\\[, ]?)++")
_TAG = re.compile(r",((?:[^\\,= ]|\\[,= ]?)++)=((?:[^\\,= ]|\\[,= ]?)++)")
_FIELD_KEY = re.compile(r"((?:[^\\,= \n]|\\[,= ]?)++)=")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_BARE = re.compile(r"[^, \t\r\n]++")
_BLANKS = re.compile(r"[ \t]*+")
_EMPTY_LINE = re.compile(r"(?:#[^\n]*+|\r?)(?:\n|\Z)")
_END = re.compile(r"[ \t]*+(?:([^ \t\r\n]++)[ \t]*+)?\r?(?:\n|\Z)")
_ESCAPED = re.compile(r"\\([,= ])")
_ESCAPED_IN_MEASUREMENT = re.compile(r"\\([, ])")
_ESCAPED_IN_TEXT = re.compile(r'\\(["\\])')

_INTEGER = re.compile(r"([-+]?[0-9]{1,20})([iu])")
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][-+]?[0-9]{1,4})?")
_NOT_ZERO = re.compile(r"[^eE]*[1-9]")
_TIME = re.compile(r"-?[0-9]{1,19}")
_TRUE = ("t", "T", "true", "True", "TRUE")
_FALSE = ("f", "F", "false", "False", "FALSE")
_RANGES = {"i": (-(2**63), 2**63 - 1), "u": (0, 2**64 - 1)}


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Measurement and tags of a line; one object for all lines of a body with the same prefix."""

    measurement: str
    tags: dict[str, str]


@dataclass(slots=True)
class Point:
    """A line."""

    line: int  # from 1
    series: Series
    fields: list[tuple[str, Value]]  # at least one, each name once
    time: int | None  # µs; None: the line has no time


@dataclass(frozen=True, slots=True)
class BadLine:
    """An error in a line or in one of its fields."""

    line: int  # from 1
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """The valid points and the errors of a body, in order of lines."""

    points: list[Point]
    bad: list[BadLine]


class _LineError(Exception):
    """A syntax error in a line."""


def parse(body: bytes, precision: Precision = "ns") -> Parsed:
    """Parse all lines of ``body``. Never raises; linear in time and memory.

    ``precision`` is the unit of the times. Finer ones than a microsecond are rounded down.
    """
    parsed = Parsed([], [])
    for first, text in _texts(body, parsed.bad):
        _Parser(text, first, precision, parsed).run()
    parsed.bad.sort(key=lambda bad: bad.line)
    return parsed


def _texts(body: bytes, bad: list[BadLine]) -> Iterator[tuple[int, str]]:
    """Text in UTF-8 with the number of its first line: all lines, or those between lines that are not UTF-8."""
    try:
        yield 1, body.decode()
    except UnicodeDecodeError:
        valid: list[str] = []
        for number, line in enumerate(body.split(b"\n"), 1):
            try:
                valid.append(line.decode())
            except UnicodeDecodeError as error:
                bad.append(BadLine(number, f"byte 0x{line[error.start]:02x} is not UTF-8"))
                yield number - len(valid), "\n".join(valid)
                valid.clear()
        yield number + 1 - len(valid), "\n".join(valid)


class _Parser:
    def __init__(self, text: str, first_line: int, precision: Precision, parsed: Parsed) -> None:
        self._text = text
        self._line = first_line
        self._precision = precision
        self._parsed = parsed
        self._series: dict[str, Series | str] = {}  # as written → parsed, or its error

    def run(self) -> None:
        text, at = self._text, 0
        while at < len(text):
            at = _behind_blanks(text, at)
            lines = 1
            if empty := _EMPTY_LINE.match(text, at):
                at = empty.end()
            else:
                try:
                    at, lines = self._point(at)
                except _LineError as error:
                    self._parsed.bad.append(BadLine(self._line, str(error)))
                    at = text.find("\n", at) + 1 or len(text)
            self._line += lines

    def _point(self, at: int) -> tuple[int, int]:
        """Parse the line at ``at``; return the beginning of the next one, and the number of line ends before that."""
        head = _SERIES.match(self._text, at)
        if head is None:
            raise _LineError("the measurement is missing")
        series = self._series.get(head[0])
        if series is None:
            series = self._series[head[0]] = _series(head[0])
        if isinstance(series, str):
            raise _LineError(series)
        fields, end = self._fields(_behind_blanks(self._text, head.end()))
        tail = _END.match(self._text, end)
        if tail is None:
            raise _LineError(f"found {_excerpt(self._text, end)} where a timestamp or the end of the line is expected")
        time = None if tail[1] is None else _time(tail[1], self._precision)
        self._parsed.points.append(Point(self._line, series, fields, time))
        return tail.end(), max(1, self._text.count("\n", at, tail.end()))

    def _fields(self, at: int) -> tuple[list[tuple[str, Value]], int]:
        text = self._text
        fields: list[tuple[str, Value]] = []
        while True:
            key = _FIELD_KEY.match(text, at)
            if key is None:
                raise _LineError(f"found {_excerpt(text, at)} where field=value is expected")
            name = _unescaped(key[1], _ESCAPED)
            value, at = self._value(name, key.end())
            fields.append((name, value))
            if not text.startswith(",", at):
                break
            at += 1
        if len(fields) > 1 and len({name for name, _ in fields}) < len(fields):
            names = [name for name, _ in fields]
            raise _LineError(f"field {_quoted(next(n for n in names if names.count(n) > 1))} is repeated")
        return fields, at

    def _value(self, name: str, at: int) -> tuple[Value, int]:
        text = self._text
        if text.startswith('"', at):
            quoted = _QUOTED.match(text, at)
            if quoted is None:
                raise _LineError(f"field {_quoted(name)}: the quote is not closed")
            end = quoted.end()
            if end < len(text) and text[end] not in ", \t\r\n":
                raise _LineError(f"field {_quoted(name)}: found {_excerpt(text, end)} after the closing quote")
            return _unescaped(quoted[1], _ESCAPED_IN_TEXT), end
        bare = _BARE.match(text, at)
        if bare is None:
            raise _LineError(f"field {_quoted(name)}: the value is missing")
        return _number_or_boolean(name, bare[0]), bare.end()


def _behind_blanks(text: str, at: int) -> int:
    return cast(re.Match[str], _BLANKS.match(text, at)).end()  # which matches everywhere


def _series(head: str) -> Series | str:
    measurement = _MEASUREMENT.match(head)
    if measurement is None:
        return "the measurement is missing"
    tags: dict[str, str] = {}
    at = measurement.end()
    while at < len(head):
        tag = _TAG.match(head, at)
        if tag is None:
            return f"found {_excerpt(head, at)} where ,tag=value is expected"
        name = _unescaped(tag[1], _ESCAPED)
        if name in tags:
            return f"tag {_quoted(name)} is repeated"
        tags[name] = _unescaped(tag[2], _ESCAPED)
        at = tag.end()
    return Series(_unescaped(measurement[0], _ESCAPED_IN_MEASUREMENT), tags)


def _unescaped(text: str, escaped: re.Pattern[str]) -> str:
    return escaped.sub(r"\1", text) if "\\" in text else text


def _number_or_boolean(name: str, text: str) -> Value:
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number) or (number == 0 and _NOT_ZERO.match(text)):
            raise _LineError(f"field {_quoted(name)}: {_quoted(text)} is out of range for a float")
        return number
    if integer := _INTEGER.fullmatch(text):
        integer_value, (low, high) = int(integer[1]), _RANGES[integer[2]]
        if not low <= integer_value <= high:
            raise _LineError(f"field {_quoted(name)}: {_quoted(text)} is not between {low} and {high}")
        return integer_value
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    legal = 'a number (1.5), an integer (2i, 2u), true, false or a text in double quotes ("on")'
    raise _LineError(f"field {_quoted(name)}: found {_quoted(text)}; legal: {legal}")


def _time(text: str, precision: Precision) -> int:
    if not _TIME.fullmatch(text):
        raise _LineError(
            f"found {_quoted(text)} where a timestamp is expected: an integer number of {precision} since 1970"
        )
    number = int(text)
    match precision:
        case "ns":
            microseconds = number // 1000
        case "us":
            microseconds = number
        case "ms":
            microseconds = number * 1000
        case "s":
            microseconds = number * 1_000_000
    if not _TIME_LIMITS[0] <= microseconds <= _TIME_LIMITS[1]:
        raise _LineError(f"timestamp {text} in {precision} is out of range: check the precision")
    return microseconds


def _excerpt(text: str, at: int) -> str:
    """Quoted text from ``at`` to the end of the line, at most 40 characters."""
    rest = text[at : at + _MAX_EXCERPT + 1].split("\n", maxsplit=1)[0].rstrip("\r")
    return _quoted(rest) if rest else "the end of the line"


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= _MAX_EXCERPT else repr(text[:_MAX_EXCERPT]) + "..."
