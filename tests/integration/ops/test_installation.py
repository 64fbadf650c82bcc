"""Ownership of a database: a second state folder's ``up`` on it, and the logins of its server."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.config.model import Plant
from core.errors import PlantlogError
from core.paths import State
from core.process import starts
from history.notebook import ask
from ops.appliance.status import StatusMonitor
from ops.maintenance.job import Job, JobConnection, JobContext, run
from ops.maintenance.jobs import jobs
from ops.maintenance.retention import Retention
from ops.registration import heartbeat
from ops.registration import register as registering
from ops.registration.installation import installation_id, leader
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import Registration, register
from ops.registration.rename import rename_channel
from tests.database import Database, backup_of, connected, rows
from tests.integration.ops.test_register import plant
from tests.maintenance import SAMPLES, add_plant, day, sample_counts
from tests.states import claimed, store_dsns
from tests.waiting import until

TAGS = "a,holding:0,,,,,,,,\n"
_OTHERS = "b,holding:0,,,,,,,,\n"


def state_in(folder: Path) -> State:
    state = claimed(folder)
    return state


async def everything(database: Database) -> list[tuple[Any, ...]]:
    return await rows(
        database,
        "SELECT 'source', s.name, s.retired_at::text FROM plant.source AS s"
        " UNION ALL SELECT 'channel', c.name, c.retired_at::text FROM plant.channel AS c"
        " UNION ALL SELECT 'class', r.name, r.raw::text FROM plant.retention_class AS r"
        " UNION ALL SELECT 'setting', s.key, s.value FROM plant.setting AS s",
    )


def named(described: Plant, source: str) -> Plant:
    """The plant with another name of its source."""
    [found] = described.sources
    return described.model_copy(update={"name": source, "sources": (found.model_copy(update={"name": source}),)})


async def test_two_installations_share_a_database(database: Database, tmp_path: Path) -> None:
    """Each registers, changes and retires its own only."""
    first, second = state_in(tmp_path / "first"), state_in(tmp_path / "second")
    ours = plant(tmp_path / "p", TAGS, '[retention.default]\nraw = "3650d"\n')
    theirs = named(plant(tmp_path / "q", _OTHERS, '[retention.default]\nraw = "1d"\n'), "theirs")
    one = (await register(ours, database.owner_dsn, first)).registry
    joined = await register(theirs, database.owner_dsn, second)
    other = joined.registry
    facts = (joined.taken_over, joined.not_applied, list(joined.difference.lines()))
    assert facts == ("", "", ["source theirs: added; 1 channel added (b)"])
    assert (list(one.sources), list(other.sources)) == (["plc"], ["theirs"])
    assert not {*one.channels["plc"].values()} & {*other.channels["theirs"].values()}
    prefix = second.installation.read_text()[:8]
    classes = "SELECT r.name, r.raw::text FROM plant.retention_class AS r ORDER BY r.raw DESC"
    assert await rows(database, classes) == [("default", "87600:00:00"), (f"{prefix}:default", "24:00:00")]
    used = "SELECT c.name, k.class FROM plant.channel_class AS k JOIN plant.channel AS c ON c.id = k.channel_id"
    assert {*await rows(database, used)} == {("a", "default"), ("b", f"{prefix}:default")}
    before = await everything(database)
    for again, state in ((ours, first), (theirs, second)):
        assert list((await register(again, database.owner_dsn, state)).difference.lines()) == []
    assert await everything(database) == before
    changed = named(plant(tmp_path / "q", "c,holding:3,,,,,,,,\n", '[retention.default]\nraw = "1d"\n'), "theirs")
    assert (await register(changed, database.owner_dsn, second)).registry.channels == {"theirs": {"c": 3}}
    retired = "SELECT name FROM plant.channel WHERE retired_at IS NOT NULL"
    assert await rows(database, retired) == [("b",)]
    with pytest.raises(PlantlogError, match=r"channel a belongs to installation .* of plant demo: rename it there"):
        await rename_channel(database.owner_dsn, second, "a", "x")
    with pytest.raises(PlantlogError, match="channel 1 already has the name a: choose another"):
        await rename_channel(database.owner_dsn, second, "c", "a")
    await rename_channel(database.owner_dsn, first, "a", "former/a")
    now = named(plant(tmp_path / "q", "a,holding:3,,,,,,,,\n"), "theirs")  # no name of its own was renamed
    assert (await register(now, database.owner_dsn, second)).registry.channels == {"theirs": {"a": 4}}


async def test_settings_are_those_of_the_first_installation(database: Database, tmp_path: Path) -> None:
    first, second = state_in(tmp_path / "first"), state_in(tmp_path / "second")
    ours = plant(tmp_path / "p", TAGS, '[storage]\nlateness = "2h"\n')
    theirs = plant(tmp_path / "q", _OTHERS, '[storage]\nlateness = "3h"\n[sealing]\nenabled = false\n')
    await register(ours, database.owner_dsn, first)
    lines: list[str] = []
    (await register(named(theirs, "theirs"), database.owner_dsn, second)).print_changes(lines.append)
    leading = f"installation {installation_id(first)} of plant demo"
    assert lines[-1] == f"not applied: lateness; the database has one value, and it is that of {leading}"
    assert await rows(database, "SELECT value FROM plant.setting WHERE key = 'lateness'") == [("7200",)]


async def test_sealing_is_by_installation(database: Database, tmp_path: Path) -> None:
    first, second = state_in(tmp_path / "first"), state_in(tmp_path / "second")
    ours = plant(tmp_path / "p", TAGS)
    theirs = named(plant(tmp_path / "q", _OTHERS, "[sealing]\nenabled = false\n"), "theirs")
    for described, state in ((ours, first), (theirs, second), (theirs, second)):
        await register(described, database.owner_dsn, state)
    numbers = "SELECT number, sealing FROM plant.installation ORDER BY number"
    assert await rows(database, numbers) == [(1, True), (2, False)]
    (seal,) = (job for job in jobs() if job.name == "seal")
    contexts = [JobContext(database.maintenance_dsn, database.owner_dsn, state) for state in (first, second)]
    ran = [await run(seal, context) for context in contexts]
    assert [(one.outcome, one.done.detail) for one in ran] == [("ok", ""), ("skipped", "[sealing] enabled = false")]
    await register(named(plant(tmp_path / "q", _OTHERS), "theirs"), database.owner_dsn, second)
    changed = "SELECT text FROM plant.event WHERE type = 'setting_changed'"
    assert await rows(database, changed) == [("sealing false → true",)]
    assert [(await run(seal, context)).outcome for context in contexts] == ["ok", "ok"]
    assert await rows(database, "SELECT chain FROM plant.seal_key ORDER BY chain") == [(1,), (2,)]


@pytest.mark.parametrize("what", ["source", "channel"])
async def test_a_name_of_another_installation_is_refused(database: Database, tmp_path: Path, what: str) -> None:
    first, second = state_in(tmp_path / "first"), state_in(tmp_path / "second")
    await register(plant(tmp_path / "p", TAGS), database.owner_dsn, first)
    before = await everything(database)
    theirs = plant(tmp_path / "q", _OTHERS if what == "source" else TAGS)
    both = r"source plc belongs to another installation of this database \(and 1 more name\): installation"
    with pytest.raises(PlantlogError, match=both):
        await register(plant(tmp_path / "r", TAGS), database.owner_dsn, second)
    name = "plc" if what == "source" else "a"
    words = rf"{what} {name} belongs to another installation.*{installation_id(first)} of plant demo.*--take-over"
    with pytest.raises(PlantlogError, match=words):
        await register(theirs if what == "source" else named(theirs, "theirs"), database.owner_dsn, second)
    assert await everything(database) == before
    assert not second.registry.exists()


async def test_takeover_of_an_installation_is_recorded(database: Database, tmp_path: Path) -> None:
    first, second, third = (state_in(tmp_path / name) for name in ("first", "second", "third"))
    described = plant(tmp_path / "p", TAGS)
    await register(described, database.owner_dsn, first)
    await register(named(plant(tmp_path / "r", "c,holding:0,,,,,,,,\n"), "theirs"), database.owner_dsn, third)
    untouched = await rows(database, "SELECT * FROM plant.source WHERE name = 'theirs'")
    others = plant(tmp_path / "q", _OTHERS)
    with pytest.raises(PlantlogError, match=r"no installation is north; registered: installation .* of plant theirs"):
        await register(others, database.owner_dsn, second, take_over="north")
    with pytest.raises(PlantlogError, match=r"is installation .* of plant theirs already: only a state folder"):
        await register(others, database.owner_dsn, third, take_over="demo")
    taken: Registration = await register(others, database.owner_dsn, second, take_over=str(installation_id(first))[:8])
    assert taken.taken_over.startswith("plant demo (installation ")
    assert taken.taken_over.endswith("1 source (plc) with 1 channels")
    assert await rows(database, "SELECT text FROM plant.event WHERE type = 'taken_over'") == [(taken.taken_over,)]
    assert await rows(database, "SELECT text FROM plant.event WHERE type = 'retention_changed'") == []
    changes = list(taken.difference.lines())
    assert changes[0] == "source plc: 1 channel added (b); 1 channel retired (a)"
    assert changes[1:] == ["b has the address of retired a: `plantlog config rename a b`, then `up`, keeps its history"]
    assert await rows(database, "SELECT * FROM plant.source WHERE name = 'theirs'") == untouched
    with pytest.raises(PlantlogError, match="source plc belongs to another installation"):
        await register(described, database.owner_dsn, first)
    assert (await register(others, database.owner_dsn, second)).taken_over == ""
    async with connected(database.owner_dsn) as owner:
        assert await leader(owner, second) is None  # as the one before it was


@pytest.mark.parametrize("first_adds", [False, True])
async def test_each_installation_puts_its_own_ids_back(database: Database, tmp_path: Path, first_adds: bool) -> None:
    """In a restored database. An id that another one was given there meanwhile is refused."""
    first, second = state_in(tmp_path / "first"), state_in(tmp_path / "second")
    ours = plant(tmp_path / "p", TAGS)
    await register(ours, database.owner_dsn, first)
    await register(named(plant(tmp_path / "q", _OTHERS), "theirs"), database.owner_dsn, second)
    theirs = named(plant(tmp_path / "q", f"{_OTHERS}c,holding:1,,,,,,,,\n"), "theirs")
    async with backup_of(database) as backup:
        known = (await register(theirs, database.owner_dsn, second)).registry
        if first_adds:
            ours = plant(tmp_path / "p", f"{TAGS}d,holding:1,,,,,,,,\n")
        assert (await register(ours, backup.owner_dsn, first)).restored_ids.describe() == ""
        if first_adds:
            before = await everything(backup)
            with pytest.raises(PlantlogError, match="channel c has id 3; in the database, channel d has this id"):
                await register(theirs, backup.owner_dsn, second)
            assert await everything(backup) == before
        else:
            done = await register(theirs, backup.owner_dsn, second)
            assert (done.restored_ids.channels, done.registry) == (["c"], known)


async def test_sources_without_installation_are_adopted(database: Database, tmp_path: Path) -> None:
    """As those of a version that knew no installations."""
    async with connected(database.owner_dsn) as owner:
        await owner.execute(
            "INSERT INTO plant.source (name, kind, address) VALUES ('plc', 'modbus', '');"
            "INSERT INTO plant.channel (name, source_id, address, kind) VALUES ('a', 1, 'holding:0', 'analog')"
        )
    state = state_in(tmp_path / "first")
    done = await registering.register(
        plant(tmp_path / "p", TAGS), database.owner_dsn, state, decisions=TagDecisions(("a",))
    )
    assert (done.taken_over, done.registry.channels) == ("", {"plc": {"a": 1}})


async def test_retention_is_by_installation(
    database: Database, owner: asyncpg.Connection, maintenance: asyncpg.Connection, tmp_path: Path
) -> None:
    """A day goes as a whole where the classes of all agree; else the rows of the channels whose time is over."""
    first, second = state_in(tmp_path / "first"), state_in(tmp_path / "second")
    for folder, tags, age, state in (("p", TAGS, 6, first), ("q", _OTHERS, 3, second)):
        options = f'[sealing]\nenabled = false\n[retention.default]\nraw = "{age}d"\n'
        described = plant(tmp_path / folder, tags, options)
        await register(described if state is first else named(described, "theirs"), database.owner_dsn, state)
    await add_plant(owner, 9, 5, 2, channels=(1, 2))
    context = JobContext(database.maintenance_dsn, database.owner_dsn, second)
    await Retention().work(context, maintenance)
    assert await sample_counts(owner) == {(5, 1): SAMPLES, (2, 1): SAMPLES, (2, 2): SAMPLES}
    prefix = second.installation.read_text()[:8]
    facts = (
        "SELECT detail ->> 'from', detail -> 'classes', detail ->> 'action' FROM plant.event WHERE type = 'retention'"
    )
    found = {(begin[:10], action): json.loads(classes) for begin, classes, action in await rows(database, facts)}
    both = sorted((f"{prefix}:default", "default"))
    days = [f"{day(ago):%Y-%m-%d}" for ago in (9, 5)]
    assert found == {(days[0], "chunk"): both, (days[1], "rows"): [f"{prefix}:default"]}
    kept = "SELECT plant.retained_channels('{1,2}', 'raw', $1)"
    assert [await owner.fetchval(kept, day(ago)) for ago in (9, 5, 2)] == [[], [1], [1, 2]]


async def test_jobs_of_the_database_are_done_by_one_installation(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """Another one does them when the first one no longer does."""
    contexts = []
    for name in ("first", "second"):
        state = state_in(tmp_path / name)
        described = named(plant(tmp_path / f"{name}-plant", f"{name},holding:0,,,,,,,,\n"), name)
        await register(described, database.owner_dsn, state)
        contexts.append(JobContext(database.maintenance_dsn, database.owner_dsn, state))
    shared, own = (next(job for job in jobs() if job.name == name) for name in ("ahead", "presence"))

    async def outcomes(job: Job) -> list[str]:
        sessions = [JobConnection(job, context) for context in contexts]
        try:
            return [
                (await run(job, context, session=session)).outcome
                for context, session in zip(contexts, sessions, strict=True)
            ]
        finally:
            for session in sessions:
                session.close()

    assert await outcomes(shared) == ["ok", "skipped"]
    assert await outcomes(shared) == ["ok", "skipped"]
    assert await outcomes(own) == ["ok", "ok"]
    assert (await run(shared, contexts[1])).outcome == "ok", "by a command it is done at once"
    await owner.execute("UPDATE plant.job_run SET ended_at = ended_at - INTERVAL '1 second' * $1", 1.6 * shared.every)
    contexts.reverse()
    assert await outcomes(shared) == ["ok", "skipped"]
    heir = state_in(tmp_path / "heir")
    described = named(plant(tmp_path / "heir-plant", "c,holding:0,,,,,,,,\n"), "heir")
    await register(described, database.owner_dsn, heir, take_over="second")
    contexts[0] = JobContext(database.maintenance_dsn, database.owner_dsn, heir)
    assert await outcomes(shared) == ["ok", "skipped"], "what it took over was not done by another one"


async def test_status_and_questions_are_by_installation(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    states = [state_in(tmp_path / name) for name in ("first", "second")]
    for state, tags in zip(states, (TAGS, _OTHERS), strict=True):
        described = named(plant(tmp_path / f"{state.root.name}-plant", tags), state.root.name)
        await register(described, database.owner_dsn, state)
        store_dsns(state, **database.dsns("reader", "owner"))
    await owner.execute(
        "INSERT INTO plant.gap (source_id, from_time, reason)"
        " SELECT s.id, now(), 'stopped' FROM plant.source AS s WHERE s.name = 'second'"
    )
    found = [(await asyncio.to_thread(StatusMonitor(state).snapshot))["database"] for state in states]
    assert [(status["outages_open"], status["others"]) for status in found] == [
        (opened, [f"installation {installation_id(other)} of plant {other.root.name}"])
        for opened, other in zip((0, 1), reversed(states), strict=True)
    ]

    async def answered(installation: str) -> set[str]:
        table = await asyncio.to_thread(
            ask, "gaps_and_coverage", since="1h", installation=installation, state=states[0], complete=True
        )
        return set(table.column("channel").to_pylist())

    assert await answered("all") == {"a", "b"}
    assert await answered("second") == {"b"}
    assert await answered(str(installation_id(states[0]))[:8]) == {"a"}
    unknown = "--installation: no installation is third; registered: installation"
    with pytest.raises(PlantlogError, match=unknown):
        await answered("third")

    def outages(installation: str) -> int:
        return int(StatusMonitor(states[0], installation).snapshot()["database"]["outages_open"])

    found = [
        await asyncio.to_thread(outages, chosen) for chosen in ("first", str(installation_id(states[1]))[:8], "all")
    ]
    assert found == [0, 1, 1]
    with pytest.raises(PlantlogError, match=unknown):
        await asyncio.to_thread(outages, "third")


async def test_a_copy_of_a_state_folder_is_refused_while_the_first_runs(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    first = state_in(tmp_path / "first")
    await register(plant(tmp_path / "p", TAGS), database.owner_dsn, first)
    (job,) = (job for job in jobs() if job.name == "presence")

    async def runs(state: State) -> str:
        ran = await run(job, JobContext(database.maintenance_dsn, database.owner_dsn, state))
        return ran.done.detail

    assert await runs(first) == ""
    shutil.copytree(first.root, tmp_path / "copy")
    copy = State(tmp_path / "copy")
    assert f"runs in {socket.gethostname()}:{first.root}" in await runs(copy)
    lines: list[str] = []
    refused = asyncio.create_task(heartbeat.check(owner, copy, lines.append))
    await until(lambda: lines)
    assert await runs(first) == ""  # it goes on
    with pytest.raises(PlantlogError, match=rf"{copy.root} is a copy of its state folder.*plantlog down"):
        await refused
    await heartbeat.check(owner, first, lines.append)  # `up` of what runs
    first.root.rename(tmp_path / "moved")
    await heartbeat.check(owner, State(tmp_path / "moved"), lines.append)
    await owner.execute("UPDATE plant.presence SET seen_at = seen_at - INTERVAL '1 minute'")  # it was stopped
    await heartbeat.check(owner, copy, lines.append)
    assert await runs(copy) == ""
    assert len(lines) == 1


async def test_starts_of_processes_are_events(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    state = state_in(tmp_path / "state")
    starts.note(state.root, "writer")  # nobody's yet
    await register(plant(tmp_path / "p", TAGS), database.owner_dsn, state)
    for process in ("writer", "viewer", "writer", "postgres"):
        starts.note(state.root, process)
    (job,) = (job for job in jobs() if job.name == "presence")
    for _ in range(2):
        ran = await run(job, JobContext(database.maintenance_dsn, database.owner_dsn, state))
        assert ran.outcome == "ok", ran.done.detail
    query = (
        "SELECT e.detail ->> 'process' AS process, e.detail ->> 'installation' AS installation, e.source_id"
        " FROM plant.event AS e WHERE e.type = 'restart' ORDER BY e.time"
    )
    own = str(installation_id(state))
    events = [tuple(row) for row in await owner.fetch(query)]
    assert events == [(process, own, None) for process in ("writer", "viewer", "writer", "postgres")]
    assert list(starts.notes(state.root)) == []
