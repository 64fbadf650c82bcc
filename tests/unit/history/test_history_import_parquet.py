"""``plantlog source import-history``: Parquet files, whatever types their columns have, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import OperationError
from core.samples import Samples
from core.timestamps import utc
from history.archive.parquet_writers import EXPORT_METADATA, SampleFile
from history.imports.check import check
from history.imports.csv_layout import Options
from history.imports.fields import channel_name
from history.imports.parquet_file import ParquetFile, is_parquet
from tests.unit.history.test_history_import import LIMITS, NOW, Row, bits, read, tables

BERLIN = ZoneInfo("Europe/Berlin")
T = 1_773_136_800_000_000  # 2026-03-10 10:00 UTC, µs
_TIMES: dict[str, Callable[[list[int]], Any]] = {
    "us": lambda times: pa.array(times, pa.timestamp("us", "UTC")),
    "ns": lambda times: pa.array([time * 1000 + 999 for time in times], pa.timestamp("ns", "Europe/Berlin")),
    "text": lambda times: pa.array([utc(time).isoformat() for time in times]),
}


@given(tables, st.sampled_from(sorted(_TIMES)), st.booleans(), st.integers(1, 40))
def test_long_table_is_read_back_to_the_bit(rows: list[Row], form: str, coded: bool, cells: int) -> None:
    names, times, values, statuses = (list(column) for column in zip(*rows, strict=True))
    tags = pa.array(names)
    columns = {
        "Quality": pa.array(statuses, pa.uint32()),
        "Tag": tags.dictionary_encode() if coded else tags,
        "Value": pa.array(values, pa.float64()),
        "Timestamp": _TIMES[form](times),
    }
    with TemporaryDirectory() as folder:
        file = Path(folder) / "long.parquet"
        pq.write_table(pa.table(columns), file, row_group_size=7)
        reader = ParquetFile(file, Options(codes="opcua"), cells)
        assert bits(read(reader)) == bits([(channel_name(row[0]), *row[1:]) for row in rows])
        checked = check(reader, NOW, LIMITS, lambda done: None)
        assert checked.samples == len(rows) == int(checked.counts.sum())


def test_wide_table_with_types_of_all_kinds(tmp_path: Path) -> None:
    file = tmp_path / "wide.parquet"
    columns = {
        "Zeit": pa.array([T, T + 1], pa.timestamp("us", "UTC")),
        "a": pa.array([1, None], pa.int16()),
        "b": pa.array([0.1, 2], pa.float32()),
        "c": pa.array([True, False]),
        "d": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
        "e": pa.array([None, "7.5"]),
        "f": pa.array([None, None], pa.float64()),
    }
    pq.write_table(pa.table(columns), file)
    reader = ParquetFile(file, Options(columns={"Zeit": "time"}))
    expected = [("a", 0, 1.0), ("b", 0, float(np.float32(0.1))), ("b", 1, 2.0), ("c", 0, 1.0), ("c", 1, 0.0)]
    expected += [("d", 0, 1.25), ("e", 1, 7.5)]
    assert bits(read(reader)) == bits([(name, T + after, value, 0) for name, after, value in expected])
    assert reader.describe()[0] == ("form", "Parquet, wide: a column for each channel")


def test_local_times_need_their_zone(tmp_path: Path) -> None:
    file = tmp_path / "local.parquet"
    local = [datetime(2026, 7, 1, 12), datetime(2026, 12, 1, 12)]
    pq.write_table(pa.table({"time": pa.array(local, pa.timestamp("ms")), "a": [1.0, 2.0]}), file)
    expected = [time.replace(tzinfo=BERLIN) for time in local]
    assert [utc(time) for _, time, _, _ in read(ParquetFile(file, Options(zone=BERLIN)))] == expected
    with pytest.raises(OperationError, match=r"'timestamp\[ms\]'; legal: times that are adjusted to UTC; or name"):
        ParquetFile(file, Options())


def test_local_time_that_occurs_twice_is_named(tmp_path: Path) -> None:
    file = tmp_path / "twice.parquet"
    local = [datetime(2025, 10, 26, 1), datetime(2025, 10, 26, 2, 30)]
    pq.write_table(pa.table({"time": pa.array(local, pa.timestamp("us")), "a": [1.0, 2.0]}), file)
    with pytest.raises(OperationError, match=":2: time: found '2025-10-26 02:30:00'; legal: a time that occurs"):
        read(ParquetFile(file, Options(zone=BERLIN)))
    times = [time for _, time, _, _ in read(ParquetFile(file, Options(zone=BERLIN, ambiguous="second")))]
    assert utc(times[1]).hour == 1


def test_bad_sample_may_have_no_value(tmp_path: Path) -> None:
    file = tmp_path / "bad.parquet"
    long = {"tag": ["a", "a"], "time": pa.array([T, T + 1], pa.timestamp("us", "UTC")), "value": [None, 1.0]}
    pq.write_table(pa.table({**long, "quality": ["Bad", None]}), file)
    assert read(ParquetFile(file, Options())) == [("a", T, 0.0, 0x80000000), ("a", T + 1, 1.0, 0)]


@pytest.mark.parametrize("key", sorted(EXPORT_METADATA))
@pytest.mark.parametrize("statuses", [(0, 0), (0, 0x480), (0x480, 0x80000000)])
def test_export_is_read_back_whatever_its_statuses_are(key: bytes, statuses: tuple[int, int], tmp_path: Path) -> None:
    """A sealed day, or an interval."""
    file = tmp_path / "export.parquet"
    samples = Samples(
        np.ones(2, np.int32), np.array([T, T + 1]), np.array([np.nan, 1.0]), np.array(statuses, np.uint32)
    )
    export = SampleFile(file, "byte_stream_split")
    export.write(samples, "mill/a", "bar")
    export.close({key: b"{}"})
    assert bits(read(ParquetFile(file, Options()))) == bits(
        [("mill/a", T, np.nan, statuses[0]), ("mill/a", T + 1, 1.0, statuses[1])]
    )


_GOOD: dict[str, Any] = {"tag": ["a", "b"], "time": pa.array([T, T], pa.timestamp("us", "UTC")), "value": [1.0, 2.0]}
_BAD: dict[str, tuple[dict[str, Any], str]] = {
    "null channel": ({"tag": ["a", None]}, ":2: tag: found 'null'; legal: the name of a channel"),
    "empty channel": ({"tag": ["a", " "]}, ":2: tag: found ' '; legal: the name of a channel, of 1 to"),
    "two names of a channel": ({"tag": ["a/b", "a\\b"]}, ":2: tag: found 'a\\\\b'; legal: another name than 'a/b'"),
    "null time": (
        {"time": pa.array([T, None], pa.timestamp("us", "UTC"))},
        ":2: time: found 'null'; legal: a time",
    ),
    "text as time": ({"time": ["yesterday", "x"]}, ":1: time: found 'yesterday'; legal: a time such as"),
    "null value": ({"value": [1.0, None]}, ":2: value: found 'null'; legal: a number; only a Bad sample may"),
    "not a number": ({"value": [1.0, float("nan")]}, ":2: value: found 'nan'; legal: a finite number"),
    "nearly zero": ({"value": ["0", "1e-400"]}, ":2: value: found '1e-400'; legal: 0, or a number that is at least"),
    "text value": ({"value": ["1.5", "high"]}, ":2: value: found 'high'; legal: a number with the decimal"),
    "list": ({"value": [[1.0], [2.0]]}, ":1: value: found 'list<element: double>'; legal: a column of numbers"),
    "status": ({"quality": ["Good", "so so"]}, ":2: quality: found 'so so'; legal: Good, Uncertain, Bad"),
    "unknown column": ({"colour": ["x", "y"]}, "colour: found 'tag, time, value, colour'; legal: known columns"),
}


@pytest.mark.parametrize("case", _BAD)
def test_bad_input_is_named_with_file_row_and_column(case: str, tmp_path: Path) -> None:
    changed, expected = _BAD[case]
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({**_GOOD, **changed}), file)
    with pytest.raises(OperationError) as caught:
        check(ParquetFile(file, Options()), NOW, LIMITS, lambda done: None)
    assert str(caught.value).startswith(f"{file}:") and expected in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_file_is_named(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    table = pa.table({**_GOOD, "value": [1.0, 2.0]})
    pq.write_table(table, file, write_page_checksum=True)
    content = bytearray(file.read_bytes())
    file.write_bytes(
        content[:-20] if damage == "cut" else b"PAR1" + bytes(len(content) // 2) + content[len(content) // 2 :]
    )
    assert is_parquet(file)
    with pytest.raises(OperationError, match=r"x\.parquet is not a whole Parquet file \(.+\): copy it again"):
        check(ParquetFile(file, Options()), NOW, LIMITS, lambda done: None)


def test_table_without_rows_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table(_GOOD).slice(0, 0), file)
    with pytest.raises(OperationError, match="has no samples"):
        ParquetFile(file, Options())


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.string()])
def test_integers_that_no_double_is_equal_to_are_rounded_and_known(kind: Any, tmp_path: Path) -> None:
    numbers = [2**53, 2**53 + 1, 2**62, 2**62 + 1, 7]
    values = pa.array([str(n) for n in numbers] if kind == pa.string() else numbers, kind)
    times = pa.array([T] * 5, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"tag": list("abcde"), "time": times, "value": values}), tmp_path / "long.parquet")
    reader = ParquetFile(tmp_path / "long.parquet", Options())
    assert [value for _, _, value, _ in read(reader)] == [float(n) for n in numbers]
    assert {reader.names[place] for place in reader.rounded} == {"b", "d"}
    wide = {"time": times, **{name: pa.array([values[i].as_py()] * 5, kind) for i, name in enumerate("abcde")}}
    pq.write_table(pa.table(wide), tmp_path / "wide.parquet")
    reader = ParquetFile(tmp_path / "wide.parquet", Options())
    read(reader)
    assert {reader.names[place] for place in reader.rounded} == {"b", "d"}
