"""Files that become tables of ``plantlog sql``: types of their columns, and errors that name file and line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from core.errors import OperationError
from history.sql.own_tables import create, require_free
from tests.command import run

HEADER = "time,batch,ph\n"
GOOD = "2026-03-09T10:00:00Z,a,7.1\n"


def rows_of(file: Path) -> tuple[dict[str, str], list[tuple[Any, ...]]]:
    """Types by column, and rows."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        create(connection, "lab", file)
        relation = connection.sql("FROM lab")
        return dict(zip(relation.columns, map(str, relation.types), strict=True)), relation.fetchall()


def error_of(file: Path) -> str:
    with pytest.raises(OperationError) as error:
        rows_of(file)
    return str(error.value)


@pytest.mark.parametrize(
    ("texts", "kind", "value"),
    [
        ("7,-12", "BIGINT", 7),
        ("7.5,1e3,nan", "DOUBLE", 7.5),
        ("0012,7", "VARCHAR", "0012"),
        ("00.5,7", "VARCHAR", "00.5"),
        (" 0012,7", "VARCHAR", " 0012"),
        ("1_000,7", "VARCHAR", "1_000"),
        ("12345678901234567890,7", "VARCHAR", "12345678901234567890"),
        (".5,-2.,1.5E-3", "DOUBLE", 0.5),
        ("true,False", "BOOLEAN", True),
        (
            "2026-03-09 10:00:00,2026-03-09T11:00:00+01:00",
            "TIMESTAMP WITH TIME ZONE",
            datetime(2026, 3, 9, 10, tzinfo=UTC),
        ),
        ("2026-03-09,2026-03-10", "TIMESTAMP WITH TIME ZONE", datetime(2026, 3, 9, tzinfo=UTC)),
        ("7,n/a", "VARCHAR", "7"),
        ("7,,8", "BIGINT", 7),
    ],
)
def test_type_of_a_column_is_that_of_all_its_texts(tmp_path: Path, texts: str, kind: str, value: object) -> None:
    file = tmp_path / "lab [1]*.csv"
    file.write_text("x,empty\n" + "".join(f"{text},\n" for text in texts.split(",")))
    types, rows = rows_of(file)
    assert types == {"x": kind, "empty": "VARCHAR"}
    assert rows[0] == (value, None)
    assert len(rows) == texts.count(",") + 1


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        (["7", "8", "n/a", "n/a"], None),
        (["7", "8", "n/a", "9", "-"], ":4: x: found 'n/a', no integer: the column is text (2 of 5 fields)"),
        (["7.5", "8", "", "n/a"], ":5: x: found 'n/a', no number: the column is text (1 of 3 fields)"),
        (["true", '"a\nb"', "false"], ":4: x: found 'a\\nb', no true or false: the column is text (1 of 3 fields)"),
        (["2026-03-09", "2026-03-32", "2026-03-10"], ":3: x: found '2026-03-32', no time: "),
        (["A17", "A18", "0012"], None),
    ],
)
def test_field_that_makes_a_column_text_is_named(tmp_path: Path, texts: list[str], note: str | None) -> None:
    file = tmp_path / "lab.csv"
    file.write_text("x,n\n" + "".join(f"{text},1\n" for text in texts))
    with duckdb.connect() as connection:
        notes = create(connection, "lab", file)
        assert [str(kind) for kind in connection.sql("FROM lab").types] == ["VARCHAR", "BIGINT"]
    assert len(notes) == (note is not None)
    assert notes == [] or notes[0].startswith(f"{file}{note}")


def test_semicolons_decimal_commas_and_quotes(tmp_path: Path) -> None:
    file = tmp_path / "lab.csv"
    file.write_text('\ufeffzeit;"pH Wert"\r\n2026-03-09 10:00;7,25\r\n2026-03-09 11:00;7\r\n', newline="")
    types, rows = rows_of(file)
    assert types == {"zeit": "TIMESTAMP WITH TIME ZONE", "pH Wert": "DOUBLE"}
    assert [value for _, value in rows] == [7.25, 7.0]


def test_commas_between_fields_are_none_within_numbers(tmp_path: Path) -> None:
    file = tmp_path / "lab.csv"
    file.write_text('n,price\n1,"1,234"\n2,"5,678"\n')
    assert rows_of(file)[1] == [(1, "1,234"), (2, "5,678")]


