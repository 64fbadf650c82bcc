"""Whose a database is: a second state folder's ``up`` on it, and the logins of its server."""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from ingest.errors import DatabaseError, PlantlogError
from ops.appliance.database import Database as Used
from ops.maintenance.jobs import jobs
from ops.maintenance.run import JobContext, run
from ops.migration.migrate import migrate
from ops.paths import State
from ops.postgres.bootstrap import create_database
from ops.postgres.server import Server
from ops.registration import heartbeat
from ops.registration.register import Registration, register
from schema.queries import load
from tests.database import Database, rows
from tests.integration.test_register import plant
from tests.waiting import until

_TAGS = "a,holding:0,,,,,,,,\n"
_OTHERS = "b,holding:0,,,,,,,,\n"


def state_in(folder: Path) -> State:
    state = State(folder)
    state.claim()
    return state


async def everything(database: Database) -> list[tuple[Any, ...]]:
    return await rows(
        database,
        "SELECT 'source', s.name, s.retired_at::text FROM plant.source AS s"
        " UNION ALL SELECT 'channel', c.name, c.retired_at::text FROM plant.channel AS c"
        " UNION ALL SELECT 'class', r.name, r.raw::text FROM plant.retention_class AS r"
        " UNION ALL SELECT 'setting', s.key, s.value FROM plant.setting AS s",
    )


async def test_a_second_installation_is_refused_and_changes_nothing(database: Database, tmp_path: Path) -> None:
    kept = '[retention.default]\nraw = "3650d"\n'
    await register(plant(tmp_path / "p", _TAGS, kept), database.owner_dsn, state_in(tmp_path / "first"))
    before = await everything(database)
    second = plant(tmp_path / "q", _OTHERS, '[retention.default]\nraw = "1d"\n')
    with pytest.raises(
        PlantlogError, match=r"belongs to another installation.*plant demo.*1 source \(plc\).*--take-over"
    ):
        await register(second, database.owner_dsn, state_in(tmp_path / "second"))
    assert await everything(database) == before


async def test_takeover_of_an_installation_is_recorded(database: Database, tmp_path: Path) -> None:
    first, second = state_in(tmp_path / "first"), state_in(tmp_path / "second")
    described = plant(tmp_path / "p", _TAGS)
    await register(described, database.owner_dsn, first)
    others = plant(tmp_path / "q", _OTHERS)
    taken: Registration = await register(others, database.owner_dsn, second, take_over=True)
    assert taken.taken_over.startswith("plant demo (installation ")
    assert taken.taken_over.endswith("1 source (plc) with 1 channels")
    assert await rows(database, "SELECT text FROM plant.event WHERE type = 'taken_over'") == [(taken.taken_over,)]
    assert await rows(database, "SELECT text FROM plant.event WHERE type = 'retention_changed'") == []
    changes = list(taken.difference.lines())
    assert changes[0] == "source plc: 1 channel added (b); 1 channel retired (a)"
    assert changes[1:] == ["b has the address of retired a: `plantlog rename a b`, then `up`, keeps its history"]
    with pytest.raises(PlantlogError, match="belongs to another installation"):
        await register(described, database.owner_dsn, first)
    assert (await register(others, database.owner_dsn, second)).taken_over == ""


