"""``plantlog source import-history``: files of other systems, with a real database."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.config import token_file
from core.config.load import load
from core.errors import OperationError
from core.paths import State
from core.registry import Registry
from core.timestamps import microseconds
from history.exports.export import export
from history.seals.report import Report
from history.seals.seal import seal_days
from history.seals.verify import verify
from ops.maintenance.packing import compress_before
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import register
from tests.command import plantlog
from tests.config_in_force import activate
from tests.database import Database, add_channels, add_sources, connected, rename_channels
from tests.states import claimed
from tests.waiting import until

_PLANT = """
[plant]
name = "mill"
[[source]]
name = "edge"
kind = "push"
token_file = "t"
unknown = "create"
"""
LONG = (
    "Tag,Timestamp,Value,Quality\n"
    "mill/c2,2026-03-10T10:00:00Z,1.5,Good\n"
    "mill/c2,2026-03-10T10:00:01Z,-0.0,Good\n"
    "old tag,2026-03-10T11:00:00.000001+01:00,7,Uncertain\n"
    "old tag,2026-03-10T11:00:01+01:00,,Bad\n"
)
ALL = """
SELECT c.name, s.time, s.value, s.status, o.name
FROM plant.channel AS c
JOIN plant.source AS o ON o.id = c.source_id
CROSS JOIN LATERAL plant.samples_between(ARRAY[c.id], '2020-01-01', '2030-01-01') AS s
ORDER BY c.name, s.time
"""


def at(hour: int, second: int = 0, us: int = 0) -> datetime:
    return datetime(2026, 3, 10, hour, 0, second, us, tzinfo=UTC)


STORED = [
    ("mill/c2", at(10), 1.5, 0, "edge"),
    ("mill/c2", at(10, 1), -0.0, 0, "edge"),
    ("old%20tag", at(10, 0, 1), 7.0, 0x40000000, "import"),
    ("old%20tag", at(10, 1), 0.0, -0x80000000, "import"),
]


@dataclass(frozen=True)
class Site:
    """A state folder as ``plantlog up`` leaves it, with a channel mill/c2."""

    state: State
    owner: asyncpg.Connection[Any]
    folder: Path

    def file(self, text: str, name: str = "history.csv") -> Path:
        path = self.folder / name
        path.write_bytes(text.encode())
        return path

    async def load(self, *words: object, code: int = 0) -> str:
        result = await plantlog(self.state.root, "source", "import-history", *words)
        assert result.code == code, result.err
        return result.err

    async def stored(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.owner.fetch(ALL)]

    async def imports(self) -> list[tuple[Any, ...]]:
        query = """
        SELECT e.detail ->> 'outcome', (e.detail ->> 'new')::int, (e.detail ->> 'known')::int,
               (e.detail ->> 'conflicts')::int
        FROM plant.event AS e WHERE e.type = 'import' ORDER BY e.time
        """
        return [tuple(row) for row in await self.owner.fetch(query)]


@pytest.fixture
async def site(database: Database, owner: asyncpg.Connection[Any], tmp_path: Path) -> Site:
    await add_sources(owner, "edge")
    await add_channels(owner, [2], "mill/c{}")
    state = claimed(tmp_path / "state", **database.dsns("owner", "ingest", "reader"))
    config = tmp_path / "plant.toml"
    config.write_text(_PLANT)
    token_file.write(tmp_path / "t", "token-of-edge-gateway")
    activate(state.root, config)
    Registry({"edge": 1}, {"edge": {"mill/c2": 2}}, last_ids=(1, 2)).save(state.registry)
    await owner.execute("SELECT plant.advance_ids(1, 2)")
    return Site(state, owner, tmp_path)


async def test_names_and_equal_times_as_the_user_says(site: Site) -> None:
    file = site.file("time,PI 7,FI-3\n2026-03-10 10:00:00Z,1,2\n2026-03-10 10:00:00Z,3,\n20260310T100001Z,4,5\n")
    names = site.file("PI 7,mill/c2\n", "names.csv")
    refused = await site.load(file, "--yes", code=1)
    assert "history.csv:3: value: found '3'; legal: the value of line 2, 1: PI%207 has one value at" in refused
    options = ("--prefix", "north/", "--rename", names, "--duplicates", "last", "--yes")
    unused = site.file("PI 7,mill/c2\nPI 8,mill/c3\n", "unused.csv")
    refused = await site.load(file, *options[:3], unused, *options[4:], code=1)
    assert "unused.csv:2: name: found 'PI 8'; legal: a name that the imported files have" in refused
    assert "--duplicates 'both': legal are" in await site.load(file, "--duplicates", "both", code=1)
    points = site.file("m f=1 1773136800000000000\n", "points.lp")
    assert "points.lp is line protocol; legal: --channel" in await site.load(points, "--prefix", "north/", code=1)
    assert await site.stored() == []
    shown = await site.load(file, *options)
    assert "the last of equal channel and time stays: 1 left out" in shown
    assert "PI 7 = mill/c2" in shown
    assert "4 samples stored, 0 already there" in shown
    stored = [
        ("mill/c2", at(10), 3.0, 0, "edge"),
        ("mill/c2", at(10, 1), 4.0, 0, "edge"),
        ("north/FI-3", at(10), 2.0, 0, "import"),
        ("north/FI-3", at(10, 1), 5.0, 0, "import"),
    ]
    assert await site.stored() == stored
    assert "0 samples stored, 4 already there" in await site.load(file, *options)
    first = await site.load(file, *options[:5], "first", "--yes")
    assert "0 samples stored, 3 already there, 1 refused because another value is there" in first
    assert await site.stored() == stored


async def test_shows_what_it_will_do_and_stores_each_sample_once(site: Site) -> None:
    file = site.file(LONG)
    shown = await site.load(file, code=3)
    assert "there is no terminal to ask for confirmation; use --yes" in shown
    assert "column 'Timestamp': year-month-day, with an offset from UTC" in shown
    assert "line 2: mill/c2 = 1.5 at 2026-03-10T10:00:00+00:00, status 0x00000000" in shown
    assert "creates 1 channel of source import: old%20tag" in shown
    assert "adds to 1 channel of source edge: mill/c2" in shown
    assert await site.stored() == []
    assert "4 samples stored, 0 already there" in await site.load(file, "--yes")
    assert [str(row) for row in await site.stored()] == [str(row) for row in STORED]  # -0.0
    assert "0 samples stored, 4 already there" in await site.load(file, "--yes")
    assert await site.stored() == STORED
    assert await site.imports() == [
        ("begun", None, None, None),
        ("done", 4, 0, 0),
        ("begun", None, None, None),
        ("done", 0, 4, 0),
    ]
    # Another file with the same samples, and a different one
    more = site.file(LONG.replace(",7,", ",8,") + "mill/c2,2026-03-10T12:00:00Z,3,Good\n", "more.csv")
    assert "1 sample stored, 3 already there, 1 refused because" in await site.load(more, "--yes")
    assert await site.stored() == sorted([*STORED, ("mill/c2", at(12), 3.0, 0, "edge")])


@pytest.mark.parametrize("case", ["exchanged", "given anew"])
async def test_samples_go_to_the_channel_that_had_the_name_at_their_time(site: Site, case: str) -> None:
    """``given anew``: to a channel that was made later."""
    if case == "exchanged":
        await add_channels(site.owner, [3], "mill/c{}")
        await rename_channels(site.owner, at(12), {2: "mill/c3", 3: "mill/c2"})
    else:
        await rename_channels(site.owner, at(12), {2: "mill/c3"})
        await add_channels(site.owner, [3], "mill/c2")
    header, line = "tag,time,value\n", "mill/c2,2026-03-10T{}:00:00Z,1\n"
    before, since = site.file(header + line.format(11), "before.csv"), site.file(header + line.format(12), "since.csv")
    assert "adds to 1 channel of source edge: mill/c2 (now mill/c3)" in await site.load(before, "--yes")
    assert "adds to 1 channel of source edge: mill/c2\n" in await site.load(since, "--yes")
    assert [row[:2] for row in await site.stored()] == [("mill/c2", at(12)), ("mill/c3", at(11))]
    both = site.file(header + line.format(11) + line.format(12), "both.csv")
    legal = "samples of one channel: until 2026-03-10T12:00:00+00:00, it was the name of what is mill/c3 now"
    assert f"both.csv:2: channel: found 'mill/c2'; legal: {legal}" in await site.load(both, "--yes", code=1)


async def test_former_and_present_name_with_samples_of_one_time_are_refused(site: Site) -> None:
    await rename_channels(site.owner, at(12), {2: "mill/c3"})
    lines = ["mill/c2,2026-03-10T11:00:00Z,1", "mill/c3,2026-03-10T11:00:00Z,2", "mill/c3,2026-03-10T12:00:00Z,3"]
    header = "tag,time,value\n"
    twice = site.file(header + "\n".join(lines) + "\n", "twice.csv")
    legal = "another name than mill/c2, which is a name of the same channel"
    assert f"twice.csv:3: channel: found 'mill/c3'; legal: {legal}" in await site.load(twice, "--yes", code=1)
    once = site.file(header + f"{lines[0]}\n{lines[2]}\n", "once.csv")
    assert "2 samples stored" in await site.load(once, "--yes")
    assert [row[:3] for row in await site.stored()] == [("mill/c3", at(11), 1.0), ("mill/c3", at(12), 3.0)]


async def test_kind_of_new_channels_is_said_or_else_asked_for(site: Site) -> None:
    lines = [f"2026-03-10T10:00:{i:02}Z,{100 + i},{i // 20},{i},{i % 7}.5" for i in range(60)]
    file = site.file("time,energy,valve,mill/c2,flow\n" + "\n".join(lines) + "\n")
    counter = "analog, though the values never fall, as those of a counter: energy; --kind NAME=counter says so"
    state = "analog, though the values are few whole ones, as states: valve; --kind NAME=discrete says so"
    shown = (await site.load(file, code=3)).splitlines()
    assert [line.strip() for line in shown if "analog" in line] == [counter, state]
    shown = (await site.load(file, "--kind", "ene*=counter", code=3)).splitlines()
    assert [line.strip() for line in shown if "analog" in line or "--kind" in line] == [
        "counter, as --kind says: energy",
        state,
    ]
    refused = await site.load(file, "--kind", "energie=counter", code=1)
    assert "--kind: no channel matches energie" in refused
    refused = await site.load(file, "--kind", "mill/*=counter", code=1)
    assert "--kind: mill/c2 is analog already; legal: channels that are created" in refused
    refused = await site.load(file, "--kind", "energy=total", code=1)
    assert "legal: NAME=KIND, where KIND is analog, counter, discrete" in refused
    for _ in range(2):  # again, as after one that was killed
        stored = await site.load(file, "--kind", "energy=counter", "--yes")
        is_new = "240 samples stored" in stored
        assert (f"{file}: created as {state}" in stored) == is_new
    kinds = await site.owner.fetch("SELECT c.name, c.kind FROM plant.channel AS c ORDER BY c.name")
    assert [tuple(row) for row in kinds] == [
        ("energy", "counter"),
        ("flow", "analog"),
        ("mill/c2", "analog"),
        ("valve", "analog"),
    ]


async def test_rollups_of_imported_days_are_refreshed(site: Site) -> None:
    await site.load(site.file(LONG), "--yes")
    await site.owner.execute("CALL plant.refresh_rollups()")
    rows = await site.owner.fetch("SELECT bucket, n, max FROM plant.samples_1m WHERE channel_id = 2 AND n > 0")
    assert [tuple(row) for row in rows] == [(at(10), 2, 1.5)]


async def test_samples_in_packed_hours_are_counted_as_there(site: Site) -> None:
    await site.load(site.file(LONG), "--yes")
    await compress_before(site.owner, datetime(2026, 3, 12, tzinfo=UTC))
    again = await site.load(site.file(LONG.replace("\nmill", "\n\nmill"), "again.csv"), "--yes")
    assert "0 samples stored, 4 already there" in again
    assert await site.stored() == STORED


async def test_another_value_than_in_a_packed_hour_is_a_conflict(site: Site) -> None:
    await site.load(site.file(LONG), "--yes")
    await compress_before(site.owner, datetime(2026, 3, 12, tzinfo=UTC))
    different = site.file(LONG.replace(",1.5,", ",2.5,"), "different.csv")
    assert "0 samples stored, 3 already there, 1 refused because" in await site.load(different, "--yes")
    assert await site.stored() == STORED
    await compress_before(site.owner, datetime(2026, 3, 12, tzinfo=UTC))
    assert await site.stored() == STORED
    assert await site.owner.fetchval("SELECT count(*) FROM plant.event WHERE type = 'conflict'") == 1


async def test_packed_hours_without_samples_of_the_file_are_not_read(site: Site) -> None:
    """There may be years of them between two samples of a file. One that can't be unpacked stands for them."""
    lines = [f"mill/c2,{(at(0) + timedelta(hours=i)).isoformat()},{i}\n" for i in range(250)]
    header = "tag,time,value\n"
    assert "249 samples stored" in await site.load(site.file(header + "".join(lines[:100] + lines[101:])), "--yes")
    await compress_before(site.owner, datetime(2026, 3, 22, tzinfo=UTC))
    await site.owner.execute(
        "INSERT INTO plant.samples_packed (hour, start, step, base, divisor, channel_id, n, unit, status, single)"
        " VALUES ($1, $1, 1, 0, 0, 2, 1, 1, 0, false)",
        at(0) + timedelta(hours=100),
    )
    more = lines[:100] + lines[101:249] + [lines[249].replace(",249", ",250"), lines[249].replace(":00:00", ":00:01")]
    again = site.file(header + "".join(reversed(more)), "again.csv")
    assert "1 sample stored, 248 already there, 1 refused because" in await site.load(again, "--yes")


