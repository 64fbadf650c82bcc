"""State folders that become a redundant pair, or are refused."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import pytest

from core.config.load import load
from core.config.model import NotifyOptions, Plant
from core.errors import OperationError
from core.paths import State
from history.seals.keys import signer
from ingest.spool.member import folder_id, read_token
from ingest.writer.pair.lease import Lease
from ops.appliance.refusals import check_registration
from ops.notifier.process import Notifier
from ops.registration import heartbeat, pair
from ops.registration.installation import installation_id
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import register
from schema.queries import load as queries
from tests.database import Database, connected, rows
from tests.states import claimed, store_dsns
from tests.waiting import until

_TAGS = "name,address\na,ns=2;s=a\n"
_MEMBERS = "SELECT member, away FROM plant.member ORDER BY member"


def described(folder: Path, member: int | None, more: str = "", tags: str = _TAGS, before: str = "") -> Plant:
    """A plant with one source."""
    folder.mkdir(exist_ok=True)
    (folder / "tags.csv").write_text(tags)
    redundancy = "" if member is None else f"[redundancy]\nmember = {member}\n"
    source = '[[source]]\nname = "plc"\nkind = "opcua"\naddress = "opc.tcp://127.0.0.1:4840"\ninsecure = true\n'
    (folder / "plant.toml").write_text(f'[plant]\nname = "p"\n{before}{redundancy}{source}{more}tags = "tags.csv"\n')
    return load(folder / "plant.toml")


def state_in(folder: Path, identity: State | None = None) -> State:
    """A state folder, with the identity of another."""
    state = claimed(folder)
    if identity is not None:
        shutil.copy(identity.installation, state.installation)
    return state


async def up(database: Database, owner: asyncpg.Connection, state: State, plant: Plant) -> None:
    await pair.check(owner, state, plant, lambda text: None)
    await register(plant, database.owner_dsn, state)
    await pair.join(database.owner_dsn, state, plant, lambda text: None)


async def refused(
    database: Database, owner: asyncpg.Connection, state: State, plant: Plant, running: State | None = None
) -> str:
    """Error of the check, while member 1 goes on with its heartbeat."""
    asked: list[str] = []
    checking = asyncio.create_task(pair.check(owner, state, plant, asked.append))
    if running is not None:
        await until(lambda: asked or checking.done())
        async with connected(database.owner_dsn) as other:
            await seen(other, 1, running)
    with pytest.raises(OperationError) as raised:
        await checking
    return str(raised.value)


async def seen(owner: asyncpg.Connection, member: int, state: State, receiving: Sequence[int] = ()) -> None:
    query, folder = queries("lease")["member_seen"], folder_id(state.spool)
    await owner.execute(query, installation_id(state), member, folder, 7, receiving)


async def test_two_state_folders_become_a_pair(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    """An appliance that existed becomes member 1, with its gaps; the other member has no samples of before."""
    one, two = state_in(tmp_path / "one"), state_in(tmp_path / "two")
    await up(database, owner, one, described(tmp_path / "c", None))
    assert await rows(database, _MEMBERS) == []
    await owner.execute(
        "INSERT INTO plant.gap (source_id, from_time, to_time, reason)"
        " VALUES (1, '2026-01-01', '2026-01-02', 'killed'),"
        " (1, '2026-01-03', NULL, 'killed')"
    )
    gaps = "SELECT from_time, to_time, reason FROM plant.gap ORDER BY 1"
    before = await rows(database, gaps)
    await up(database, owner, one, described(tmp_path / "c", 1))
    assert await rows(database, _MEMBERS) == [(1, False)]
    assert await rows(database, gaps) == before
    own = installation_id(two)
    other = f"is installation {own}, but the pair of plant p is installation {installation_id(one)}: copy the file"
    assert other in await refused(database, owner, two, described(tmp_path / "d", 2))
    shutil.copy(one.installation, two.installation)
    await up(database, owner, two, described(tmp_path / "d", 2))
    assert await rows(database, _MEMBERS) == [(1, False), (2, False)]
    assert await rows(database, gaps) == before
    await seen(owner, 2, two, [1])
    [first, second] = await rows(database, gaps)
    assert first == before[0]
    assert second[1] is not None, "member 2 receives from now on"
    for state in (one, two):
        await heartbeat.record(owner, state)  # not refused as a copy

    await owner.execute("UPDATE plant.member SET seen_at = seen_at - INTERVAL '1 minute'")
    await up(database, owner, one, described(tmp_path / "c", None))
    assert await rows(database, _MEMBERS) == []
    assert len(await rows(database, gaps)) == 2


async def test_member_that_differs_is_refused_while_the_other_runs(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    one = state_in(tmp_path / "one")
    await up(database, owner, one, described(tmp_path / "c", 1))
    two = state_in(tmp_path / "two", one)
    differing = described(tmp_path / "d", 2, 'publishing_interval = "1s"\n', "name,address\nb,ns=2;s=a\n")
    text = await refused(database, owner, two, differing, one)
    assert (
        'source.plc.publishing_interval: "500ms" there, "1s" here; source.plc.tags: other tags. Both members run'
    ) in text
    same = described(tmp_path / "d", 2, "")
    await owner.execute("UPDATE plant.member SET version = '0.9'")
    assert "plantlog 0.9 there, " in await refused(database, owner, two, same, one)
    assert "found 1, but member 1 of this pair runs in" in await refused(
        database, owner, two, described(tmp_path / "d", 1), one
    )
    assert "set [redundancy] member = 2, or stop that one" in await refused(
        database, owner, two, described(tmp_path / "d", None), one
    )
    await owner.execute("UPDATE plant.member SET seen_at = seen_at - INTERVAL '1 minute'")  # it was stopped
    await up(database, owner, two, same)


async def test_differences_are_shown_as_the_file_has_them(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    one = state_in(tmp_path / "one")
    before = '[storage]\ndisk_budget = "200 GiB"\n[retention.short]\nraw = "7d"\n'
    await up(database, owner, one, described(tmp_path / "c", 1, before=before))
    after = '[storage]\ndisk_budget = "1 TiB"\n[retention.short]\nraw = "forever"\n[notify]\nwebhook = "http://h/a"\n'
    plant = described(tmp_path / "d", 2, before=after)
    [other] = await owner.fetch(queries("pair")["select_members"], installation_id(one))
    text = "; ".join(pair._differences(plant, other))
    assert 'storage.disk_budget: "200 GiB" there, "1 TiB" here' in text
    assert 'retention.short.raw: "7d" there, "forever" here' in text
    assert 'notify.webhook: nothing there, "http://h/a" here' in text


async def test_state_folder_stays_the_member_that_it_is(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    one = state_in(tmp_path / "one")
    await up(database, owner, one, described(tmp_path / "c", 1))
    assert "found 2; legal: 1, which" in await refused(database, owner, one, described(tmp_path / "c", 2))
    two = state_in(tmp_path / "two")
    (two.spool / "opcua.sqlite").touch()
    assert "was an appliance of its own so far" in await refused(database, owner, two, described(tmp_path / "c", 2))


async def test_copy_of_a_members_state_folder_is_refused(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    one, member = state_in(tmp_path / "one"), described(tmp_path / "c", 1)
    await up(database, owner, one, member)
    copy = State(shutil.copytree(one.root, tmp_path / "copy"))
    assert f"found 1, but member 1 of this pair runs in {heartbeat.location(one)}" in await refused(
        database, owner, copy, member, one
    )
    await owner.execute("UPDATE plant.member SET seen_at = seen_at - INTERVAL '1 minute'")  # it was moved
    await up(database, owner, copy, member)


def test_second_member_gets_no_database_of_its_own(tmp_path: Path) -> None:
    state, member = state_in(tmp_path / "two"), described(tmp_path / "c", 2)
    with pytest.raises(OperationError, match="member = 2, and PLANTLOG_DSN is not set: set it to the database of"):
        pair.check_database(state, member, has_dsn=False)
    pair.check_database(state, member, has_dsn=True)
    pair.check_database(state, described(tmp_path / "c", None), has_dsn=False)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("token = 3", "found token 3; legal: at least 8, which this member has seen"),
        ("expires_at = now() + INTERVAL '1 day'", "a lease that ends in 86,400 s; legal: at most 1.5 s"),
        ("member = 7", "found member 7; legal: 1 or 2"),
    ],
)
async def test_changed_lease_is_refused(
    database: Database, owner: asyncpg.Connection, tmp_path: Path, change: str, text: str
) -> None:
    one, member = state_in(tmp_path / "one"), described(tmp_path / "c", 1)
    await up(database, owner, one, member)
    own = installation_id(one)
    lease = Lease(database.ingest_dsn, own, 1, one.spool)
    await lease.acquire()
    await owner.execute("UPDATE plant.writer_lease SET token = 7")
    await lease.acquire()
    assert read_token(one.spool) == 8
    await owner.execute("ALTER TABLE plant.writer_lease DROP CONSTRAINT writer_lease_member_check")
    await owner.execute(f"UPDATE plant.writer_lease SET {change}")
    output = await refused(database, owner, one, member)
    assert text in output
    statement = re.search(r"DELETE [^;]*", output)
    assert statement is not None
    await owner.execute(statement[0])
    await up(database, owner, one, member)
    assert (await lease.acquire()).token == 9, "higher than any that was seen"
    lease.disconnect()


async def test_take_over_is_an_event(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    one = state_in(tmp_path / "one")
    await up(database, owner, one, described(tmp_path / "c", 1))
    leases = [Lease(database.ingest_dsn, installation_id(one), number) for number in (1, 2)]
    for lease in (*leases, leases[1]):
        await lease.acquire()
        await lease.release()
    assert await rows(database, "SELECT text FROM plant.event WHERE type = 'lease_taken'") == [
        ("member 2 writes instead of member 1",)
    ]
    for lease in leases:
        lease.disconnect()


async def test_only_the_member_that_writes_notifies(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    one = state_in(tmp_path / "one")
    await up(database, owner, one, described(tmp_path / "c", 1))
    own = installation_id(one)
    lease = Lease(database.ingest_dsn, own, 2)
    await lease.acquire()
    options = NotifyOptions(webhook="http://127.0.0.1:1/alarms")
    sends = [
        await Notifier("p", options, database.ingest_dsn, [], own, number)._is_sender(owner) for number in (1, 2, None)
    ]
    assert sends == [False, True, True]
    lease.disconnect()


async def test_member_without_the_key_of_seals_is_refused(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    one, plant = state_in(tmp_path / "one"), described(tmp_path / "d", 2)
    await up(database, owner, one, described(tmp_path / "c", 1))
    await signer(owner, one)
    two = state_in(tmp_path / "two", one)
    store_dsns(two, owner=database.owner_dsn)
    with pytest.raises(OperationError, match=r"seal\.key is missing; seals are signed by \w{16}: copy the folder `sec"):
        await asyncio.to_thread(check_registration, two, plant, TagDecisions())
    assert await rows(database, _MEMBERS) == [(1, False)]
    shutil.copy(one.root / "secrets" / "seal.key", two.root / "secrets")
    await asyncio.to_thread(check_registration, two, plant, TagDecisions())