async def test_retirement_is_limited_to_the_installation(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """Several installations on one database are not made yet; what is another's is left alone all the same."""
    state = state_in(tmp_path / "first")
    described = plant(tmp_path / "p", _TAGS)
    await register(described, database.owner_dsn, state)
    await owner.execute("INSERT INTO plant.installation VALUES (gen_random_uuid(), 'other')")
    await owner.execute(
        "INSERT INTO plant.source (name, kind, address, installation_id)"
        " SELECT 'theirs', 'modbus', '', i.id FROM plant.installation AS i WHERE i.plant = 'other';"
        "INSERT INTO plant.channel (name, source_id, address, kind)"
        " SELECT 'theirs', s.id, 'holding:0', 'analog' FROM plant.source AS s WHERE s.name = 'theirs'"
    )
    queries = load("register")
    ours = await owner.fetchval("SELECT i.id FROM plant.installation AS i WHERE i.plant = 'demo'")
    async with owner.transaction():
        await owner.execute(queries["create_temporary_tables"])
        await owner.execute(
            "INSERT INTO configured SELECT (jsonb_populate_record(NULL::configured, to_jsonb(c) ||"
            " jsonb_build_object('place', 0, 'source', s.name, 'lo', c.range_lo, 'hi', c.range_hi))).*"
            " FROM plant.channel AS c JOIN plant.source AS s ON s.id = c.source_id WHERE c.name = 'a'"
        )
        await owner.execute(queries["insert_differences"], ours)
        assert await owner.fetch("SELECT * FROM difference") == []
        await owner.execute(queries["retire_channels"])
    await owner.execute(queries["retire_sources"], ["plc"], ours)
    await owner.execute(queries["upsert_retention_classes"], [], [], [], [], [], ours)
    assert await rows(database, "SELECT name FROM plant.channel WHERE retired_at IS NOT NULL") == []
    assert await rows(database, "SELECT name FROM plant.source WHERE retired_at IS NOT NULL") == []


async def test_sources_without_installation_are_adopted_by_id(empty_database: str, tmp_path: Path) -> None:
    state = state_in(tmp_path / "first")
    await create_database(empty_database)
    await migrate(empty_database)
    owner = await asyncpg.connect(empty_database)
    await owner.execute(
        "INSERT INTO plant.source (name, kind, address) VALUES ('plc', 'modbus', '');"
        "INSERT INTO plant.channel (name, source_id, address, kind) VALUES ('a', 1, 'holding:0', 'analog')"
    )
    await owner.close()
    described = plant(tmp_path / "p", _TAGS)
    state.registry.write_text('{"sources": {"plc": 1}, "channels": {"a": 2}}')
    used = _used(state, empty_database)
    with pytest.raises(PlantlogError, match=r"of an earlier version.*1 source \(plc\) with 1 channels"):
        await used.prepare()
    state.registry.write_text('{"sources": {"plc": 1}, "channels": {"a": 1}}')
    await used.prepare()
    done = await register(described, empty_database, state)
    assert (done.taken_over, done.registry.channels) == ("", {"plc": {"a": 1}})


async def test_a_copy_of_a_state_folder_is_refused_while_the_first_runs(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    first = state_in(tmp_path / "first")
    await register(plant(tmp_path / "p", _TAGS), database.owner_dsn, first)
    (job,) = (job for job in jobs() if job.name == "presence")

    async def runs(state: State) -> str:
        ran = await run(job, JobContext(database.maintenance_dsn, database.owner_dsn, state))
        return ran.done.detail

    assert await runs(first) == ""
    shutil.copytree(first.root, tmp_path / "copy")
    copy = State(tmp_path / "copy")
    assert f"runs in {socket.gethostname()}:{first.root}" in await runs(copy)
    said: list[str] = []
    refused = asyncio.create_task(heartbeat.check(owner, copy, said.append))
    await until(lambda: said)
    assert await runs(first) == ""  # it goes on
    with pytest.raises(PlantlogError, match=rf"{copy.root} is a copy of its state folder.*plantlog down"):
        await refused
    await heartbeat.check(owner, first, said.append)  # `up` of what runs
    first.root.rename(tmp_path / "moved")
    await heartbeat.check(owner, State(tmp_path / "moved"), said.append)
    await owner.execute("UPDATE plant.presence SET seen_at = seen_at - INTERVAL '1 minute'")  # it was stopped
    await heartbeat.check(owner, copy, said.append)
    assert await runs(copy) == ""
    assert len(said) == 1


_STORED = "SELECT string_agg(rolpassword, ' ' ORDER BY rolname) FROM pg_authid WHERE rolname LIKE 'plantlog%'"


def test_working_logins_are_kept_and_foreign_ones_refused(server: str, tmp_path: Path) -> None:
    assert server  # it sees to the programs being there

    async def logins(dsn: str) -> None:
        first = _used(state_in(tmp_path / "first"), f"{dsn}/north")
        second = _used(state_in(tmp_path / "second"), f"{dsn}/south", "other")
        for name in ("north", "south"):
            await create_database(f"{dsn}/{name}")
        await first.prepare()
        before = await _fetchval(f"{dsn}/north", _STORED)
        with pytest.raises(DatabaseError, match=r"plantlog_ingest.*the owner is.*Nothing was changed.*--take-over"):
            await second.prepare()
        assert await _fetchval(f"{dsn}/south", "SELECT to_regnamespace('plant') IS NULL"), "not even its schema"
        assert await _fetchval(f"{dsn}/north", _STORED) == before
        assert "new passwords" not in await first.prepare()
        assert await _fetchval(f"{dsn}/north", _STORED) == before, "a login that works is not altered"
        assert "new passwords for plantlog_ingest" in await second.prepare(take_over=True)
        with pytest.raises(DatabaseError, match="the password is not that of this state folder"):
            await first.prepare()

    with Server(tmp_path / "server") as private:
        asyncio.run(logins(private.owner_dsn.rpartition("/")[0]))


def _used(state: State, owner_dsn: str, password: str = "secret") -> Used:
    """A given database, and the DSNs of its logins."""
    (state.root / "secrets").mkdir()
    state.dsn_file("owner").write_text(owner_dsn)
    for role in ("ingest", "reader", "maintenance"):
        state.dsn_file(role).write_text(f"postgresql://plantlog_{role}:{password}@{owner_dsn.rpartition('@')[2]}")
    return Used(state, None)


async def _fetchval(dsn: str, query: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()