async def test_line_protocol(site: Site) -> None:
    file = site.file("mill,unit=a c2=1.5,on=true 1773136800000000000\n", "points.lp")
    assert "2 samples stored" in await site.load(file, "--channel", "{measurement}/{field}", "--yes")
    assert await site.stored() == [("mill/c2", at(10), 1.5, 0, "edge"), ("mill/on", at(10), 1.0, 0, "import")]


@pytest.mark.parametrize("form", ["csv", "lines"])
async def test_rounded_integers_are_shown_and_recorded(site: Site, form: str) -> None:
    csv = "Tag,Timestamp,Value\nmill/c2,2026-03-10T10:00:00Z,9007199254740993\nother,2026-03-10T10:00:00Z,1\n"
    lines = "x c2=9007199254740993i,other=1i 1773136800000000000\n"
    options = ["--channel", "mill/{field}"] if form == "lines" else []
    shown = await site.load(site.file(csv if form == "csv" else lines), "--yes", *options)
    assert "rounds integers beyond 2^53 of 1 channel: mill/c2" in shown
    events = await site.owner.fetch(
        "SELECT c.name, s.name AS source, e.detail ->> 'reason' AS reason FROM plant.event AS e"
        " JOIN plant.channel AS c ON c.id = e.channel_id JOIN plant.source AS s ON s.id = e.source_id"
        " WHERE e.type = 'rounded'"
    )
    assert [(row["name"], row["source"]) for row in events] == [("mill/c2", "edge")]
    assert "beyond 2^53" in events[0]["reason"]


