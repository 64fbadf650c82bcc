"""``up`` with a database that is older than the state folder: its ids are put back, and none is given twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.config import snapshot, token_file
from core.config.model import Plant
from core.errors import OperationError
from core.paths import State
from core.registry import Registry
from ops.registration import register as registering
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import Registration
from ops.registration.rename import rename_channel
from tests.database import Database, backup_of, connected, rows
from tests.integration.ops.test_register import plant, state_in

_FIRST = "a,holding:0,,mm,,,,,,\nb,holding:1,,,,,,,,\n"
_GATEWAY = '[[source]]\nname = "edge"\nkind = "push"\ntoken_file = "token"\nunknown = "create"\n'
_CHANNELS = "SELECT c.name, c.id FROM plant.channel AS c"
_CREATED = "INSERT INTO plant.channel (name, source_id, address, kind) VALUES ($1, $2, $1, $3)"


async def up(described: Plant, database: Database, state: State, **decisions: Any) -> Registration:
    """Register as ``up`` does, with the snapshot."""
    done = await registering.register(described, database.owner_dsn, state, decisions=TagDecisions(**decisions))
    snapshot.save(state.root, Path("plant.toml"), {}, described, done.versions)
    return done


def notes(done: Registration) -> list[str]:
    lines: list[str] = []
    done.print_changes(lines.append)
    return lines


async def test_ids_given_since_the_backup_are_put_back(database: Database, tmp_path: Path) -> None:
    state, folder = state_in(tmp_path), tmp_path / "p"
    await up(plant(folder, _FIRST), database, state)
    async with backup_of(database) as backup:
        token_file.write(folder / "token", "token-of-edge-gateway")
        tags = f"{_FIRST}c,holding:2,float32,bar,0,9,third,,,CDAB\nd,holding:5,,,,,,,,\n"
        await up(plant(folder, f"{tags}gone,holding:8,,,,,,,,\n", _GATEWAY), database, state)
        async with connected(database.owner_dsn) as owner:
            edge = await owner.fetchval("SELECT s.id FROM plant.source AS s WHERE s.name = 'edge'")
            await owner.execute(_CREATED, "made", edge, "analog")
            await owner.execute(_CREATED, "notes", edge, "text")
        before = (await up(plant(folder, tags, _GATEWAY), database, state)).registry  # the gateway's are known now
        columns = (
            "SELECT c.id, c.name, c.source_id, c.address, c.kind, c.unit, c.range_lo, c.range_hi, c.description,"
            " c.attributes, v.version, v.valid_from FROM plant.channel AS c"
            " JOIN plant.channel_version AS v ON v.channel_id = c.id WHERE c.retired_at IS NULL ORDER BY 1, v.version"
        )
        had = await rows(database, columns)
        since = next(snapshot.history(state.root)).since
        done = await up(plant(folder, f"{tags}e,holding:7,,,,,,,,\n", _GATEWAY), backup, state)
        new = done.registry.channels["plc"]
        assert {name: new[name] for name in "abcd"} == before.channels["plc"]
        assert (done.registry.sources, done.registry.created) == (before.sources, before.created)
        assert new["e"] > before.last_ids[1] >= max(row[1] for row in await rows(database, _CHANNELS))
        assert [row for row in await rows(backup, columns) if row[1] != "e"] == had
        assert notes(done) == [
            "the database is older than this state folder: 1 source (edge) put back; "
            "4 channels (c, d, made …) put back; ids given since the backup are not given again",
            "source plc: 1 channel added (e)",
        ]
        [(configured_at,)] = await rows(
            backup, "SELECT extract(epoch FROM c.configured_at)::float8 FROM plant.channel AS c WHERE c.name = 'c'"
        )
        assert configured_at < since / 1e6, "since the first configuration that has it"
        assert notes(await up(plant(folder, f"{tags}e,holding:7,,,,,,,,\n", _GATEWAY), backup, state)) == []


async def test_channels_that_the_next_configuration_lacks_are_put_back_and_retired(
    database: Database, tmp_path: Path
) -> None:
    """Their samples may still be in a spool."""
    state, folder = state_in(tmp_path), tmp_path / "p"
    await up(plant(folder, _FIRST), database, state)
    async with backup_of(database) as backup:
        before = (await up(plant(folder, f"{_FIRST}c,holding:2,,,,,,,,\n"), database, state)).registry
        await up(plant(folder, _FIRST), backup, state)
        assert await rows(backup, f"{_CHANNELS} WHERE c.retired_at IS NOT NULL") == [("c", before.channels["plc"]["c"])]


async def test_an_empty_database_gets_the_same_ids(database: Database, tmp_path: Path) -> None:
    state, described = state_in(tmp_path), plant(tmp_path / "p", _FIRST)
    async with backup_of(database) as empty:
        await up(plant(tmp_path / "p", "z,holding:9,,,,,,,,\n"), database, state)
        before = (await up(described, database, state)).registry
        assert min(before.channels["plc"].values()) == 2
        assert (await up(described, empty, state)).registry == before


async def test_names_given_since_the_backup_are_put_back(database: Database, tmp_path: Path) -> None:
    """By ``rename`` and by --new-channel."""
    state, folder = state_in(tmp_path), tmp_path / "p"
    await up(plant(folder, _FIRST), database, state)
    async with backup_of(database) as backup:
        await rename_channel(database.owner_dsn, state, "a", "renamed")
        described = plant(folder, "renamed,holding:0,,mm,,,,,,\nb,holding:7,,,,,,,,\n")
        before = (await up(described, database, state, new_channel=["b"])).registry
        done = await up(described, backup, state)
        assert done.registry == before
        assert notes(done)[0] == (
            "the database is older than this state folder: 1 channel (b) put back; 1 channel (renamed) renamed again; "
            "ids given since the backup are not given again"
        )
        retired = await rows(backup, "SELECT c.id, c.address FROM plant.channel AS c WHERE c.retired_at IS NOT NULL")
        assert retired == [(2, "holding:1")]


@pytest.mark.parametrize("conflict", ["channel", "name", "source"])
async def test_another_history_is_refused(
    database: Database, owner: asyncpg.Connection, tmp_path: Path, conflict: str
) -> None:
    state, described = state_in(tmp_path), plant(tmp_path / "p", _FIRST)
    mine = (await up(described, database, state)).registry
    known = {
        "channel": Registry(mine.sources, {"plc": {"other": 1, "b": 2}}, last_ids=(70, 70)),
        "name": Registry(mine.sources, {"plc": {"a": 1001, "b": 2}}, last_ids=(70, 70)),
        "source": Registry({"other": 1}, {"other": {"a": 1, "b": 2}}, last_ids=(70, 70)),
    }[conflict]
    known.save(state.registry)
    before = await owner.fetch(f"{_CHANNELS} ORDER BY c.id")
    reason = {
        "channel": "channel other has id 1; in the database, channel a has this id",
        "name": "channel a has id 1001; in the database, it has id 1",
        "source": "source other has id 1; in the database, source plc has this id",
    }[conflict]
    with pytest.raises(OperationError, match=f"{reason}. Nothing was changed.*move .*registry.json and .*spool away"):
        await up(described, database, state)
    assert await owner.fetch(f"{_CHANNELS} ORDER BY c.id") == before
    assert Registry.load(state.registry) == known
    state.registry.unlink()
    assert (await up(described, database, state)).registry == mine


async def test_another_bit_of_the_register_is_another_history(database: Database, tmp_path: Path) -> None:
    state, folder = state_in(tmp_path), tmp_path / "p"
    mine = (await up(plant(folder, "x,holding:0,bool,,,,,discrete,0,\n"), database, state)).registry
    Registry(mine.sources, {"plc": {"a": 1}}, last_ids=mine.last_ids).save(state.registry)
    with pytest.raises(OperationError, match="channel a has id 1; in the database, channel x has this id"):
        await up(plant(folder, "a,holding:0,bool,,,,,discrete,3,\n"), database, state)
    assert notes(await up(plant(folder, "a,holding:0,bool,,,,,discrete,0,\n"), database, state))[0].startswith(
        "the database is older than this state folder: 1 channel (a) renamed again"
    )
