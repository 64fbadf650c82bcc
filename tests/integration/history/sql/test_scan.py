"""Hours and channels that `plantlog sql` reads for a condition, and names of samples: without a database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.timestamps import microseconds
from history.archive.meanings import TEXT, Meanings
from history.codec.row_groups import TIME
from history.sql.sources.scan import Hours, Scan, ScannedTable, Scans, hours_within

DAYS = [date(2026, 3, 9), date(2026, 3, 10)]
FIRST = datetime(2026, 3, 9, tzinfo=UTC)
SCHEMA = pa.schema([("time", TIME), ("channel_id", pa.int32()), ("name", TEXT), ("value", pa.float64())])
NAMES = {1: ["a"], 2: ["b", "c"], 3: ["a/long"]}


class Rows:
    """Two days of three channels, a sample each half hour; channel 2 gets another name at noon of the first."""

    def __init__(self) -> None:
        self.read: list[tuple[Hours, list[int]]] = []

    def batches(self, scan: Scan) -> Iterator[Any]:
        for hours in scan.hours(DAYS, "time"):
            channels = scan.channels(NAMES, lambda number: [{"name": name} for name in NAMES[number]])
            self.read.append((hours, channels))
            first, last = hours.bounds
            times = [first + timedelta(minutes=30 * i) for i in range((last - first) // timedelta(minutes=30))]
            for number in channels:
                names = [NAMES[number][-1 if time >= FIRST + timedelta(hours=12) else 0] for time in times]
                columns = {
                    "time": pa.array(times, TIME),
                    "channel_id": pa.array([number] * len(times), pa.int32()),
                    "name": pa.array(names).dictionary_encode(),
                    "value": pa.array([float(number)] * len(times)),
                }
                yield pa.RecordBatch.from_arrays([columns[name] for name in scan.schema.names], schema=scan.schema)


def test_of_days_between_others_all_hours_are_read() -> None:
    days = [date(2026, 3, day) for day in range(8, 13)]
    times = [pa.scalar(datetime(2026, 3, *at, tzinfo=UTC), TIME) for at in ((9, 22), (11, 2))]
    within = (ds.field("time") >= times[0]) & (ds.field("time") < times[1])
    found = list(Scan(SCHEMA, within).hours(days, "time"))
    assert found == [Hours(days[1], range(22, 24)), Hours(days[2], range(24)), Hours(days[3], range(2))]


def scanned(query: str) -> tuple[list[tuple[Any, ...]], list[tuple[Hours, list[int]]]]:
    """Rows of a query of the table ``s``, and what was read for it."""
    rows = Rows()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("s", ScannedTable(SCHEMA, rows.batches, Scans()))
        return connection.execute(query).fetchall(), rows.read


@pytest.mark.parametrize(
    ("condition", "n", "days", "hours", "channels"),
    [
        ("true", 288, 2, (0, 24), [1, 2, 3]),
        ("time >= '2026-03-09 05:00Z' AND time < '2026-03-09 06:30Z'", 9, 1, (5, 7), [1, 2, 3]),
        ("time BETWEEN '2026-03-09 05:00Z' AND '2026-03-09 06:00Z'", 9, 1, (5, 7), [1, 2, 3]),
        ("time = '2026-03-10 23:30Z'", 3, 1, (23, 24), [1, 2, 3]),
        ("date_trunc('day', time) = '2026-03-10'", 144, 1, (0, 24), [1, 2, 3]),
        ("time > '2026-03-11'", 0, 0, None, None),
        ("channel_id = 2", 96, 2, (0, 24), [2]),
        ("channel_id IN (1, 3)", 192, 2, (0, 24), [1, 3]),
        ("name = 'c'", 72, 2, (0, 24), [2]),
        ("name IN ('a', 'b')", 120, 2, (0, 24), [1, 2]),
        ("name = 'none'", 0, 2, (0, 24), []),
        ("name = 'c' AND time IN ('2026-03-09 11:00Z', '2026-03-09 12:00Z')", 1, 1, (11, 13), [2]),
        ("channel_id = 1 AND value IS NOT NULL", 96, 2, (0, 24), [1, 2, 3]),
        ("name LIKE '%long'", 96, 2, (0, 24), [1, 2, 3]),
        ("value > 2.5", 96, 2, (0, 24), [1, 2, 3]),
        ("name = 'a' AND time < '2026-03-09 01:00Z' AND value < 2", 2, 1, (0, 1), [1]),
        ("(channel_id = 1 AND time < '2026-03-09 01:00Z') OR time >= '2026-03-10 23:00Z'", 8, 2, None, [1, 2, 3]),
    ],
)
def test_no_more_is_read_than_the_condition_asks_for(
    condition: str, n: int, days: int, hours: tuple[int, int] | None, channels: list[int] | None
) -> None:
    [(counted,)], read = scanned(f"SELECT count(*) FROM s WHERE {condition}")
    assert counted == n
    assert len(read) == days
    for one, of in read:
        assert hours is None or one.hours == range(*hours)
        assert of == channels


_TIMES = st.integers(-2, 98).map(lambda n: f"TIMESTAMPTZ '{(FIRST + timedelta(minutes=30 * n)).isoformat()}'")
_SIMPLE = st.one_of(
    st.tuples(st.sampled_from(["<", "<=", "=", ">", ">=", "<>"]), _TIMES).map(lambda t: f"time {t[0]} {t[1]}"),
    st.tuples(st.sampled_from(["<", "=", ">", "<>"]), st.integers(0, 4)).map(lambda t: f"channel_id {t[0]} {t[1]}"),
    st.tuples(_TIMES, _TIMES).map(lambda t: f"time IN ({t[0]}, {t[1]})"),
    st.sampled_from(["name = 'a'", "name = 'c'", "name > 'a'", "name IN ('b', 'x')", "name IS NULL", "value < 2"]),
    st.sampled_from(["value IS NOT NULL", "time IS NULL", "channel_id IN (1, 3)", "channel_id NOT IN (2, 4)"]),
)
_CONDITIONS = st.recursive(
    _SIMPLE,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda one: f"(NOT {one})"),
    ),
    max_leaves=4,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(_CONDITIONS)
def test_no_row_is_lost_whatever_the_condition(condition: str) -> None:
    """Behind OFFSET 0, DuckDB hands no condition to the table."""
    [(counted,)], _ = scanned(f"SELECT count(*) FROM s WHERE {condition}")
    [(expected,)], read = scanned(f"SELECT count(*) FROM (SELECT * FROM s OFFSET 0) WHERE {condition}")
    assert len(read) in (0, 2)  # 0: the condition contradicts itself
    assert counted == expected


def test_errors_are_kept_as_they_were_raised() -> None:
    def broken(_: Scan) -> Iterator[Any]:
        raise OSError("disk")
        yield

    scans = Scans()
    with duckdb.connect() as connection:
        connection.register("s", ScannedTable(SCHEMA, broken, scans))
        with pytest.raises(duckdb.Error):
            connection.execute("SELECT * FROM s").fetchall()
    assert [str(failure) for failure in scans.failures] == ["disk"]


def test_names_are_those_of_the_time() -> None:
    noon = microseconds(FIRST + timedelta(hours=12))
    meanings = Meanings([(1, None, "a", "m"), (2, noon, "b", "bar"), (2, noon + 10, "c", "kPa"), (4, None, "d", "")])
    channel = np.array([1, 2, 2, 2, 2, 3, 4], np.int32)
    time = np.array([0, noon - 1, noon, noon + 9, noon + 10, noon, noon], np.int64)
    found = meanings.columns(channel, time)
    assert found["name"].to_pylist() == ["a", None, "b", "b", "c", None, "d"]
    assert found["unit"].to_pylist() == ["m", None, "bar", "bar", "kPa", None, ""]
    assert Meanings([]).columns(channel, time)["name"].to_pylist() == [None] * 7


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (0.0, 48.0, [range(24), range(24)]),
        (1.5, 3.0, [range(1, 3)]),
        (23.0, 24.5, [range(23, 24), range(1)]),
        (-5.0, 0.0, []),
        (7.0, 7.0, []),
    ],
)
def test_hours_within_bounds(since: float, until: float, expected: list[range]) -> None:
    days = [FIRST.date(), FIRST.date() + timedelta(days=1)]
    us = [microseconds(FIRST + timedelta(hours=hours)) for hours in (since, until)]
    assert [one.hours for one in hours_within(days, *us)] == expected
