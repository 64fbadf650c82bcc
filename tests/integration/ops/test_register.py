"""A plant's configuration into a real database, again and again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from core.batch import Event, EventBatch
from core.config import token_file
from core.config.load import load
from core.config.model import Plant
from core.errors import OperationError
from core.paths import State
from core.registry import Registry
from history.notebook import ask
from ingest.spool.append import Spool
from ops.registration import register as registering
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import spooled_rows
from ops.registration.rename import rename_channel
from tests.database import Database, connected, rows
from tests.integration.history.questions.recording import reading
from tests.states import claimed


async def register(described: Plant, dsn: str, state: State, *same: str) -> Registry:
    return (await registering.register(described, dsn, state, decisions=TagDecisions(same))).registry


def plant(folder: Path, tags: str, more: str = "", columns: str = "") -> Plant:
    """A plant of one Modbus source with these tag rows, and sources that ``more`` describes.

    ``columns``: more than the usual ones.
    """
    folder.mkdir(exist_ok=True)
    (folder / "plant.toml").write_text(
        '[plant]\nname = "demo"\n[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:502"\n'
        f'tags = "tags.csv"\n{more}'
    )
    (folder / "tags.csv").write_text(f"name,address,type,unit,lo,hi,description,kind,bit,word_order{columns}\n{tags}")
    return load(folder / "plant.toml")


def state_in(folder: Path) -> State:
    state = claimed(folder / "state")
    return state


_CHANNELS = (
    "SELECT c.name, c.address, c.kind, c.unit, c.range_lo, c.range_hi, c.attributes FROM plant.channel c ORDER BY c.id"
)


async def test_options_that_the_database_needs_are_in_its_tables(database: Database, tmp_path: Path) -> None:
    state = state_in(tmp_path)
    settings = (
        "SELECT s.key, s.value FROM plant.setting AS s"
        " WHERE s.key IN ('compression', 'lateness', 'disk_budget')"
        " UNION ALL SELECT 'sealing', i.sealing::text FROM plant.installation AS i"
        " UNION ALL SELECT 'viewer_url', i.viewer_url FROM plant.installation AS i"
    )
    classes = (
        "SELECT c.name, c.raw::text, c.minute::text, c.hour::text, c.event::text FROM plant.retention_class AS c"
        " ORDER BY c.name"
    )
    channels = "SELECT c.name, c.retention FROM plant.channel AS c ORDER BY c.name"
    folder = tmp_path / "p"
    plant(folder, "a,holding:4,,,,,,,,\nb,holding:5,,,,,,,,\n")
    (folder / "tags.csv").write_text("name,address,retention\na,holding:4,fast\nb,holding:5,\n")
    toml = (folder / "plant.toml").read_text()
    (folder / "plant.toml").write_text(
        toml
        + '[storage]\ncompression = "packed"\nlateness = "90m"\ndisk_budget = "2 GiB"\n[sealing]\nenabled = false\n'
        '[viewer]\nurl = "https://plant.example:9110"\n'
        '[retention.fast]\nraw = "7d"\nminute = "30d"\n'
    )
    await register(load(folder / "plant.toml"), database.owner_dsn, state)
    assert dict(await rows(database, settings)) == {
        "compression": "packed",
        "lateness": "5400",
        "disk_budget": str(2 * 1024**3),
        "viewer_url": "https://plant.example:9110",
        "sealing": "false",
    }
    assert await rows(database, classes) == [
        ("default", None, None, None, None),
        ("fast", "168:00:00", "720:00:00", None, None),
    ]
    assert await rows(database, channels) == [("a", "fast"), ("b", "default")]
    (folder / "plant.toml").write_text(toml)
    (folder / "tags.csv").write_text("name,address\na,holding:4\nb,holding:5\n")
    await register(load(folder / "plant.toml"), database.owner_dsn, state)
    (folder / "plant.toml").write_text(toml + "[viewer]\nport = 9222\n")
    await register(load(folder / "plant.toml"), database.owner_dsn, state)
    assert dict(await rows(database, settings)) == {
        "lateness": "3600",
        "viewer_url": "http://127.0.0.1:9222",
        "sealing": "true",
    }
    assert await rows(database, classes) == [("default", None, None, None, None)]
    assert await rows(database, channels) == [("a", "default"), ("b", "default")]


async def test_notifications_count_from_when_they_are_enabled(database: Database, tmp_path: Path) -> None:
    state, tags, notify = state_in(tmp_path), "a,holding:4,,,,,,,,\n", '[notify]\nwebhook = "http://127.0.0.1:1/"\n'
    found = []
    for more in ("", notify, notify, "", notify):
        await register(plant(tmp_path / "p", tags, more), database.owner_dsn, state)
        [(since,)] = await rows(database, "SELECT i.notifies_from FROM plant.installation AS i")
        found.append(since)
    assert (found[0], found[3]) == (None, None)
    assert found[1] == found[2] < found[4]


async def test_configuration_is_in_the_tables(database: Database, tmp_path: Path) -> None:
    state = state_in(tmp_path)
    described = plant(
        tmp_path / "p", "b/level,holding:4,float32,mm,0,5000,tank level,,,CDAB\na/run,coil:1,bool,,,,,discrete,,\n"
    )
    registry = await register(described, database.owner_dsn, state)
    assert await rows(database, _CHANNELS) == [
        (
            "b/level",
            "holding:4",
            "analog",
            "mm",
            0.0,
            5000.0,
            '{"type": "float32", "word_order": "CDAB", "expected_interval": 1.0}',
        ),
        ("a/run", "coil:1", "discrete", "", None, None, '{"type": "bool", "expected_interval": 1.0}'),
    ]
    assert await rows(database, "SELECT name, kind, address, state, retired_at FROM plant.source") == [
        ("plc", "modbus", "tcp://127.0.0.1:502", "unknown", None)
    ]
    assert dict(await rows(database, "SELECT name, id FROM plant.channel")) == registry.channels["plc"]
    assert Registry.load(state.registry) == registry


async def test_planner_knows_how_many_channels_there_are(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """At once: autovacuum would come a minute later."""
    tags = "".join(f"c{i},holding:{i},,,,,,,,\n" for i in range(100))
    await register(plant(tmp_path, tags), database.owner_dsn, state_in(tmp_path))
    for table in ("plant.channel", "plant.channel_version"):
        assert await owner.fetchval("SELECT reltuples FROM pg_class WHERE oid = $1::text::regclass", table) == 100


async def test_ids_are_kept_and_removed_channels_retired(database: Database, tmp_path: Path) -> None:
    state = state_in(tmp_path)
    folder = tmp_path / "p"
    opcua = '[[source]]\nname = "ua"\nkind = "opcua"\naddress = "opc.tcp://h:4840"\ninsecure = true\ntags = "ua.csv"\n'
    folder.mkdir()
    (folder / "ua.csv").write_text("name,address\nc,i=1\n")
    first = await register(
        plant(folder, "a,holding:0,,,,,,,,\nb,holding:1,,,,,,,,\n", opcua), database.owner_dsn, state
    )
    second = await register(
        plant(folder, "b,holding:7,,bar,,,,,,\nd,holding:2,,,,,,,,\n"), database.owner_dsn, state, "*"
    )
    retired = "SELECT name FROM plant.{} WHERE retired_at IS NOT NULL ORDER BY name"
    assert await rows(database, retired.format("channel")) == [("a",), ("c",)]
    assert await rows(database, retired.format("source")) == [("ua",)]
    assert second.channels["plc"]["b"] == first.channels["plc"]["b"]
    assert second.channels["plc"]["d"] not in dict(first.pairs()).values()
    assert await rows(database, "SELECT address, unit FROM plant.channel WHERE name = 'b'") == [("holding:7", "bar")]
    assert "a" not in second.channels["plc"]
    third = await register(
        plant(folder, "a,holding:0,,,,,,,,\nb,holding:1,,,,,,,,\n", opcua), database.owner_dsn, state, "*"
    )
    assert (third.sources, third.channels) == (first.sources, first.channels)
    assert await rows(database, retired.format("channel")) == [("d",)]
    assert await rows(database, retired.format("source")) == []


async def test_retired_time_of_a_channel_is_not_missing(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    state, folder = state_in(tmp_path), tmp_path / "p"
    both = plant(folder, "a,holding:0,,,,,,,,\nb,holding:1,,,,,,,,\n")
    await register(both, database.owner_dsn, state)
    await register(plant(folder, "b,holding:1,,,,,,,,\n"), database.owner_dsn, state)
    await owner.execute(
        "UPDATE plant.channel SET configured_at = now() - INTERVAL '3 hours', retired_at = now() - INTERVAL '2 hours'"
        " WHERE name = 'a'"
    )
    await owner.execute(
        "INSERT INTO plant.samples_raw (time, value, channel_id, status) SELECT t, 1, c.id, 0"
        " FROM plant.channel AS c JOIN plant.channel_interval AS i ON i.channel_id = c.id"
        " CROSS JOIN generate_series(c.configured_at, c.retired_at, make_interval(secs => i.seconds)) AS t"
        " WHERE c.name = 'a'"
    )
    await register(both, database.owner_dsn, state)
    counted = await owner.fetchval("SELECT sum(missing) FROM plant.coverage WHERE name = 'a'")
    here = reading(database, tmp_path / "r")
    answer = await asyncio.to_thread(ask, "gaps_and_coverage", since="4h", channels=["a"], state=here, complete=True)
    (asked,) = answer.to_pylist()
    assert counted < 600, "since it came back; it was retired for 7200 s"
    assert asked["missing"] < 600 and asked["unrecorded_seconds"] < 600 and asked["samples"] > 3000


async def test_created_channels_return_with_their_source(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    state, folder = state_in(tmp_path), tmp_path / "p"
    push = '[[source]]\nname = "gateway"\nkind = "push"\ntoken_file = "token"\nunknown = "create"\n'
    folder.mkdir()
    token_file.write(folder / "token", "token-of-a-gateway")
    both = plant(folder, "a,holding:0,,,,,,,,\n", push)
    await register(both, database.owner_dsn, state)
    await owner.execute(
        "INSERT INTO plant.channel (name, source_id, address, kind)"
        " SELECT 'g', s.id, 'g', 'analog' FROM plant.source AS s WHERE s.name = 'gateway'"
    )
    await register(plant(folder, "a,holding:0,,,,,,,,\n"), database.owner_dsn, state)
    await owner.execute("UPDATE plant.source SET retired_at = now() - INTERVAL '2 hours' WHERE name = 'gateway'")
    await register(both, database.owner_dsn, state)
    away = "SELECT c.name, upper(c.retirements) - lower(c.retirements) >= '2 hours' FROM plant.channel AS c ORDER BY 1"
    assert await rows(database, away) == [("a", None), ("g", True)]
    assert await rows(database, "SELECT e.text FROM plant.event AS e WHERE e.type = 'channel_changed'") == []


async def test_a_channel_that_moves_to_another_source_keeps_its_id(database: Database, tmp_path: Path) -> None:
    state = state_in(tmp_path)
    folder = tmp_path / "p"
    other = '[[source]]\nname = "other"\nkind = "modbus"\naddress = "tcp://127.0.0.1:503"\ntags = "other.csv"\n'
    first = await register(plant(folder, "a,holding:0,,,,,,,,\n"), database.owner_dsn, state)
    (folder / "other.csv").write_text("name,address\na,holding:0\n")
    second = await register(plant(folder, "b,holding:0,,,,,,,,\n", other), database.owner_dsn, state, "a")
    assert second.channels["other"]["a"] == first.channels["plc"]["a"]
    [(source,)] = await rows(database, "SELECT source_id FROM plant.channel WHERE name = 'a'")
    assert source == second.sources["other"]


async def test_unchanged_configuration_writes_nothing(database: Database, tmp_path: Path) -> None:
    state = state_in(tmp_path)
    same = plant(tmp_path / "p", "a,holding:0,,,,,,,,\nb,holding:1,,,,,,,,\n")
    await register(same, database.owner_dsn, state)
    versions = "SELECT xmin::text FROM plant.channel UNION ALL SELECT xmin::text FROM plant.source"
    before = await rows(database, versions)
    await register(same, database.owner_dsn, state)
    assert await rows(database, versions) == before


async def test_channels_created_by_push_are_left_alone(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    state = state_in(tmp_path)
    described = plant(tmp_path / "p", "a,holding:0,,,,,,,,\n")
    await register(described, database.owner_dsn, state)
    await owner.execute("INSERT INTO plant.source (name, kind, address) VALUES ('gateway', 'push', '')")
    await owner.execute(
        "INSERT INTO plant.channel (name, source_id, address, kind) SELECT 'g/x', id, 'g/x', 'analog' FROM plant.source"
        " WHERE name = 'gateway'"
    )
    await register(described, database.owner_dsn, state)
    assert await rows(database, "SELECT name FROM plant.source WHERE retired_at IS NOT NULL") == [("gateway",)]
    assert await rows(database, "SELECT name FROM plant.channel WHERE retired_at IS NOT NULL") == []


async def test_spool_of_another_database_is_refused(database: Database, tmp_path: Path) -> None:
    described = plant(tmp_path / "p", "a,holding:0,,,,,,,,\n")
    registry = await register(described, database.owner_dsn, state_in(tmp_path / "other"))
    state = state_in(tmp_path)
    elsewhere = Registry(registry.sources, {"plc": {"a": registry.channels["plc"]["a"] + 1000}})
    elsewhere.save(state.registry)
    spool = Spool(state.spool / "modbus.sqlite", 1024**2)
    await spool.append(EventBatch(registry.sources["plc"], 1, (Event("restart", 1),)))
    await spool.close()
    assert spooled_rows(state.spool) == (1, ())
    with pytest.raises(OperationError, match=r"contains 1 row of another database \(there a has id"):
        await registering.register(described, database.owner_dsn, state, take_over="demo")
    spool.path.write_bytes(b"what it holds is not known" * 1000)
    assert spooled_rows(state.spool) == (0, ("modbus.sqlite",))
    with pytest.raises(OperationError, match=r"contains modbus\.sqlite of another database"):
        await registering.register(described, database.owner_dsn, state, take_over="demo")
    assert Registry.load(state.registry) == elsewhere
    (state.spool / "modbus.sqlite").unlink()
    assert (await registering.register(described, database.owner_dsn, state, take_over="demo")).registry == registry


async def test_registration_of_twenty_thousand_channels(database: Database, tmp_path: Path) -> None:
    state = state_in(tmp_path)
    tags = "".join(f"load/c{n},holding:{n},,,,,,,,\n" for n in range(20_000))
    registry = await register(plant(tmp_path / "p", tags), database.owner_dsn, state)
    assert len(set(registry.channels["plc"].values())) == 20_000


async def test_attribute_can_have_a_generated_column(database: Database, tmp_path: Path) -> None:
    """As docs/contributing.md adds one: registration, versions and renaming need not know it."""
    async with connected(database.owner_dsn) as owner:
        await owner.execute(
            "ALTER TABLE plant.channel ADD COLUMN word_order text"
            " GENERATED ALWAYS AS (coalesce(attributes ->> 'word_order', '')) STORED"
        )
    state, folder, dsn = state_in(tmp_path), tmp_path / "p", database.owner_dsn
    await register(plant(folder, "a,holding:0,int32,,,,,,,CDAB\nb,holding:2,,,,,,,,\n"), dsn, state)
    await register(plant(folder, "a,holding:0,int32,,,,,,,BADC\nb,holding:2,,,,,,,,\n"), dsn, state, "a")
    await rename_channel(dsn, state, "a", "c")
    assert await rows(database, "SELECT name, word_order FROM plant.channel ORDER BY id") == [("c", "BADC"), ("b", "")]
    versions = "SELECT v.attributes ->> 'word_order' FROM plant.channel_version AS v WHERE v.name = 'a' ORDER BY 1 DESC"
    assert await rows(database, versions) == [("CDAB",), ("BADC",)]
