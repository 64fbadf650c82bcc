"""Tables of ``plantlog sql``: no more samples are read than a query needs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from core.errors import OperationError
from core.timestamps import begin
from history.sql.session import opened
from history.sql.sources.reader import ReaderConnection
from schema.queries import load
from schema.question_files import questions
from tests import docs
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.sealed_plant import DAY
from tests.integration.history.sql.asking import LIMITS, NEXT, Opened, Rows, archived_and_dropped, rows_of, rows_of_each


@pytest.mark.slow
async def test_conditions_limit_what_is_read(plant: Maintained, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = plant.site.plant.ids["other/flow"]
    read = Opened(monkeypatch)
    hour = f"time >= '{NEXT} 05:00Z' AND time < '{NEXT} 06:00Z'"
    for where in (
        f"samples WHERE {hour} AND channel_id = {flow}",
        f"samples_named WHERE {hour} AND name = 'other/flow'",
        f"samples_named WHERE date_trunc('hour', time) = '{NEXT} 05:00Z' AND name IN ('other/flow', 'other/none')",
        f"samples WHERE time < TIMESTAMPTZ '{NEXT} 06:00Z' AND time >= TIMESTAMPTZ '{NEXT} 06:00Z' - INTERVAL 1 HOUR "
        f"AND channel_id = {flow}",
    ):
        assert await rows_of(plant, f"SELECT count(*) FROM {where}") == [(120,)]
        assert read.live == [([flow], begin(NEXT, 5), begin(NEXT, 6))]
        read.live.clear()
    assert read.files == []
    await plant.job()
    read.files.clear()
    assert await rows_of(plant, f"SELECT count(*) FROM samples WHERE {hour}") == [(240,)]
    assert (read.files, read.live) == ([str(NEXT)], [])
    read.files.clear()
    assert await rows_of(plant, "SELECT count(*) FROM samples WHERE time > now() - INTERVAL 1 HOUR") == [(0,)]
    assert await rows_of(plant, "SELECT count(*) FROM samples_named WHERE name = 'none'") == [(0,)]
    assert read.files == []


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("SELECT name FROM channel WHERE id = $flow", ["flow"]),
        ("SELECT name FROM channel WHERE id IN ($flow, $pressure, -1) ORDER BY name", ["flow", "pressure"]),
        ("SELECT name FROM channel WHERE (id = $flow OR kind IS NULL) AND kind IS NOT NULL", []),
        ("SELECT name FROM channel WHERE name = 'other/flow'", None),
        ("SELECT unit FROM channel_version WHERE channel_id = $flow", ["flow"]),
        ("SELECT name FROM channels_like(['other/*'])", ["flow"]),
        ("SELECT DISTINCT unit_at(c.id, now(), patterns := ['*/flow']) FROM channel AS c WHERE c.id = $flow", ["flow"]),
    ],
)
async def test_conditions_limit_which_channels_are_read(
    plant: Maintained, monkeypatch: pytest.MonkeyPatch, query: str, read: list[str] | None
) -> None:
    ids = {name.rpartition("/")[2]: number for name, number in plant.site.plant.ids.items()}
    for name, number in ids.items():
        query = query.replace(f"${name}", f"{number}")
    asked_for: list[Any] = []
    fetch = ReaderConnection.fetch

    def noted(self: ReaderConnection, statement: str, *arguments: Any) -> Any:
        if "$1::int[] IS NULL OR" in statement:
            asked_for.append(arguments[0])
        return fetch(self, statement, *arguments)

    monkeypatch.setattr(ReaderConnection, "fetch", noted)
    whole = await rows_of(plant, query.replace("WHERE", "WHERE random() >= 0 AND"))
    asked_for.clear()
    assert await rows_of(plant, query) == whole != []
    assert set(asked_for) == {None if read is None else tuple(sorted(ids[name] for name in read or ids))}


async def test_names_and_units_are_those_of_the_time(plant: Maintained) -> None:
    await plant.owner.execute("UPDATE plant.channel SET name = 'unit/p1', unit = 'kPa' WHERE name = 'unit/pressure'")
    moved = (
        "UPDATE plant.channel_version SET {0} = $2 "
        "WHERE channel_id = $1 AND {0} = (SELECT {1}({0}) FROM plant.channel_version)"
    )
    pressure = plant.site.plant.ids["unit/pressure"]
    for column, choice in (("valid_to", "min"), ("valid_from", "max")):
        await plant.site.plant.tamper(moved.format(column, choice), pressure, begin(NEXT, 6))
    query = "SELECT name, unit, quality, count(*) FROM samples_named GROUP BY ALL ORDER BY ALL"
    expected = [tuple(row) for row in await plant.owner.fetch(
        "SELECT name, unit, quality, count(*) FROM plant.samples_named GROUP BY 1, 2, 3 ORDER BY 1, 2, 3")]  # fmt: skip
    assert ("unit/p1", "kPa", "good", 120) in expected
    assert ("unit/pressure", "bar", "good", 360) in expected
    assert await rows_of(plant, query) == expected
    assert await rows_of(plant, "SELECT count(*) FROM samples_named WHERE name = 'unit/p1'") == [(120,)]


def quoted(name: str) -> str:
    return f'"{name}"'


async def test_rollups_gaps_channels_and_sources_are_those_of_the_database(plant: Maintained) -> None:
    await plant.owner.execute(
        "INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1, $2)", begin(DAY), begin(NEXT, 24)
    )
    await plant.owner.execute("CALL plant.refresh_rollups()")
    orders = {
        "samples_1m": "channel_id, bucket",
        "samples_1h": "channel_id, bucket",
        "gap": "from_time, id",
        "channel": "id",
        "source": "id",
    }
    listed = await rows_of_each(plant, *(f"SELECT list(column_name) FROM (DESCRIBE {table})" for table in orders))
    columns = {table: names for table, [(names,)] in zip(orders, listed, strict=True)}
    pressure = plant.site.plant.ids["unit/pressure"]
    where = f"channel_id = {pressure} AND bucket >= '{DAY} 05:01Z' AND bucket < '{DAY} 07:00Z' AND n > 0"
    *found, minutes, hours = await rows_of_each(
        plant,
        *(f"SELECT {', '.join(map(quoted, columns[table]))} FROM {table} ORDER BY {orders[table]}" for table in orders),
        f"SELECT count(*), sum(n) FROM samples_1m WHERE {where}",
        f"SELECT count(*), sum(n) FROM samples_1h WHERE {where}",
    )
    for table, rows in zip(orders, found, strict=True):
        texts = ", ".join(
            f"{quoted(name)}::text" if name in ("attributes", "installation_id") else quoted(name)
            for name in columns[table]
        )
        expected = await plant.owner.fetch(f"SELECT {texts} FROM plant.{table} ORDER BY {orders[table]}")
        assert rows == [tuple(row) for row in expected] != []
    assert (minutes, hours) == ([(3, 180)], [(1, 120)])


async def test_events_that_were_dropped_come_from_the_archive(plant: Maintained) -> None:
    query = f"SELECT time, id, type, text FROM event WHERE time < '{DAY} 12:00Z' ORDER BY time, id"
    expected = [(begin(DAY, 5) + timedelta(seconds=3), 1, "text", "valve opened")]
    assert await rows_of(plant, query) == expected
    await plant.job()
    assert await rows_of(plant, query) == expected
    await plant.owner.execute("DELETE FROM plant.event WHERE type = 'text'")
    await plant.owner.execute(
        "INSERT INTO plant.dropped (what, retention, until) VALUES ('event', 'default', $1)", begin(NEXT)
    )
    assert await rows_of(plant, query) == expected


async def test_documented_queries_run(plant: Maintained) -> None:
    lines = [words for block in docs.blocks("sh") for words in docs.simple_commands(block.text)]
    asking = [words for words in lines if words[:2] == ["./plantlog", "sql"] and not {"--with", "--table"} & {*words}]
    queries = [words[-1] for words in asking if "SELECT" in words[-1]]
    assert len(queries) == 4
    for query in queries:
        assert await rows_of(plant, query) == []


async def test_documented_join_with_own_data(plant: Maintained, tmp_path: Path) -> None:
    lines = [words for block in docs.blocks("sh") for words in docs.simple_commands(block.text)]
    [command] = [words for words in lines if words[:2] == ["./plantlog", "sql"] and "--table" in words]
    query = command[-1].replace("boilerhouse/boiler1/pressure", "unit/pressure")
    query = query.replace("now() - INTERVAL 1 HOUR", f"TIMESTAMPTZ '{DAY}'")
    at = begin(DAY, 5) + timedelta(seconds=2.5)
    (tmp_path / "lab.csv").write_text(f"time,batch,ph\n{at.isoformat()},A17,7.1\n{DAY}T00:00:00,A16,6.9\n")

    def work() -> list[Any]:
        with opened(plant.site.plant.state, LIMITS, files={"lab": tmp_path / "lab.csv"}) as session:
            found = []
            for statement in session.statements(query):
                with session.rows(statement) as (_, rows):
                    found.append(list(rows))
        return found

    _, rows = await asyncio.to_thread(work)
    assert rows == [(begin(DAY), "A16", 6.9, None, None), (at, "A17", 7.1, 40.02, timedelta(seconds=0.5))]


@pytest.mark.parametrize("name", ["samples", "SAMPLES_named", "gap", "stored_samples", "gap_channel"])
@pytest.mark.parametrize("is_file", [True, False])
async def test_name_of_a_table_of_the_session_is_refused(
    plant: Maintained, tmp_path: Path, name: str, is_file: bool
) -> None:
    file = tmp_path / "lab.csv"
    file.write_text("a\n1\n")
    files, others = ({name: file}, {}) if is_file else ({}, {name: pa.table({"a": [1]})})

    def work() -> None:
        with (
            pytest.raises(OperationError, match=f"table {name}: there is .* than channel, .*samples, samples_1h, "),
            opened(plant.site.plant.state, LIMITS, files=files, others=others),
        ):
            pass

    await asyncio.to_thread(work)


async def test_archived_days_are_looked_up_together(plant: Maintained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they are read, and after that, as retention may have dropped some; not once more for each day."""
    await archived_and_dropped(plant)
    looked_up = list[Any]()
    fetch = ReaderConnection.fetch

    def noted(self: ReaderConnection, statement: str, *arguments: Any) -> Any:
        if statement == load("sql")["select_archived"]:
            looked_up.append(arguments)
        return fetch(self, statement, *arguments)

    monkeypatch.setattr(ReaderConnection, "fetch", noted)
    [(days,)] = await rows_of(plant, "SELECT count(DISTINCT day_of(time)) FROM samples")
    assert days == 2
    assert looked_up == [([DAY, NEXT],)] * 2


