"""Channels that a push source creates."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ops.registration.register import register
from ops.registration.rename import rename_channel
from tests.database import Database, backup_of, rows
from tests.integration.ingest.test_push import NOWHERE, registered, written


async def test_numbers_for_a_text_channel_that_was_created_are_texts(database: Database, tmp_path: Path) -> None:
    site = await registered(tmp_path, database, 'unknown = "create"', tags="")
    async with site.running():
        assert (await site.push(b'm mode="auto" 1000\nm mode=2i 2000')).status == 204
    async with site.running():
        assert (await site.push(b"m mode=3i 3000")).status == 204
        await register(site.plant, database.owner_dsn, site.state)
        assert (await site.push(b"m mode=4i 4000")).status == 204
    assert [text for _, _, text in site.texts()] == ["auto", "2", "3", "4"]
    assert site.samples() == []


async def test_new_channels_are_created_once_also_without_database(database: Database, tmp_path: Path) -> None:
    options = 'unknown = "create"\nchannel = "{tag.host}/{measurement}.{field}"'
    site = await registered(tmp_path, database, options, tags="")
    body = b'cpu,host=a\\ b idle=5,on=true,mode="x" 1790000000000000000\ncpu,host=c idle=6 1790000000000000000'
    async with site.running():
        assert {a.status for a in await asyncio.gather(*(site.push(body) for _ in range(4)))} == {204}
    site.state.dsn_file("ingest").write_text(NOWHERE)
    more = b"cpu,host=c idle=7 1790000000001000000"
    async with site.running():
        assert (await site.push(more)).status == 204
        later = await site.push(more + b"\ncpu,host=d idle=8 1790000000001000000")
        assert (later.status, later.body["code"], later.headers["Retry-After"]) == (503, "unavailable", "5")
        assert later.message.startswith("1 value written; cannot create channels in the database")
    await written(site, database)
    named = "SELECT c.name, c.kind, c.address = c.name, s.value FROM plant.channel c LEFT JOIN plant.samples s"
    assert await rows(database, f"{named} ON s.channel_id = c.id ORDER BY c.name, s.value") == [
        ("a%20b/cpu.idle", "analog", True, 5.0),
        ("a%20b/cpu.mode", "text", True, None),
        ("a%20b/cpu.on", "discrete", True, 1.0),
        ("c/cpu.idle", "analog", True, 6.0),
        ("c/cpu.idle", "analog", True, 7.0),
    ]


async def test_a_new_registration_keeps_what_was_created(database: Database, tmp_path: Path) -> None:
    site = await registered(tmp_path, database, 'unknown = "create"', tags="")
    async with site.running():
        assert (await site.push(b"m a=1 1000")).status == 204
        again = (await register(site.plant, database.owner_dsn, site.state)).registry
        assert (await site.push(b"m a=2,b=2 2000")).status == 204
        assert len({channel for channel, _, _ in site.samples()}) == 2
    assert list(again.created["edge"]) == ["m.a"]
    assert await rows(database, "SELECT name FROM plant.channel WHERE retired_at IS NULL ORDER BY 1") == [
        ("m.a",),
        ("m.b",),
    ]


async def test_renamed_created_channel_continues(database: Database, tmp_path: Path) -> None:
    site = await registered(tmp_path, database, 'unknown = "create"', tags="")
    async with site.running():
        assert (await site.push(b"m a=1 1000")).status == 204
    row = await rename_channel(database.owner_dsn, site.state, "m.a", "area/a")
    assert row["created"]
    tag = '[[source.tag]]\nname = "area/a"\naddress = "m.a"\n'
    for tags in ("", tag):  # whether or not somebody wrote the tag that the command asks for
        again = await registered(tmp_path, database, 'unknown = "create"', tags)
        async with again.running():
            assert (await again.push(b"m a=2 %d" % (2000 + len(tags)))).status == 204
            assert {channel for channel, _, _ in again.samples()} == {row["id"]}
    assert await rows(database, "SELECT name FROM plant.channel") == [("area/a",)]


async def test_a_restored_database_gives_no_id_twice(database: Database, tmp_path: Path) -> None:
    """Neither to a channel that is created before the next ``up`` nor to one of the configuration."""
    site = await registered(tmp_path, database, 'unknown = "create"', tags="")
    async with backup_of(database) as backup:
        async with site.running():
            assert (await site.push(b"m a=1 1000")).status == 204
        site.state.dsn_file("ingest").write_text(backup.ingest_dsn)
        async with site.running():
            assert (await site.push(b"m a=2,b=2 2000")).status == 204
        assert await rows(backup, "SELECT name FROM plant.channel") == [("m.b",)]
        created = (await register(site.plant, backup.owner_dsn, site.state)).registry.created["edge"]
        assert sorted(created) == ["m.a", "m.b"]
        assert {channel for channel, _, _ in site.samples()} == set(created.values())
        assert len(set(created.values())) == 2


async def test_name_of_another_source_is_refused(database: Database, tmp_path: Path) -> None:
    tags = '[[source.tag]]\nname = "m.a"\naddress = "x.y"\n'
    site = await registered(tmp_path, database, 'unknown = "create"\nmax_channels = 1', tags)
    async with site.running():
        assert (await site.push(b"m a=1 1000")).message.endswith(
            "line 1: field 'a': the channel name 'm.a' is used by a tag with the address 'x.y'"
        )
        assert (await site.push(b"x y=1 1000\nm b=1 1000")).status == 204
        assert "exceeds max_channels, which is 1" in (await site.push(b"m c=1 1000")).message
