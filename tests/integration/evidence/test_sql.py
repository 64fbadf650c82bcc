"""``plantlog sql`` over a database and an archive: each sample once, wherever it is, and no more is read than asked."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import OperationError
from ops.archive.day_files import DayFiles
from ops.archive.location import Location
from ops.archive.manifest import DayFolder, Manifest, read_manifest
from ops.evidence.reader import begin, portions
from ops.paths import CHECKOUT, State
from ops.sql.limits import Limits
from ops.sql.reader import Reader
from ops.sql.session import opened
from schema.forensics import duckdb_forms
from tests import docs, repository_servers
from tests.config_in_force import activate
from tests.database import Database
from tests.integration.evidence.archive_maintenance import Key, Maintained, maintained_plant
from tests.integration.evidence.plant import DAY, SealedPlant, minute
from tests.repository_servers import running
from tests.sample_tables import HOUR_US, bits
from tests.waiting import until, until_sync

LIMITS = Limits("1GiB", 2, 120)
NEXT = DAY + timedelta(days=1)
Rows = list[tuple[Any, ...]]


@pytest.fixture
async def plant(database: Database, tmp_path: Path) -> AsyncIterator[Maintained]:
    async with maintained_plant(database, tmp_path) as made:
        yield made


async def asked(plant: Maintained, *queries: str, limits: Limits = LIMITS, state: State | None = None) -> Rows:
    """The rows of the last query. ``state``: of another installation of the database."""
    return (await answers(plant, *queries, limits=limits, state=state))[-1]


async def answers(plant: Maintained, *queries: str, limits: Limits = LIMITS, state: State | None = None) -> list[Rows]:
    """The rows of each, in one session."""

    def work() -> list[Rows]:
        found = list[Rows]()
        with opened(state or plant.site.plant.state, limits) as session:
            for query in queries:
                with session.rows(query) as (_, rows):
                    found.append(list(rows))
        return found

    return await asyncio.to_thread(work)


async def samples(plant: Maintained, condition: str = "true") -> dict[Key, tuple[int, int]]:
    """By channel and time; each is there once."""
    query = "SELECT channel_id, epoch_us(time), value, status & 4294967295 FROM samples WHERE "
    rows = await asked(plant, query + condition)
    found = {(row[0], row[1]): (bits(row[2]), row[3]) for row in rows}
    assert len(found) == len(rows)
    return found


async def both_days(plant: Maintained) -> dict[Key, tuple[int, int]]:
    """What the database has."""
    return {**await plant.stored(DAY), **await plant.stored(NEXT)}


async def archived_and_dropped(plant: Maintained) -> None:
    assert (await plant.job()).outcome == "ok"
    assert await plant.drop() == ["chunk"]
    assert await plant.stored() == {}


# Each sample once


async def test_same_samples_before_and_after_a_day_is_archived_and_dropped(plant: Maintained) -> None:
    expected = await both_days(plant)
    assert len(expected) == 1160
    assert await samples(plant) == expected
    assert (await plant.job()).outcome == "ok"
    assert await samples(plant) == expected
    assert await plant.drop() == ["chunk"]
    assert await plant.stored() == {}
    assert await samples(plant) == expected


async def test_packed_day_is_the_same(plant: Maintained) -> None:
    expected = await both_days(plant)
    await plant.site.plant.pack()
    assert await samples(plant) == expected
    await plant.job()
    assert await samples(plant) == expected


async def test_late_samples_count_at_once_and_as_an_amendment(plant: Maintained) -> None:
    expected = await both_days(plant)
    await archived_and_dropped(plant)
    await plant.late()
    await plant.late("other/level", minute(0, [3.0] * 5, 7))  # a channel that had none
    expected |= await plant.stored()
    assert len(await plant.stored()) == 6
    assert await samples(plant) == expected
    await plant.job()
    assert (await plant.archived())[0] == (DAY, 1, 1)
    assert await samples(plant) == expected
    assert await plant.drop() == ["chunk"]
    assert await samples(plant) == expected
    level = plant.site.plant.ids["other/level"]
    assert await samples(plant, f"channel_id = {level}") == {k: v for k, v in expected.items() if k[0] == level}


_SINCE, _UNTIL = f"TIMESTAMPTZ '{begin(DAY, 5)}' + INTERVAL '30 s'", f"TIMESTAMPTZ '{begin(NEXT, 24)}'"
_BINS = f"""
SELECT channel_id, bucket, sum(samples), sum(not_bad), min(first_time), max(last_time), sum(good),
       round(sum(good_sum), 6), arg_max(last_good, last_good_time)