@pytest.mark.parametrize("folder", ["batch=A17", "batch=17"])
def test_a_folder_gives_no_column_its_values(tmp_path: Path, folder: str) -> None:
    file = tmp_path / folder / "lab.csv"
    file.parent.mkdir()
    file.write_text("batch,ph\nB99,7.1\n")
    assert rows_of(file)[1] == [("B99", 7.1)]


def test_parquet_times_without_a_zone_are_in_utc(tmp_path: Path) -> None:
    file = tmp_path / "lab.parquet"
    time = datetime(2026, 3, 9, 10)
    columns = {"time": pa.array([time], pa.timestamp("us")), "ph": [7.5], "s": pa.array([0], pa.timestamp("ns", "UTC"))}
    pyarrow.parquet.write_table(pa.table(columns), file)
    types, [(at, value, _)] = rows_of(file)
    assert types["time"] == "TIMESTAMP WITH TIME ZONE"
    assert (at, value) == (time.replace(tzinfo=UTC), 7.5)
    file.write_bytes(file.read_bytes()[:-20])
    assert str(file) in error_of(file)


@pytest.mark.parametrize("before", [1, 30_000])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2026-03-09T10:05:00Z,b\n", "found '2 fields'; legal: 3 fields, as in the first line: time, batch, ph"),
        ("2026-03-09T10:05:00Z,b,7,5\n", "found '4 fields'"),
        ('2026-03-09T10:05:00Z,"b,7\n', """'2026-03-09T10:05:00Z,"b,7'; legal: fields whose quotes are closed"""),
        ('2026-03-09T10:05:00Z,"b,7\n' + GOOD * 9, """found '2026-03-09T10:05:00Z,"b,7'; legal: fields whose quotes"""),
        ('2026-03-09T10:05:00Z,"b"c,7\n', "legal: fields whose quotes are closed"),
        (b"2026-03-09T10:05:00Z,caf\xe9,7\n", "legal: UTF-8: convert it"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, before: int, line: str | bytes, message: str) -> None:
    file = tmp_path / "lab.csv"
    file.write_bytes((HEADER + GOOD * before).encode() + (line if isinstance(line, bytes) else line.encode()))
    error = error_of(file)
    assert error.startswith(f"{file}:{before + 2}: "), error
    assert message in error


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", ":1: line: found"),
        ("time,Time\n1,2\n", ":1: header: found"),
        ("time,\n1,2\n", ":1: header: found"),
        ("\0\1\2", ":1: header: found"),
        ('time,"ph\n1,2\n', """:1: header: found 'time,"ph'; legal: fields whose quotes are closed"""),
    ],
)
def test_bad_header_is_named(tmp_path: Path, content: str, error: str) -> None:
    file = tmp_path / "lab.csv"
    file.write_text(content)
    assert f"{file}{error}" in error_of(file)


def test_only_files_are_tables(tmp_path: Path) -> None:
    assert "is not there" in error_of(tmp_path / "none.csv")
    assert "is no file" in error_of(tmp_path)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        *(
            (("--table", text), f"--table: found '{text}'; legal: NAME=FILE, such as lab=lab.csv")
            for text in ("lab", "=lab.csv", "a b=lab.csv", "lab=")
        ),
        (("--with", "lab"), "--with: found 'lab'; legal: NAME='QUESTION --from TIME"),
        (
            ("--table", "lab=a.csv", "--table", "Lab=b=c.csv"),
            "--table Lab: found twice; legal: another name for b=c.csv",
        ),
        (
            ("--with", "lab=timeline --from 1h", "--with", "lab=stuck_sensors --from 1h"),
            "--with lab: found twice; legal: another name for stuck_sensors --from 1h",
        ),
        (("--with", "lab=timeline", "--table", "lab=a.csv"), "--table lab: found twice; legal: another name for a.csv"),
    ],
)
def test_names_of_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], error: str) -> None:
    monkeypatch.chdir(tmp_path)
    failed = run(tmp_path, "sql", *options, "SELECT 1")
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.startswith(f"plantlog: {error}"), failed.err


def test_taken_name_is_refused_with_those_that_are() -> None:
    require_free(["lab"], ["samples", "gap"])
    with pytest.raises(
        OperationError, match="Samples: there is one of this name; choose another one than gap, samples"
    ):
        require_free(["Samples"], ["samples", "gap"])
    with pytest.raises(OperationError, match="LAB: "):
        require_free(["lab", "LAB"], ["samples"])