async def test_export_of_another_database_is_imported_to_the_bit(site: Site) -> None:
    await site.load(site.file(LONG), "--yes")
    await site.owner.execute(
        "INSERT INTO plant.samples_raw (channel_id, time, value, status) VALUES (2, $1, $2, 0)",
        at(12),
        np.uint64(0x7FF8000000000ABC).view(np.float64).item(),  # not a number, with a payload
    )
    await seal_days(site.state.dsn("owner"), site.state, datetime(2026, 3, 11, tzinfo=UTC))
    file = site.folder / "day.parquet"
    await export(site.state.dsn("reader"), site.state, date(2026, 3, 10), file, (), with_verifier=False)
    before = [np.float64(row[2]).tobytes() for row in await site.stored()]
    assert "0 samples stored, 5 already there" in await site.load(file, "--yes")
    await site.owner.execute("TRUNCATE plant.samples_raw, plant.samples_packed, plant.ingest_batch")
    assert "5 samples stored" in await site.load(file, "--yes")
    assert [np.float64(row[2]).tobytes() for row in await site.stored()] == before


async def test_deleted_samples_are_imported_again(site: Site) -> None:
    file = site.file(LONG)
    await site.load(file, "--yes")
    await site.owner.execute("SELECT plant.delete_samples(ARRAY[2], '2026-03-10', '2026-03-11', 'a test')")
    assert len(await site.stored()) == 2
    assert "2 samples stored, 2 already there" in await site.load(file, "--yes")
    assert await site.stored() == STORED