FROM bins_of(NULL, {_SINCE}, {_UNTIL}, INTERVAL '7 min', INTERVAL '7 min', {_SINCE}, INTERVAL '2 s')
GROUP BY ALL ORDER BY ALL"""
_GROUPS = f"""
SELECT s.channel_id, date_bin(INTERVAL '7 min', s.time, {_SINCE}) AS bucket, count(*), count(*) FILTER (s.status >= 0),
       min(s.time), max(s.time), count(g.value), round(coalesce(sum(g.value), 0), 6), arg_max(g.value, g.time)
FROM samples AS s
LEFT JOIN good_samples(NULL, {_SINCE}, {_UNTIL}) AS g USING (channel_id, time)
WHERE s.time >= {_SINCE} AND s.time < {_UNTIL} GROUP BY ALL ORDER BY ALL"""
_WHOLE = f"""
SELECT count(*), count(*) FILTER (n > 1)
FROM (SELECT count(*) AS n, bool_or(whole) AS whole
      FROM bins_of(NULL, {_SINCE}, {_UNTIL}, INTERVAL '10 s', INTERVAL '10 s', {_SINCE}, NULL)
      GROUP BY channel_id, bucket)
WHERE whole"""
_PAUSES = f"""
FROM (SELECT channel_id, first_time AS time, epoch_us(first_time) - max(epoch_us(last_time)) OVER before AS pause
      FROM bins_of(NULL, {_SINCE}, {_UNTIL}, INTERVAL '7 min', INTERVAL '7 min', {_SINCE}, INTERVAL '2 s')
      WINDOW before AS (PARTITION BY channel_id ORDER BY first_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
WHERE pause >= 2e6 ORDER BY ALL"""
_LAGS = f"""
FROM (SELECT channel_id, time, epoch_us(time) - epoch_us(lag(time) OVER own) AS pause
      FROM samples WHERE time >= {_SINCE} AND time < {_UNTIL}
      WINDOW own AS (PARTITION BY channel_id ORDER BY time))
WHERE pause >= 2e6 ORDER BY ALL"""
_STEPS = f"""
SELECT channel_id, time, old_value, value FROM steps_of(NULL, {_SINCE}, {_UNTIL}, 1000000, 10)
WHERE is_step ORDER BY ALL"""
_CHANGES = f"""
SELECT channel_id, time, old_value, value
FROM (SELECT *, lag(value) OVER own AS old_value, lag(status) OVER own AS old_status
      FROM samples WHERE time >= {_SINCE} AND time < {_UNTIL}
      WINDOW own AS (PARTITION BY channel_id ORDER BY time))
WHERE status >= 0 AND old_status >= 0 AND value <> old_value AND abs(value) < 1e50 AND abs(old_value) < 1e50
ORDER BY ALL"""
_RUNS = f"""
SELECT channel_id, value, from_time, next_time FROM runs_of(NULL, {_SINCE}, {_UNTIL}, INTERVAL '0 s') ORDER BY ALL"""
_HELD = f"""
SELECT channel_id, value, time, lead(time) OVER (PARTITION BY channel_id ORDER BY time)
FROM (SELECT *, lag(value) OVER (PARTITION BY channel_id ORDER BY time) AS old_value
      FROM good_samples(NULL, {_SINCE}, {_UNTIL}))
WHERE value IS DISTINCT FROM old_value ORDER BY ALL"""


@pytest.mark.parametrize("at_a_time", [1_000_000, 40])
async def test_what_is_found_while_reading_is_that_of_the_samples(
    plant: Maintained, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    """Also by other processes, and of a channel in parts."""
    monkeypatch.setattr("ops.sql.days._AT_A_TIME", at_a_time)

    one = "SELECT * FROM ({}) WHERE channel_id IN channel_ids(['*/pressure'])"

    async def compare() -> None:
        pairs = (_BINS, _GROUPS, _PAUSES, _LAGS, _STEPS, _CHANGES, _RUNS, _HELD)
        *found, [(whole, twice)], own, plain = await answers(
            plant, *pairs, _WHOLE, one.format(_BINS), one.format(_GROUPS)
        )
        for rows, expected in zip(found[::2], found[1::2], strict=True):
            assert rows == expected
            assert len(rows) > 5
        assert whole > 10
        assert twice == 0
        assert own == plain
        assert own

    await compare()
    await archived_and_dropped(plant)
    await compare()
    await plant.late()
    await plant.late("unit/pressure", [(5 * HOUR_US + 60_500_000, bits(1.0), 0)])  # between others
    await compare()
    await plant.job()
    await plant.drop()
    await compare()
    assert "sample_bins: since: found no constant" in await failure(plant, "SELECT count(*) FROM sample_bins")


async def test_days_are_looked_up_once_for_all_channels(plant: Maintained, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = await asked(plant, _STEPS)
    await plant.job()
    read = list[date]()

    def observed(location: Location, folder: DayFolder) -> Manifest:
        read.append(folder.day)
        return read_manifest(location, folder)

    monkeypatch.setattr("ops.archive.archived_days.read_manifest", observed)
    monkeypatch.setattr("ops.sql.days._AT_A_TIME", 1)
    assert await asked(plant, _STEPS) == expected
    assert read == [DAY, NEXT]


async def test_late_samples_of_a_day_that_is_archived_and_not_dropped(plant: Maintained) -> None:
    await plant.job()
    await plant.site.plant.samples("unit/pressure", [(9 * HOUR_US, bits(1.0), 0)])  # without evidence, too
    assert await samples(plant) == await both_days(plant)


async def test_archived_sample_stays_if_another_value_comes(plant: Maintained) -> None:
    expected = await both_days(plant)
    await archived_and_dropped(plant)
    await plant.late("unit/pressure", minute(0, [1.0] * 121, 5))
    expected |= {key: value for key, value in (await plant.stored()).items() if key not in expected}
    assert await samples(plant) == expected


async def test_deleted_samples_are_gone_although_they_are_archived(plant: Maintained) -> None:
    await plant.job()
    query = "SELECT plant.delete_samples(ARRAY[$1::int], $2, $3, 'a test')"
    for name, hours in (("unit/pressure", (5, 6)), ("unit/odd", (0, 24))):
        await plant.owner.execute(query, plant.site.plant.ids[name], *(begin(DAY, hour) for hour in hours))
    expected = await both_days(plant)
    assert len(expected) == 1160 - 120 - 200
    assert await samples(plant) == expected


async def test_day_that_is_dropped_while_it_is_read_is_an_error(
    plant: Maintained, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = asyncio.get_running_loop()

    async def dropped_before(*arguments: Any) -> AsyncIterator[Any]:
        future = asyncio.run_coroutine_threadsafe(archived_and_dropped(plant), main)
        await asyncio.wrap_future(future)
        async for found in portions(*arguments):
            yield found

    monkeypatch.setattr("ops.sql.samples.portions", dropped_before)
    query = f"SELECT count(*) FROM samples WHERE time < '{NEXT}'"
    assert "dropped while they were read" in await failure(plant, query)
    monkeypatch.undo()
    assert await asked(plant, query) == [(680,)]


async def test_samples_of_another_installation_are_there_too(
    plant: Maintained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SealedPlant(plant.site.plant.database, tmp_path / "south", "south") as south:
        assert (await plant.job()).outcome == "ok"
        await south.samples("south/level", minute(0, [1.0] * 60))
        expected = await both_days(plant)
        read = Opened(monkeypatch)
        for state in (plant.site.plant.state, south.state):
            query = f"SELECT count(*), count(DISTINCT (channel_id, time)) FROM samples WHERE time < '{NEXT}'"
            assert await asked(plant, query, state=state) == [(740, 740)]
            assert set(read.files) == {str(DAY)}
            assert read.live == [([south.ids["south/level"]], begin(DAY), begin(DAY, 24))]
            read.files.clear()
            read.live.clear()
        assert await samples(plant) == expected


@pytest.mark.skipif(repository_servers.missing() != "", reason=repository_servers.missing())
async def test_archive_in_a_bucket(plant: Maintained, tmp_path: Path) -> None:
    expected = await both_days(plant)
    peer = repository_servers.s3(tmp_path / "server", tmp_path / "files")
    of = peer.options(Path("/dev/null"))
    options = {
        "location": "s3://plantlog/archive",
        "s3_endpoint": of.s3_endpoint,
        "key_file": of.key_file,
        "ca_file": of.ca_file,
    }
    lines = "\n".join(f'{name} = "{value}"' for name, value in options.items())
    (tmp_path / "s3.toml").write_text(re.sub("location = .*", lines, (tmp_path / "plant.toml").read_text()))
    activate(plant.site.plant.state.root, tmp_path / "s3.toml")
    await plant.owner.execute("UPDATE plant.installation SET archive_location = $1", options["location"])
    with running(peer):
        await archived_and_dropped(plant)
        assert await samples(plant) == expected
    assert "archive s3://plantlog/archive: " in await failure(plant, "SELECT count(*) FROM samples")


# No more than is asked


class Opened:
    """What was read: days and channels."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        self.live: list[tuple[Any, ...]] = []
        opened_file = DayFiles.opened

        def file(files: DayFiles, one: Any, *footers: Any) -> Any:
            if one.table == "samples":
                self.files.append(str(files.folder.day))
            return opened_file(files, one, *footers)

        def live(connection: Any, channels: Any, since: Any, until: Any) -> Any:
            self.live.append((list(channels), since, until))
            return portions(connection, channels, since, until)

        monkeypatch.setattr(DayFiles, "opened", file)
        monkeypatch.setattr("ops.sql.samples.portions", live)


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
        assert await asked(plant, f"SELECT count(*) FROM {where}") == [(120,)]
        assert read.live == [([flow], begin(NEXT, 5), begin(NEXT, 6))]
        read.live.clear()
    assert read.files == []
    await plant.job()
    read.files.clear()
    assert await asked(plant, f"SELECT count(*) FROM samples WHERE {hour}") == [(240,)]
    assert (read.files, read.live) == ([str(NEXT)], [([], begin(NEXT, 5), begin(NEXT, 6))])
    read.files.clear()
    assert await asked(plant, "SELECT count(*) FROM samples WHERE time > now() - INTERVAL 1 HOUR") == [(0,)]
    assert await asked(plant, "SELECT count(*) FROM samples_named WHERE name = 'none'") == [(0,)]
    assert read.files == []


# The other tables


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
    assert await asked(plant, query) == expected
    assert await asked(plant, "SELECT count(*) FROM samples_named WHERE name = 'unit/p1'") == [(120,)]


async def test_rollups_gaps_channels_and_sources_are_those_of_the_database(plant: Maintained) -> None:
    await plant.owner.execute(
        "INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1, $2)", begin(DAY), begin(NEXT, 24)
    )
    await plant.owner.execute("CALL plant.refresh_rollups()")
    for table, order in (
        ("samples_1m", "channel_id, bucket"),
        ("samples_1h", "channel_id, bucket"),
        ("gap", "from_time, id"),
        ("channel", "id"),
        ("source", "id"),
    ):
        [columns] = await asked(plant, f"SELECT list(column_name) FROM (DESCRIBE {table})")
        names = ", ".join(f'"{name}"' for name in columns[0])
        texts = ", ".join(
            f'"{name}"::text' if name in ("attributes", "installation_id") else f'"{name}"' for name in columns[0]
        )
        expected = await plant.owner.fetch(f"SELECT {texts} FROM plant.{table} ORDER BY {order}")
        assert expected
        assert await asked(plant, f"SELECT {names} FROM {table} ORDER BY {order}") == [tuple(row) for row in expected]
    pressure = plant.site.plant.ids["unit/pressure"]
    where = f"channel_id = {pressure} AND bucket >= '{DAY} 05:01Z' AND bucket < '{DAY} 07:00Z'"
    assert await asked(plant, f"SELECT count(*), sum(n) FROM samples_1m WHERE {where}") == [(3, 180)]
    assert await asked(plant, f"SELECT count(*), sum(n) FROM samples_1h WHERE {where}") == [(1, 120)]


async def test_events_that_were_dropped_come_from_the_archive(plant: Maintained) -> None:
    query = f"SELECT time, id, type, text FROM event WHERE time < '{DAY} 12:00Z' ORDER BY time, id"
    expected = [(begin(DAY, 5) + timedelta(seconds=3), 1, "text", "valve opened")]
    assert await asked(plant, query) == expected
    await plant.job()
    assert await asked(plant, query) == expected
    await plant.owner.execute("DELETE FROM plant.event WHERE type = 'text'")
    await plant.owner.execute(
        "INSERT INTO plant.dropped (what, retention, until) VALUES ('event', 'default', $1)", begin(NEXT)
    )
    assert await asked(plant, query) == expected


async def test_documented_queries_run(plant: Maintained) -> None:
    lines = [words for block in docs.blocks("sh") for words in docs.simple_commands(block.text)]
    queries = [words[-1] for words in lines if words[:2] == ["./plantlog", "sql"] and "SELECT" in words[-1]]
    assert len(queries) == 3
    for query in queries:
        assert await asked(plant, query) == []


async def test_session_of_a_question_is_prepared_for_no_other(plant: Maintained) -> None:
    def macros() -> set[str]:
        query = "SELECT function_name FROM duckdb_functions() WHERE function_type = 'table_macro'"
        with opened(plant.site.plant.state, LIMITS, asked="timeline") as session, session.rows(query) as (_, rows):
            return {name for (name,) in rows}

    assert await asyncio.to_thread(macros) & set(duckdb_forms()) == {"timeline"}


# What goes wrong


def listed(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def failure(plant: Maintained, *queries: str, limits: Limits = LIMITS) -> str:
    with pytest.raises(OperationError) as error:
        await asked(plant, *queries, limits=limits)
    return str(error.value)


async def test_damaged_or_swapped_file_is_an_error_that_names_it(plant: Maintained) -> None:
    await archived_and_dropped(plant)
    count = f"SELECT count(*) FROM samples WHERE time < '{NEXT}'"
    first, second = (next(plant.site.folder.glob(f"samples/*/day={day}/*")) for day in (DAY, NEXT))
    whole, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(whole[:-100])
    assert f"{first.name} has {len(whole) - 100:,} bytes, {len(whole):,} by the manifest" in await failure(plant, count)
    first.write_bytes(other + bytes(max(0, len(whole) - len(other))))
    assert first.name in await failure(plant, count)
    first.write_bytes(whole)
    assert await asked(plant, count) == [(680,)]
    first.unlink()
    assert "is missing" in await failure(plant, count)


async def test_manifest_of_another_plant_or_of_an_older_copy_is_an_error(plant: Maintained) -> None:
    await archived_and_dropped(plant)
    path = next(plant.site.folder.glob(f"manifests/*/{DAY}.json"))
    data = json.loads(path.read_text())
    foreign = {**data, "installation": "00000000-0000-0000-0000-000000000000", "plant": "south"}
    path.write_text(json.dumps(foreign))
    found = await failure(plant, "SELECT count(*) FROM samples")
    assert "installation: found 00000000-0000-0000-0000-000000000000, of plant south" in found
    path.write_text(json.dumps({**data, "root": "00" * 32}))
    assert "restore the archive" in await failure(plant, "SELECT count(*) FROM samples")
    path.unlink()
    assert f"{DAY} of installation" in await failure(plant, "SELECT count(*) FROM samples")


async def test_query_beyond_its_limits_says_how_to_narrow_it(plant: Maintained) -> None:
    many = "SELECT count(DISTINCT md5(i::text)) FROM range(100000000000) AS t (i)"
    assert "took longer than 0.5 s: narrow" in await failure(plant, many, limits=Limits("1GiB", 2, 0.5))
    large = "SELECT list(md5(i::text)) FROM range(10000000) AS t (i)"
    assert "needs more than 50MiB of memory: narrow" in await failure(plant, large, limits=Limits("50MiB", 2, 120))
    assert "--memory" in await failure(plant, "SELECT 1", limits=Limits("much", 2, 120))


async def test_query_that_waits_for_the_database_is_ended_in_time(plant: Maintained) -> None:
    async with plant.owner.transaction():
        await plant.owner.execute("LOCK TABLE plant.samples_raw IN ACCESS EXCLUSIVE MODE")
        assert "took longer than 1 s" in await failure(
            plant, "SELECT count(*) FROM samples", limits=Limits("1GiB", 2, 1)
        )


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "SELECT * FROM read_csv('{folder}/plant.toml')",
        "ATTACH '{folder}/some.db'",
        "SET enable_external_access = true",
        "SET memory_limit = '100GB'",
        "INSERT INTO channel (id) VALUES (1)",
        "SELECT * FROM session",
        "SELEC 1",
    ],
)
async def test_nothing_else_is_read_or_written(plant: Maintained, tmp_path: Path, statement: str) -> None:
    before = listed(tmp_path)
    await failure(plant, statement.format(folder=tmp_path))
    assert listed(tmp_path) == before


# The command


def environment(plant: Maintained) -> dict[str, str]:
    return {**os.environ, "PLANTLOG_STATE": str(plant.site.plant.state.root), "PYTHONPATH": str(CHECKOUT)}


def run(plant: Maintained, *arguments: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "ops", "sql", *arguments]
    return subprocess.run(
        command, env=environment(plant), input=typed, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.slow
async def test_command_prints_tables_csv_and_json(plant: Maintained) -> None:
    def work() -> None:
        where = f"name = 'unit/pressure' AND time < '{DAY} 05:00:03Z'"
        query = f"SELECT name, time, value FROM samples_named WHERE {where} ORDER BY time"
        table = run(plant, query, "--limit", "2")
        assert "unit/pressure" in table.stdout
        assert table.stdout.splitlines()[-1] == "more rows (--limit 0 prints all)"
        assert run(plant, "--csv", typed=query).stdout.splitlines() == [
            "name,time,value",
            *(f"unit/pressure,{DAY}T05:00:0{i}+00:00,{40 + i / 100}" for i in range(3)),
        ]
        [first, *_] = json.loads(run(plant, query, "--json").stdout)
        assert first == {"name": "unit/pressure", "time": f"{DAY}T05:00:00+00:00", "value": 40.0}
        wrong = run(plant, "SELECT nothing FROM samples")
        assert (wrong.returncode, wrong.stdout) == (1, "")
        assert wrong.stderr.startswith("plantlog: ")
        assert "Traceback" not in wrong.stderr

    await asyncio.to_thread(work)


async def test_prompt_goes_on_after_an_error(plant: Maintained) -> None:
    def work() -> tuple[int, str]:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-P", "-m", "ops", "sql"]
        try:
            os.write(ours, b"SELECT count(*) AS n\nFROM samples;\nSELEC 1;\n\nSELECT 'the ' || 'last';\n\x04")
            done = subprocess.run(
                command, env=environment(plant), stdin=theirs, capture_output=True, text=True, check=False, timeout=120
            )
        finally:
            os.close(ours)
            os.close(theirs)
        return done.returncode, done.stdout

    code, printed = await asyncio.to_thread(work)
    assert code == 0
    assert "1160" in printed
    assert "syntax error" in printed
    assert "the last" in printed


async def test_interrupt_ends_the_query_and_not_the_prompt(plant: Maintained) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'plant.samples_raw'::regclass"

    def work(interrupt: threading.Event) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-P", "-m", "ops", "sql"]
        with subprocess.Popen(
            command, env=environment(plant), stdin=theirs, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                os.write(ours, b"SELECT count(*) FROM samples;\n")
                assert interrupt.wait(120)
                process.send_signal(signal.SIGINT)
                os.write(ours, b"SELECT 'the ' || 'last';\n\x04")
                printed, _ = process.communicate(timeout=120)
            finally:
                process.kill()
                os.close(ours)
                os.close(theirs)
        return process.returncode, printed

    interrupt = threading.Event()
    async with plant.owner.transaction():
        await plant.owner.execute("LOCK TABLE plant.samples_raw IN ACCESS EXCLUSIVE MODE")
        command = asyncio.create_task(asyncio.to_thread(work, interrupt))

        async def waits() -> bool:
            return bool(await plant.owner.fetchval(waiting))

        await until(waits)
        interrupt.set()
        code, printed = await command
    assert code == 0
    assert "interrupted" in printed
    assert "the last" in printed


async def test_session_connects_again_if_the_server_ended_it(plant: Maintained) -> None:
    main = asyncio.get_running_loop()
    end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'plantlog sql'"

    def work() -> list[Rows]:
        found = []
        with opened(plant.site.plant.state, LIMITS) as session:
            for _ in range(2):
                with session.rows("SELECT count(*) FROM samples") as (_, rows):
                    found.append(list(rows))
                asyncio.run_coroutine_threadsafe(plant.owner.fetch(end), main).result()
        return found

    assert await asyncio.to_thread(work) == [[(1160,)], [(1160,)]]


async def test_error_of_approximate_distinct_counts(plant: Maintained) -> None:
    """As docs/sql.md states it."""
    counts = range(100, 20_000, 500)
    sets = " UNION ALL ".join(f"SELECT {n}, {n} * 7919 + i FROM range({n}) AS r (i)" for n in counts)
    query = f"SELECT n, approx_count_distinct(x), count(DISTINCT x) FROM ({sets}) AS s (n, x) GROUP BY n ORDER BY n"
    found = await asked(plant, query)
    assert [exact for _, _, exact in found] == list(counts)
    error = (sum((about / n - 1) ** 2 for n, about, _ in found) / len(found)) ** 0.5
    said = re.search(r"standard\s+error of (\d+) %", (CHECKOUT / "docs" / "sql.md").read_text())
    assert said
    assert error < int(said[1]) / 100 < 2 * error


async def test_a_thread_that_still_reads_after_the_end_gets_an_error(plant: Maintained) -> None:
    def work() -> None:
        reader = Reader(plant.site.plant.state.dsn("reader"))
        reader.close()
        with pytest.raises(RuntimeError, match="closed"):
            reader.fetch("SELECT 1")
        gc.collect()  # a coroutine that was never awaited is an error here

    await asyncio.to_thread(work)


@pytest.mark.slow
async def test_temporary_files_of_a_killed_session_are_removed(
    plant: Maintained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def folders() -> set[Path]:
        return set(tmp_path.glob("plantlog-sql-*/*"))

    def begun() -> tuple[subprocess.Popen[str], Path]:
        """A session that waits for its query, and its folder."""
        before = folders()
        command = [sys.executable, "-m", "ops", "sql"]
        session = subprocess.Popen(command, cwd=CHECKOUT, env=environment(plant), stdin=subprocess.PIPE, text=True)
        (folder,) = until_sync(lambda: folders() - before)
        (folder / "spilled").write_text("samples")
        return session, folder

    def work() -> None:
        killed, left = begun()
        with killed:
            killed.kill()
        assert left in folders()
        living, kept = begun()
        with living:
            assert folders() == {kept}
            living.communicate("SELECT 1")
        assert not folders()

    await asyncio.to_thread(work)


@pytest.mark.slow
async def test_psql_says_what_is_only_in_the_archive(plant: Maintained) -> None:
    def work() -> tuple[str, str]:
        command = [sys.executable, "-P", "-m", "ops", "psql", "-Atc", "SELECT count(*) FROM samples"]
        done = subprocess.run(command, env=environment(plant), capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    assert await asyncio.to_thread(work) == ("1160\n", "")
    await archived_and_dropped(plant)
    hint = f"samples of some days up to {DAY} are only in the archive: `plantlog sql` reads both\n"
    left = f"{len(await plant.stored(NEXT))}\n"
    assert await asyncio.to_thread(work) == (left, hint)