async def test_times_before_1970_are_in_the_minute_that_they_are_in(plant: Maintained) -> None:
    times = "(VALUES (TIMESTAMPTZ '1969-12-31 23:58:30Z'), ('1950-01-01 00:00Z'), ('2026-03-09 10:00:59Z')) AS t (time)"
    rows = await rows_of(plant, f"SELECT minute_of(time), hour_of(time), day_of(time) FROM {times} ORDER BY time")
    assert [[f"{time:%Y-%m-%d %H:%M:%S}" for time in row] for row in rows] == [
        ["1950-01-01 00:00:00"] * 3,
        ["1969-12-31 23:58:00", "1969-12-31 23:00:00", "1969-12-31 00:00:00"],
        ["2026-03-09 10:00:00", "2026-03-09 10:00:00", "2026-03-09 00:00:00"],
    ]


@pytest.mark.parametrize(
    "created",
    [
        "TEMP TABLE samples",
        "OR REPLACE TEMPORARY VIEW Samples",
        'table if not exists "samples_named"',
        "TABLE memory.main.gap",
        "OR REPLACE VIEW gap_channel",
    ],
)
async def test_no_statement_hides_a_table_of_the_session(plant: Maintained, created: str) -> None:
    def work() -> None:
        with opened(plant.site.plant.state, LIMITS) as session:
            for query in (
                "CREATE TEMP TABLE mine AS SELECT 1 AS n",
                "CREATE OR REPLACE TEMP TABLE mine AS SELECT 2 AS n",
            ):
                with session.rows(session.statements(query)[0]):
                    pass
            [statement] = session.statements(f"CREATE {created} AS SELECT 1 AS value")
            with pytest.raises(OperationError, match="there is one of this name; choose"), session.rows(statement):
                pass
            with session.rows("SELECT count(*) > 1, (SELECT n FROM mine) FROM samples") as (_, rows):
                assert list(rows) == [(True, 2)]

    await asyncio.to_thread(work)