async def test_wide_file_with_local_times_and_decimal_commas(site: Site) -> None:
    file = site.file("Zeit;leer;mill/c2;Druck\n10.03.2026 11:00:00;;1,5;\n10.03.2026 11:00:01,25;;;-2\n")
    zone = ("--column", "Zeit=time", "--time-zone", "Europe/Berlin")
    output = await site.load(file, *zone, "--yes")
    assert "creates 1 channel of source import: Druck" in output
    assert "2 samples stored" in output
    assert not await site.owner.fetchval("SELECT count(*) FROM plant.channel WHERE name = 'leer'")
    assert await site.stored() == [
        ("Druck", at(10, 1, 250_000), -2.0, 0, "import"),
        ("mill/c2", at(10), 1.5, 0, "edge"),
    ]


async def test_file_with_an_error_stores_nothing(site: Site) -> None:
    good = site.file(LONG, "good.csv")
    bad = site.file(LONG + "mill/c2,2026-03-10T10:00:02Z,ten,Good\n", "bad.csv")
    output = await site.load(good, bad, "--yes", code=1)
    assert f"{bad}:6: Value: found 'ten'; legal: a number with the decimal separator '.'" in output
    assert await site.stored() == []
    assert await site.imports() == []


async def test_samples_that_retention_would_drop_are_refused(site: Site) -> None:
    await site.owner.execute("UPDATE plant.retention_class SET raw = '1 day' WHERE name = 'default'")
    output = await site.load(site.file(LONG), "--yes", code=1)
    assert "history.csv:2: time: found '2026-03-10T10:00:00+00:00'; legal: times from 20" in output
    assert await site.stored() == []


