"""Tables of ``plantlog sql`` that are files of its user: CSV or Parquet, read whole before the session is locked."""

from __future__ import annotations

import csv
import glob
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb

from core.config.explain import shown
from core.errors import OperationError
from history.imports.csv_layout import delimiter_of, first_lines
from history.imports.fields import bad_input
from history.imports.parquet_file import is_parquet

_LINE = re.compile(r"CSV Error on Line: (\d+)\n")
_FIELDS = re.compile(r"Expected Number of Columns: \d+ Found: (\d+)")
_UTF8 = "UTF-8: convert it, as by iconv -f cp1252 -t utf-8"
_QUOTES = 'fields whose quotes are closed, with "" for a quote within'
_WITH_COMMA = "a number with a decimal comma"
LEGAL = "NAME=FILE, such as lab=lab.csv, with a file of CSV or Parquet"
# Type of a column of CSV → the texts that it has, all of them or empty, and how they become its values. What begins
# with 0 or has more digits than a number is a text, such as that of a batch or a serial number. Times without an offset
# are in UTC, which is the session's zone.
_TYPES: Mapping[str, tuple[str, str]] = {
    "an integer": (r"regexp_full_match({0}, '[+-]?(0|[1-9]\d{{0,17}})')", "{0}::BIGINT"),
    "a number": (
        r"regexp_full_match({0}, '(?i)[+-]?(((0|[1-9]\d{{0,17}})(\.\d*)?|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)')",
        "{0}::DOUBLE",
    ),
    _WITH_COMMA: (
        r"regexp_full_match({0}, '[+-]?(0|[1-9]\d*)(,\d+)?')",
        "replace({0}, ',', '.')::DOUBLE",
    ),
    "true or false": ("lower({0}) IN ('true', 'false')", "{0}::BOOLEAN"),
    "a time": ("TRY_CAST({0} AS TIMESTAMPTZ) IS NOT NULL", "{0}::TIMESTAMPTZ"),
}
_USUAL = 0.5  # of a column's fields, from which on the others are worth a note


def require_free(names: Iterable[str], taken: Iterable[str]) -> None:
    """Raise OperationError, which lists what is taken, for a name that is; capital letters are no difference."""
    taken_names = {name.lower() for name in taken}
    for name in names:
        if name.lower() in taken_names:
            raise OperationError(
                f"table {name}: there is one of this name; choose another one than {', '.join(sorted(taken_names))}"
            )
        taken_names.add(name.lower())


def create(connection: Any, name: str, file: Path) -> list[str]:
    """Make a file a table. Returns notes: columns that are of texts because of some fields.

    Raises OperationError, which names file and line, and errors of DuckDB for its limits.
    """
    if not file.is_file():
        raise OperationError(f"--table {name}: {file} is {'no file' if file.exists() else 'not there'}; legal: {LEGAL}")
    if is_parquet(file, "a file: CSV or Parquet"):
        _create_of_parquet(connection, name, file)
        return []
    return _create_of_csv(connection, name, file)


def _create_of_parquet(connection: Any, name: str, file: Path) -> None:
    try:
        relation = connection.read_parquet(_path(file))
        columns = [_in_utc(_quoted(column), str(kind)) for column, kind in _columns(relation)]
        relation.project(", ".join(columns)).create(name)
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        raise bad_input(file, None, "content", _reason(error), "a Parquet file that DuckDB reads") from error


