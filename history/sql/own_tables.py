"""Tables of ``plantlog sql`` that are files of its user: CSV or Parquet, read whole before the session is locked."""

from __future__ import annotations

import csv
import glob
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from core.errors import OperationError
from history.imports.csv_layout import delimiter_of, first_lines
from history.imports.fields import bad_input
from history.imports.parquet_file import is_parquet

_NAME = re.compile(r"[A-Za-z_]\w*")
_LINE = re.compile(r"CSV Error on Line: (\d+)\n")
_FIELDS = re.compile(r"Expected Number of Columns: \d+ Found: (\d+)")
_LEGAL = "legal: NAME=FILE, such as lab=lab.csv, with a file of CSV or Parquet"
# Type of a column of CSV → the texts that it has, all of them or empty, and how they become its values. A number that
# begins with 0 is a text, such as that of a batch. Times without an offset are in UTC, which is the session's zone.
_TYPES: Mapping[str, tuple[str, str]] = {
    "BIGINT": (r"regexp_full_match({0}, '[+-]?(0|[1-9]\d{{0,17}})')", "{0}::BIGINT"),
    "DOUBLE": (r"TRY_CAST({0} AS DOUBLE) IS NOT NULL AND NOT regexp_matches({0}, '^[+-]?0\d')", "{0}::DOUBLE"),
    "DOUBLE with a decimal comma": (
        r"regexp_full_match({0}, '[+-]?(0|[1-9]\d*)(,\d+)?')",
        "replace({0}, ',', '.')::DOUBLE",
    ),
    "BOOLEAN": ("lower({0}) IN ('true', 'false')", "{0}::BOOLEAN"),
    "TIMESTAMP WITH TIME ZONE": ("TRY_CAST({0} AS TIMESTAMPTZ) IS NOT NULL", "{0}::TIMESTAMPTZ"),
}


def parse(texts: Iterable[str]) -> dict[str, Path]:
    """Files of ``NAME=FILE`` by name. Raises OperationError."""
    files = dict[str, Path]()
    for text in texts:
        name, _, path = text.partition("=")
        if not _NAME.fullmatch(name) or not path:
            raise OperationError(f"--table: found {text!r}; {_LEGAL}")
        if name in files:
            raise OperationError(f"--table {name}: found twice; legal: another name for {path}")
        files[name] = Path(path)
    return files


def require_free(names: Iterable[str], taken: Iterable[str]) -> None:
    """Raise OperationError, which lists what is taken, for a name that is; capital letters are no difference."""
    taken_names = {name.lower() for name in taken}
    for name in names:
        if name.lower() in taken_names:
            raise OperationError(
                f"table {name}: there is one of this name; choose another one than {', '.join(sorted(taken_names))}"
            )
        taken_names.add(name.lower())


def create(connection: Any, name: str, file: Path) -> None:
    """Make a file a table. Raises OperationError, which names file and line, and errors of DuckDB for its limits."""
    if not file.is_file():
        raise OperationError(f"--table {name}: {file} is {'no file' if file.exists() else 'not there'}; {_LEGAL}")
    _create_of_parquet(connection, name, file) if is_parquet(file) else _create_of_csv(connection, name, file)


def _create_of_parquet(connection: Any, name: str, file: Path) -> None:
    try:
        relation = connection.read_parquet(_path(file))
        columns = [_in_utc(_quoted(column), str(kind)) for column, kind in _columns(relation)]
        relation.project(", ".join(columns)).create(name)
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        raise bad_input(file, None, "content", _reason(error), "a Parquet file that DuckDB reads") from error


def _create_of_csv(connection: Any, name: str, file: Path) -> None:
    """Read all fields as texts, as what DuckDB detects by itself hides lines that are wrong; then choose types."""
    delimiter, header = _header(file)
    try:
        texts = connection.sql(
            "FROM read_csv($path, auto_detect = false, columns = $columns, delim = $delimiter, quote = '\"', "
            "escape = '\"', header = true, strict_mode = true)",
            params={"path": _path(file), "columns": dict.fromkeys(header, "VARCHAR"), "delimiter": delimiter},
        )
        texts.create(name)
        fits = {
            column: [f"coalesce(bool_and({test.format(_quoted(column))}), false)" for test, _ in _TYPES.values()]
            for column in header
        }
        tests = ", ".join(f"[{', '.join(expressions)}]" for expressions in fits.values())
        typed = []
        [results] = connection.sql(f"SELECT {tests} FROM {_quoted(name)}").fetchall()
        for column, fitting in zip(header, results, strict=True):
            values = (value for (_, value), is_one in zip(_TYPES.values(), fitting, strict=True) if is_one)
            quoted = _quoted(column)
            typed.append(f"{next(values, '{0}').format(quoted)} AS {quoted}")
        connection.execute(f"CREATE OR REPLACE TABLE {_quoted(name)} AS SELECT {', '.join(typed)} FROM {_quoted(name)}")
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        line, fields = _LINE.search(str(error)), _FIELDS.search(str(error))
        legal = f"{len(header)} fields, as in the first line: {', '.join(header)}"
        found = f"{fields[1]} fields" if fields else _reason(error)
        raise bad_input(file, int(line[1]) if line else None, "line", found, legal) from error


def _header(file: Path) -> tuple[str, Sequence[str]]:
    """Delimiter and names of the columns of a CSV file. Raises OperationError."""
    lines = first_lines(file, "utf-8-sig")
    if not lines:
        raise bad_input(file, 1, "line", "the end of the file", "the names of the columns")
    delimiter = delimiter_of(lines)
    header = [name.strip() for name in next(csv.reader(lines, delimiter=delimiter), [])]
    lower = Counter(name.lower() for name in header)
    for name in header:
        if not name or lower[name.lower()] > 1 or not name.isprintable():
            found = f"{name!r} twice" if lower[name.lower()] > 1 and name else repr(name)
            raise bad_input(file, 1, "header", found, "a name for each column")
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
    """What DuckDB says is wrong, without the line as it is and its advice about options of its own."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith("Original Line")]
    return next((line for line in lines if not _LINE.search(line + "\n")), str(error))