async def test_samples_of_an_archived_day_are_refused_if_nothing_is_archived_any_more(site: Site) -> None:
    await register(load(site.folder / "plant.toml"), site.state.dsn("owner"), site.state)
    await site.load(site.file(LONG), "--yes")
    await site.owner.execute("UPDATE plant.retention_class SET raw = '1 day' WHERE name LIKE '%default'")
    await site.owner.execute(
        "INSERT INTO plant.archived_day (day, installation, revision, root, location, samples, bytes, dropped_at)"
        " SELECT '2026-03-10', i.number, 0, '', '', 0, 0, now() FROM plant.installation AS i"
    )
    output = await site.load(site.file(LONG), "--yes", code=1)
    assert "history.csv:2: time: found '2026-03-10T10:00:00+00:00'; legal: times from 20" in output
    assert "or of archived days while days are archived" in output


async def test_up_keeps_imported_channels(site: Site) -> None:
    """As history of the configuration's own installation; a tag of that name has to be the same quantity."""
    config, dsn = site.folder / "plant.toml", site.state.dsn("owner")
    await register(load(config), dsn, site.state)
    file = site.file(LONG.replace("mill/c2", "mill/c3"))
    assert "creates 2 channels of source import: mill/c3, old%20tag" in await site.load(file, "--yes")
    await register(load(config), dsn, site.state)
    rows = await site.owner.fetch("SELECT name FROM plant.channel WHERE retired_at IS NULL ORDER BY name")
    assert [row["name"] for row in rows] == ["mill/c3", "old%20tag"]
    tags = site.folder / "plc.csv"
    tags.write_text("name,address\nmill/c3,holding:1\n")
    config.write_text(
        f"{_PLANT}[[source]]\nname = 'plc'\nkind = 'modbus'\naddress = 'tcp://127.0.0.1:502'\ntags = 'plc.csv'\n"
    )
    with pytest.raises(OperationError, match="mill/c3: address mill/c3 → holding:1, source import → plc"):
        await register(load(config), dsn, site.state)
    registration = await register(load(config), dsn, site.state, decisions=TagDecisions(["mill/c3"], ()))
    number = registration.registry.channels["plc"]["mill/c3"]
    assert await site.owner.fetchval("SELECT count(*) FROM plant.samples WHERE channel_id = $1", number) == 2
    assert "0 samples stored, 4 already there" in await site.load(file, "--yes")


def parquet(site: Site, hours: int, channels: int) -> Path:
    """A sample a second of each channel, from the beginning of a day."""
    n = hours * 3600
    seconds, channel = np.divmod(np.arange(n * channels), channels)
    columns = {
        "tag": pa.DictionaryArray.from_arrays(pa.array(channel, pa.int32()), [f"mill/p{i}" for i in range(channels)]),
        "time": pa.array(seconds * 1_000_000 + microseconds(at(0)), pa.timestamp("us", "UTC")),
        "value": pa.array(channel + seconds / 10),
    }
    file = site.folder / f"{hours}.parquet"
    pq.write_table(pa.table(columns), file)
    return file