def _create_of_csv(connection: Any, name: str, file: Path) -> list[str]:
    """Read all fields as texts, as what DuckDB detects by itself hides lines that are wrong; then choose types."""
    delimiter, header = _header(file)
    table = _quoted(name)
    try:
        texts = connection.sql(
            "FROM read_csv($path, auto_detect = false, columns = $columns, delim = $delimiter, quote = '\"', "
            "escape = '\"', header = true, strict_mode = true, hive_partitioning = false)",
            params={"path": _path(file), "columns": dict.fromkeys(header, "VARCHAR"), "delimiter": delimiter},
        )
        texts.create(name)
        types = {kind: of for kind, of in _TYPES.items() if kind != _WITH_COMMA or delimiter != ","}
        fits = [[test.format(_quoted(column)) for test, _ in types.values()] for column in header]
        counts = [
            f"[count({_quoted(column)}), {', '.join(f'count(*) FILTER ({test})' for test in tests)}]"
            for column, tests in zip(header, fits, strict=True)
        ]
        [results] = connection.sql(f"SELECT {', '.join(counts)} FROM {table}").fetchall()
        typed, notes = list[str](), list[str]()
        for column, (n, *fitting) in zip(header, results, strict=True):
            quoted = _quoted(column)
            kind, most = max(zip(types, fitting, strict=True), key=itemgetter(1))
            is_typed = n == most > 0
            typed.append(f"{_TYPES[kind][1].format(quoted) if is_typed else quoted} AS {quoted}")
            if n > most > _USUAL * n:
                is_unfit = f"{quoted} IS NOT NULL AND NOT ({_TYPES[kind][0].format(quoted)})"
                [(text,)] = connection.sql(f"SELECT {quoted} FROM {table} WHERE {is_unfit} LIMIT 1").fetchall()
                line = _line_of(file, delimiter, header.index(column), text)
                notes.append(
                    f"{file}:{line}: {column}: found {shown(text)}, no {kind.removeprefix('a ').removeprefix('an ')}: "
                    f"the column is text ({n - most:,} of {n:,} fields)"
                )
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {', '.join(typed)} FROM {table}")
        return notes
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        raise _bad_line(file, header, error) from error


def _bad_line(file: Path, header: Sequence[str], error: Exception) -> OperationError:
    number, fields = _LINE.search(str(error)), _FIELDS.search(str(error))
    line = int(number[1]) if number else None
    content = f"{fields[1]} fields" if fields else _reason(error)
    legal = f"{len(header)} fields, as in the first line: {', '.join(header)}"
    if "utf-8" in content.lower():
        return bad_input(file, line, "text", content, _UTF8)
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        text = next(islice(lines, line - 1, None), "").rstrip("\n") if line else ""
    if text.count('"') % 2 or "quote" in content:
        return bad_input(file, line, "line", text, _QUOTES)
    return bad_input(file, line, "line", content, legal)


def _line_of(file: Path, delimiter: str, index: int, text: str) -> int:
    """The first line, from 1, that has a text in a column."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, delimiter=delimiter)
        next(reader)
        return next((reader.line_num for row in reader if len(row) > index and row[index] == text), 1)


def _header(file: Path) -> tuple[str, Sequence[str]]:
    """Delimiter and names of the columns of a CSV file. Raises OperationError."""
    lines = first_lines(file, "utf-8-sig", _UTF8)
    if not lines:
        raise bad_input(file, 1, "line", "the end of the file", "the names of the columns")
    if lines[0].count('"') % 2:
        raise bad_input(file, 1, "header", lines[0].rstrip("\r\n"), _QUOTES)
    delimiter = delimiter_of(lines)
    header = [name.strip() for name in next(csv.reader(lines, delimiter=delimiter), [])]
    lower = Counter(name.lower() for name in header)
    for name in header:
        if not name or lower[name.lower()] > 1 or not name.isprintable():
            field = f"{name!r} twice" if lower[name.lower()] > 1 and name else repr(name)
            raise bad_input(file, 1, "header", field, "a name for each column")
    return delimiter, header


def _columns(relation: Any) -> Iterable[tuple[str, Any]]:
    return zip(relation.columns, relation.types, strict=True)


def _in_utc(column: str, kind: str) -> str:
    """Times without a zone are in UTC."""
    return f"{column} AT TIME ZONE 'UTC' AS {column}" if kind.startswith("TIMESTAMP") and "ZONE" not in kind else column


def _path(file: Path) -> str:
    """Path of a file in which DuckDB sees no pattern, no folder of a user and no address."""
    return glob.escape(str(file.absolute()))


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _reason(error: Exception) -> str:
    """Reason of an error of DuckDB, without the line as it is and its advice about options of its own."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith("Original Line")]
    return next((line for line in lines if not _LINE.search(line + "\n")), str(error))
