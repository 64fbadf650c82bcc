"""Layout of a CSV file, detected from its first lines and the user's options."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

from core.errors import OperationError
from core.files import file_errors
from history.imports.channel_names import ChannelNames
from history.imports.fields import BadField, Decimal, StatusCodes, bad_input, detect_codes, detect_decimal
from history.imports.times import Ambiguous, Order, TimeFormat, detect

Role: TypeAlias = Literal["channel", "time", "value", "status", "ignore"]
ROLES: tuple[Role, ...] = get_args(Role)
_USUAL_NAMES: Mapping[str, Role] = {
    **dict.fromkeys(("channel", "tag", "tagname", "tag name", "tag_name", "tag path", "tagpath", "path"), "channel"),
    **dict.fromkeys(("name", "point", "pointname", "point name"), "channel"),
    **dict.fromkeys(("time", "timestamp", "date", "datetime", "date time", "t_stamp", "_time"), "time"),
    **dict.fromkeys(("value", "_value"), "value"),
    **dict.fromkeys(("status", "quality", "statuscode", "status code", "q"), "status"),
}
_SAMPLE_LINES = 1000
_DELIMITERS = ";\t|,"
_NAMES = {"\t": "tab", ";": "semicolon", "|": "bar", ",": "comma", ".": "point"}
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_DATE_LIKE = re.compile(
    r"[0-9]{1,4}[-/.]([0-9]{1,2}|[A-Za-z]{3})[-/.][0-9]{1,4}[T ]+[0-9].*|[0-9]{9,19}(\.[0-9]+)?|[0-9]{8}T[0-9]{6}.*"
)


@dataclass(frozen=True, slots=True)
class Options:
    """Options by which the user describes a file. None: detect it."""

    encoding: str | None = None
    delimiter: str | None = None
    decimal: Decimal | None = None
    zone: ZoneInfo | None = None
    date_order: Order | None = None
    ambiguous: Ambiguous | None = None
    codes: StatusCodes | None = None
    columns: Mapping[str, Role] = field(default_factory=dict)
    template: str = "{measurement}.{field}"  # of channels, for line protocol
    names: ChannelNames = field(default_factory=ChannelNames)  # of channels, for CSV and Parquet


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """A long file has a sample in each line; a wide one a time in each line, and a column for each channel."""

    encoding: str
    delimiter: str
    decimal: Decimal
    header_lines: int
    header: Sequence[str]  # the names of the columns; invented ones if the file has none
    time_at: int
    channel_at: int | None  # None: a wide file
    value_at: int
    status_at: int | None
    wide: Mapping[int, str]  # column → name of the channel
    times: TimeFormat
    codes: StatusCodes
    rows: int | None  # that the file says it has; None: it does not say
    names: ChannelNames

    def describe(self) -> list[tuple[str, str]]:
        """The layout in lines for people."""
        form = "wide: a column for each channel" if self.channel_at is None else "long: a sample in each line"
        separators = f"delimiter {_NAMES.get(self.delimiter, self.delimiter)}, decimal {_NAMES[self.decimal]}"
        lines = [
            ("form", f"CSV, {form}"),
            ("text", f"{self.encoding}, {separators}"),
            ("time", f"column {self.header[self.time_at]!r}: {self.times.describe()}"),
        ]
        used = {self.time_at, self.channel_at, self.status_at, *self.wide}
        used |= {self.value_at} if self.channel_at is not None else set()
        ignored = [name for index, name in enumerate(self.header) if index not in used]
        roles = (self.channel_at, self.value_at, self.status_at)
        return lines + describe_columns(self.header, *roles, self.codes, ignored) + self.names.describe()


def describe_columns(
    header: Sequence[str],
    channel_at: int | None,
    value_at: int,
    status_at: int | None,
    codes: StatusCodes,
    ignored: Sequence[str],
) -> list[tuple[str, str]]:
    """The columns beside that of times, for people."""
    lines: list[tuple[str, str]] = []
    if channel_at is not None:
        lines += [("channel", f"column {header[channel_at]!r}"), ("value", f"column {header[value_at]!r}")]
    if status_at is not None:
        written = {"opcua": "OPC UA StatusCode", "opcda": "quality of OPC DA"}[codes]
        lines.append(("status", f"column {header[status_at]!r}: words, or {written}"))
    if ignored:
        lines.append(("ignored", ", ".join(map(repr, ignored))))
    return lines


def find_layout(file: Path, options: Options) -> CsvLayout:
    """Find the layout of a file. Raises OperationError."""
    encoding = options.encoding or _encoding(file)
    lines = first_lines(file, encoding)
    if not lines:
        raise OperationError(f"{file} is empty")
    delimiter = options.delimiter or delimiter_of(lines)
    try:
        rows = list(csv.reader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise bad_input(file, None, "text", str(error), "a CSV file") from None
    header_lines, named_at, expected = _head(file, rows)
    body = [(number, row) for number, row in enumerate(rows, 1) if row and number > header_lines]
    if not body:
        raise bad_input(file, header_lines + 1, "line", "the end of the file", "a line with a sample")
    header = [cell.strip() for cell in rows[named_at]] if header_lines else _invented(body[0][1])
    roles = column_roles(file, header, options.columns)
    at = {role: index for index, role in roles.items() if role != "ignore"}
    first = body[0][0]
    body = [(number, row) for number, row in body if len(row) == len(header)]
    if not body:
        legal = f"{len(header)} fields, as in the first line; decimal commas need another delimiter, or quotes"
        raise bad_input(file, first, "line", lines[first - 1].rstrip("\r\n"), legal)

    def column(index: int) -> list[str]:
        return [row[index] for _, row in body]

    is_long = "channel" in at
    wide = {} if is_long else wide_channels(file, header, roles, options.names)
    values = column(at["value"]) if is_long else [text for index in wide for text in column(index)]
    try:
        field = "time"
        times = detect(column(at["time"]), options.zone, options.date_order, options.ambiguous)
        field = "status"
        codes = options.codes or detect_codes(column(at["status"]) if "status" in at else ())
    except BadField as bad:
        raise bad_input(file, body[bad.index][0], header[at[field]], bad.found, bad.legal) from None  # type: ignore[index]
    return CsvLayout(
        encoding,
        delimiter,
        options.decimal or detect_decimal(values),
        header_lines,
        header,
        at["time"],
        at.get("channel"),
        at.get("value", -1),
        at.get("status"),
        wide,
        times,
        codes,
        expected,
        options.names,
    )


def _head(file: Path, rows: Sequence[Sequence[str]]) -> tuple[int, int, int | None]:
    """The number of lines before the samples, the index of the one with names, and how many rows the file says it has.

    Ignition (system.dataset.toCSV) writes ``#NAMES``, the names, ``#TYPES``, the types, ``#ROWS`` and how many.
    """
    if rows[0] == ["#NAMES"]:
        row_count = rows[4] if len(rows) > 4 else []
        if len(row_count) != 2 or row_count[0] != "#ROWS" or not row_count[1].strip().isdigit():
            raise bad_input(file, 5, "line", ",".join(row_count), "the number of rows, as in #ROWS,6")
        return 5, 1, int(row_count[1])
    return int(not any(map(_DATE_LIKE.fullmatch, map(str.strip, rows[0])))), 0, None


def first_lines(file: Path, encoding: str, legal: str | None = None) -> list[str]:
    """Some lines of a text. ``legal``: as of :func:`undecodable`. Raises OperationError."""
    try:
        with file_errors(file), file.open(encoding=encoding, newline="") as text:
            return list(islice(text, _SAMPLE_LINES))
    except (UnicodeError, LookupError) as error:
        raise undecodable(file, encoding, error, legal) from None


def undecodable(file: Path, encoding: str, error: Exception, legal: str | None = None) -> OperationError:
    """A text in another encoding than that. ``legal``: what is; None: what --encoding names."""
    if isinstance(error, LookupError):
        return OperationError(f"--encoding {encoding!r}: legal are those of Python, such as utf-8, utf-16, cp1252")
    line = None
    if encoding.startswith("utf-8"):
        with file.open("rb") as raw:
            for number, content in enumerate(raw, 1):
                try:
                    content.decode()
                except UnicodeDecodeError:
                    line = number
                    break
    legal = legal or f"{encoding}, or name another one: --encoding cp1252"
    return bad_input(file, line, "text", str(getattr(error, "reason", error)), legal)


def _encoding(file: Path) -> str:
    with file_errors(file), file.open("rb") as raw:
        begin = raw.read(4)
    return next((name for bom, name in _BOMS if begin.startswith(bom)), "utf-8")


def delimiter_of(lines: Sequence[str]) -> str:
    """The one that gives most lines the same number of fields, at least two."""
    best, most = ",", (0, 0)
    for delimiter in _DELIMITERS:
        counts = Counter(len(row) for row in csv.reader(lines, delimiter=delimiter) if row)
        fields, n = max(counts.items(), key=lambda fields_and_lines: (fields_and_lines[1], fields_and_lines[0]))
        if fields > 1 and (n, -_DELIMITERS.index(delimiter)) > most:
            best, most = delimiter, (n, -_DELIMITERS.index(delimiter))
    return best


def _invented(row: Sequence[str]) -> list[str]:
    """Names of the columns of a long file without a header: channel, time and value, and perhaps a status."""
    names = ["channel", "time", "value", "status"][: len(row)]
    time_at = next(index for index, cell in enumerate(row) if _DATE_LIKE.fullmatch(cell.strip()))
    if time_at == 0:
        names[:2] = ["time", "channel"]
    return names + [f"column {index}" for index in range(5, len(row) + 1)]


def column_roles(file: Path, header: Sequence[str], options: Mapping[str, Role]) -> dict[int, Role]:
    """Roles of the columns, as far as they are known. Raises OperationError."""
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise bad_input(file, 1, "header", twice[0], "columns with different names")
    if missing := [name for name in options if name not in header]:
        raise bad_input(file, 1, "header", ", ".join(header), f"a column {missing[0]!r}, which --column names")
    roles: dict[int, Role] = {index: options[name] for index, name in enumerate(header) if name in options}
    usual: dict[int, Role] = {
        index: role
        for index, name in enumerate(header)
        if index not in roles and (role := _USUAL_NAMES.get(name.lower())) and role not in roles.values()
    }
    all_roles = {**usual, **roles}
    if not {"channel", "value"} <= set(all_roles.values()):  # a wide file: what is usual in a long one is a channel
        all_roles = {index: role for index, role in all_roles.items() if role in ("time", "ignore") or index in roles}
        odd = [header[index] for index, role in all_roles.items() if role in ("channel", "value", "status")]
        if odd:
            legal = "columns for channel, time and value, or only for the time: see --column"
            raise bad_input(file, 1, odd[0], ", ".join(header), legal)
    if (duplicate := [role for role, n in Counter(all_roles.values()).items() if n > 1 and role != "ignore"]) or (
        "time" not in all_roles.values()
    ):
        problem_role = duplicate[0] if duplicate else "time"
        raise bad_input(
            file, 1, problem_role, ", ".join(header), f"one column: name it, as in --column NAME={problem_role}"
        )
    unknown = [name for index, name in enumerate(header) if index not in all_roles]
    if "channel" in all_roles.values() and unknown:
        legal = f"known columns: say what this one is, as in --column {unknown[0]!r}=ignore"
        raise bad_input(file, 1, unknown[0], ", ".join(header), legal)
    return all_roles


def wide_channels(
    file: Path, header: Sequence[str], roles: Mapping[int, Role], channel_names: ChannelNames
) -> dict[int, str]:
    """Column → name of its channel, of a wide file. Raises OperationError."""
    names: dict[int, str] = {}
    for index, cell in enumerate(header):
        if index in roles:
            continue
        try:
            names[index] = channel_names.of(cell)
        except BadField as bad:
            raise bad_input(file, 1, "header", bad.found, bad.legal) from None
    if twice := [name for name, n in Counter(names.values()).items() if n > 1]:
        raise bad_input(file, 1, "header", twice[0], "channels with different names")
    if not names:
        raise bad_input(file, 1, "header", ", ".join(header), "a column for each channel beside the time")
    return names