async def test_whole_hours_of_closed_days_are_packed_at_once(site: Site) -> None:

    async def forms() -> list[int]:
        queries = ("SELECT count(*) FROM plant.samples_raw", "SELECT sum(n) FROM plant.samples_packed")
        return [await site.owner.fetchval(query) for query in queries]

    await site.load(parquet(site, 2, 3), "--yes")
    assert await forms() == [0, 2 * 3600 * 3]
    assert await site.owner.fetchval("SELECT until FROM plant.packed_until") == at(2)
    again = (
        "SELECT count(*) FROM plant.samples AS s JOIN plant.channel AS c ON c.id = s.channel_id WHERE s.value = c.id"
    )
    assert await site.owner.fetchval(again) < 3 * 3600
    later = "\n".join(f"mill/p{i},{time.isoformat()},1" for i in range(2) for time in (at(3), at(1, 59, 7), at(5)))
    await site.owner.execute(
        "INSERT INTO plant.samples_raw (channel_id, time, value, status) "
        "SELECT id, '2026-03-10 03:30Z', 1, 0 FROM plant.channel WHERE name = 'mill/p0'"
    )
    output = await site.load(site.file(f"tag,time,value\n{later}\n", "later.csv"), "--yes")
    assert "6 samples stored" in output
    # A row of an hour that is packed, or has rows, is packed by maintenance.
    assert await forms() == [1 + 2 + 1, 2 * 3600 * 3 + 3]
    before = await site.stored()
    await compress_before(site.owner, datetime(2026, 3, 12, tzinfo=UTC))
    assert await forms() == [0, 2 * 3600 * 3 + 7]
    assert await site.stored() == before


async def test_open_day_is_stored_as_rows(site: Site) -> None:
    now = datetime.now(UTC) - timedelta(minutes=5)
    await site.load(site.file(f"tag,time,value\nmill/c2,{now.isoformat()},1\n"), "--yes")
    assert await site.owner.fetchval("SELECT count(*) FROM plant.samples_raw") == 1


async def test_hours_are_stored_as_rows_while_another_session_packs(site: Site) -> None:
    async with connected(site.state.dsn("owner")) as other, other.transaction():
        await other.execute("SELECT pg_advisory_xact_lock(7361023400153)")
        await site.load(site.file("".join(LONG.splitlines(keepends=True)[:3])), "--yes")
    assert await site.owner.fetchval("SELECT count(*) FROM plant.samples_raw") == 2
    await compress_before(site.owner, datetime(2026, 3, 12, tzinfo=UTC))
    assert await site.stored() == STORED[:2]


@pytest.mark.slow
async def test_killed_import_continues(site: Site) -> None:
    channels, hours = 100, 6  # of which five are stored in the first transaction
    n = channels * hours * 3600
    file = parquet(site, hours, channels)
    await site.load(site.file("tag,time,value\nmill/p7,2026-03-10T20:00:00Z,1\n"), "--yes")

    async def some() -> bool:
        return bool(await site.owner.fetchval("SELECT count(*) FROM plant.ingest_batch WHERE rows > 1"))

    async with connected(site.state.dsn("owner")) as other:  # the last transaction waits for it
        transaction = other.transaction()
        await transaction.start()
        await other.execute(
            "INSERT INTO plant.samples_packed (hour, start, step, base, divisor, channel_id, n, unit, status, single) "
            "SELECT $1, $1, 1, 0, 1, id, 1, 1, 0, false FROM plant.channel WHERE name = 'mill/p7'",
            at(hours - 1),
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ops", "source", "import-history", str(file), "--yes"),
            env={**os.environ, "PLANTLOG_STATE": str(site.state.root)},
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await until(some)
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        await transaction.rollback()
    stored = await site.owner.fetchval("SELECT sum(n) FROM plant.samples_packed WHERE hour < $1", at(20))
    assert 0 < stored < n
    output = await site.load(file, "--yes")
    assert f"{n - stored:,} samples stored, {stored:,} already there" in output
    assert await site.owner.fetchval("SELECT sum(n) FROM plant.samples_packed WHERE hour < $1", at(20)) == n
    assert [event[0] for event in await site.imports()] == ["begun", "done", "begun", "begun", "done"]


async def test_imported_days_are_explained(site: Site) -> None:
    await site.load(site.file(LONG), "--yes")
    dsn, end = site.state.dsn("owner"), datetime(2026, 3, 11, tzinfo=UTC)

    async def report() -> Report:
        [of_chain] = await verify(dsn, site.state, None, None, ())
        return of_chain

    await seal_days(dsn, site.state, end)
    assert (await report()).ok
    await site.load(site.file(LONG.replace("T10:", "T15:").replace("T11:", "T16:"), "late.csv"), "--yes")
    late = await report()
    assert late.ok
    findings = [finding for day in late.days for finding in day.findings]
    assert findings
    assert all("imported from late.csv" in finding.explained for finding in findings)
    await seal_days(dsn, site.state, end)
    amended = await report()
    assert amended.ok
    assert not [finding for day in amended.days for finding in day.findings]