@pytest.mark.parametrize(("name", "times"), [("timeline", 1), (None, 2)])
async def test_queries_of_a_question_read_channels_once(
    plant: Maintained, monkeypatch: pytest.MonkeyPatch, name: str | None, times: int
) -> None:
    read: list[str] = []
    fetch = ReaderConnection.fetch

    def noted(self: ReaderConnection, statement: str, *arguments: Any) -> Any:
        read.append(statement)
        return fetch(self, statement, *arguments)

    monkeypatch.setattr(ReaderConnection, "fetch", noted)

    def counts() -> list[tuple[Any, ...]]:
        found = []
        with opened(plant.site.plant.state, LIMITS, question=questions().get(name or "")) as session:
            for _ in range(2):
                with session.rows("SELECT count(*) FROM described_channel") as (_, rows):
                    found += list(rows)
        return found

    assert await asyncio.to_thread(counts) == [(len(plant.site.plant.ids),)] * 2
    assert read.count(load("sql")["select_described_channel"]) == times


async def test_functions_are_there_in_a_transaction_and_keep_their_names(plant: Maintained) -> None:
    def work() -> None:
        with opened(plant.site.plant.state, LIMITS) as session:

            def rows(query: str) -> Rows:
                found = Rows()
                for statement in session.statements(query):
                    with session.rows(statement) as (_, of_statement):
                        found = list(of_statement)
                return found

            with pytest.raises(OperationError, match="already exists"):
                rows("CREATE MACRO unit_of(name) AS name")
            assert rows("BEGIN; CREATE TABLE mine AS SELECT 'a/b' AS name; SELECT unit_of(name) FROM mine") == [("a",)]
            [(ids,)] = rows("COMMIT; SELECT channel_ids(['*']) FROM mine")
            assert ids

    await asyncio.to_thread(work)


async def test_functions_are_made_for_the_first_query_that_needs_one(plant: Maintained) -> None:
    queries = ("SELECT 1", "SELECT unit_of('a/b')", "SELECT len(channel_ids(['*'])) > 0", "SELECT unit_of('c/d')")
    assert await rows_of_each(plant, *queries) == [[(1,)], [("a",)], [(True,)], [("c",)]]
