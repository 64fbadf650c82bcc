"""A tag that means something else under the same name: refused until somebody says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import OperationError
from core.paths import State
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import Registration, register
from ops.registration.rename import rename_channel
from tests.database import Database, rows
from tests.integration.ops.test_register import plant, state_in

_WAS = "a,holding:0,int16,°C,,,,,,\nb,holding:1,int16,bar,0,10,,,,\nc,holding:2,,,,,,,,\n"
_NOW = "a,holding:0,int16,K,,,,,,\nb,holding:7,float32,bar,0,16,,,,CDAB\nc,holding:2,,mm,0,5,text,,,\n"
_VERSIONS = "SELECT channel_id, name, unit, address FROM plant.channel_version ORDER BY channel_id, valid_from"


class Site:
    """One state folder and database."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder / "p"
        self.state: State = state_in(folder)

    async def up(
        self, tags: str, same: tuple[str, ...] = (), new: tuple[str, ...] = (), more: str = "", columns: str = ""
    ) -> Registration:
        described = plant(self.folder, tags, more, columns)
        return await register(described, self.database.owner_dsn, self.state, decisions=TagDecisions(same, new))


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Site:
    return Site(database, tmp_path)


async def test_ambiguous_tags_are_listed_and_nothing_is_changed(site: Site) -> None:
    first = await site.up(_WAS)
    assert list(first.difference.lines()) == ["source plc: added; 3 channels added (a, b, c)"]
    before = await rows(site.database, _VERSIONS)
    with pytest.raises(OperationError) as refused:
        await site.up(_NOW)
    lines = str(refused.value).splitlines()
    assert lines[:3] == [
        "2 tags of the configuration have a new definition under an old name:",
        "  a: unit °C → K",
        "  b: address holding:1 → holding:7, type int16 (default) → float32, word_order ABCD (default) → CDAB",
    ]
    assert "--same-quantity NAME" in lines[3]
    assert "--new-channel NAME" in lines[3]
    assert await rows(site.database, _VERSIONS) == before


async def test_same_quantity_continues_and_another_is_a_new_channel(site: Site) -> None:
    first = (await site.up(_WAS)).registry.channels["plc"]
    second = await site.up(_NOW, same=("a",), new=("b",))
    now = second.registry.channels["plc"]
    assert (now["a"], now["c"]) == (first["a"], first["c"])
    assert now["b"] not in first.values()
    *lines, retired = second.difference.lines()
    assert lines == [
        "source plc: 1 channel added (b); 2 channels changed (a: unit °C → K, c: description none → text, hi none → 5, "
        "lo none → 0, unit none → mm)"
    ]
    versions = await rows(site.database, _VERSIONS)
    assert [row[1:] for row in versions if row[0] == first["a"]] == [("a", "°C", "holding:0"), ("a", "K", "holding:0")]
    [was, aside] = [row[1:] for row in versions if row[0] == first["b"]]
    assert was == ("b", "bar", "holding:1")
    assert aside[0].startswith("b.until-20")
    assert retired == f"b: the old channel is retired as {aside[0]}"
    assert list((await site.up(_NOW)).difference.lines()) == [], "what was said once need not be said again"


async def test_what_an_integer_means_is_a_decision_and_where_it_wraps_is_none(site: Site) -> None:
    """A meter that was read as a plain number for years becomes a counter: by pattern, for all of its kind."""
    site.folder.mkdir()
    tags, named = site.folder / "y.csv", ["m/one", "m/two"]

    async def meters(kind: str, wraps_at: str, same: tuple[str, ...] = ()) -> Registration:
        lines = [f"{name},holding:{2 * place},uint32,{kind},{wraps_at}\n" for place, name in enumerate(named)]
        tags.write_text("".join(["name,address,type,kind,wraps_at\n", *lines]))
        return await site.up(_WAS, same=same, more=_source("meters", 503))

    ids = (await meters("", "")).registry.channels["meters"]
    with pytest.raises(OperationError, match=r"  m/one: kind analog → counter"):
        await meters("counter", "")
    assert (await meters("counter", "", same=("m/*",))).registry.channels["meters"] == ids
    await meters("counter", "4294967296")
    with pytest.raises(OperationError, match=r"  m/one: wraps_at 4294967296 → 65536"):
        await meters("counter", "65536")


async def test_decision_for_no_tag_is_an_error(site: Site) -> None:
    await site.up(_WAS)
    with pytest.raises(OperationError, match="--new-channel press/nosuch: the configuration has no tag of this name"):
        await site.up(_NOW, same=("*",), new=("press/nosuch",))
    with pytest.raises(OperationError, match=r"--same-quantity x\*: the configuration has no tag"):
        await site.up(_WAS, same=("a", "x*"))
    await site.up(_WAS, same=("*",), new=("b",))


async def test_another_device_is_ambiguous_and_its_new_host_name_is_not(site: Site) -> None:
    site.folder.mkdir()
    (site.folder / "y.csv").write_text("name,address\ny,holding:9\n")
    await site.up("x,holding:9,,,,,,,,\n", more=_source("other", 503))
    registry = (await site.up("x,holding:9,,,,,,,,\n", more=_source("renamed", 503))).registry
    assert "renamed" in registry.sources
    with pytest.raises(OperationError, match="y: source renamed → elsewhere"):
        await site.up("x,holding:9,,,,,,,,\n", more=_source("elsewhere", 504))


def _source(name: str, port: int) -> str:
    return f'[[source]]\nname = "{name}"\nkind = "modbus"\naddress = "tcp://127.0.0.1:{port}"\ntags = "y.csv"\n'


async def test_a_renamed_channel_keeps_its_id_and_its_old_name_makes_no_new_one(site: Site) -> None:
    first = (await site.up(_WAS)).registry.channels["plc"]
    dsn = site.database.owner_dsn
    await rename_channel(dsn, site.state, "a", "area/a")
    with pytest.raises(OperationError, match=r"with a name that was renamed:\n  a: renamed to area/a at"):
        await site.up(_WAS)
    after = await site.up(_WAS.replace("a,holding", "area/a,holding"))
    assert after.registry.channels["plc"]["area/a"] == first["a"]
    assert list(after.difference.lines()) == []
    with pytest.raises(OperationError, match="there is no channel a"):
        await rename_channel(dsn, site.state, "a", "z")
    with pytest.raises(OperationError, match="already has the name b"):
        await rename_channel(dsn, site.state, "area/a", "b")
    both = _WAS.replace("c,holding:2", "area/a,holding:0,int16,°C,,,,,,\nc,holding:2").replace(
        "a,holding:0,", "a,holding:3,", 1
    )
    again = await site.up(both, new=("a",))
    assert again.registry.channels["plc"]["a"] not in first.values()
    events = "SELECT text FROM plant.event WHERE type = 'channel_changed' AND text LIKE 'name %'"
    assert await rows(site.database, events) == [("name a → area/a",)]


async def test_name_changed_only_in_the_tag_list_can_still_be_a_rename(site: Site) -> None:
    first = (await site.up(_WAS)).registry.channels["plc"]
    edited = _WAS.replace("a,holding:0", "area/a,holding:0").replace("c,holding:2", "d,holding:3")
    after = await site.up(edited)
    assert list(after.difference.lines()) == [
        "source plc: 2 channels added (area/a, d); 2 channels retired (a, c)",
        "area/a has the address of retired a: `plantlog config rename a area/a`, then `up`, keeps its history",
    ]
    with pytest.raises(OperationError, match="already has the name d"):
        await rename_channel(site.database.owner_dsn, site.state, "c", "d")
    await rename_channel(site.database.owner_dsn, site.state, "a", "area/a")
    again = await site.up(edited)
    assert again.registry.channels["plc"]["area/a"] == first["a"]
    assert list((await site.up(edited)).difference.lines()) == []
    retired = "SELECT id, name LIKE 'area/a.until-%' FROM plant.channel WHERE retired_at IS NOT NULL AND name <> 'c'"
    assert await rows(site.database, retired) == [(after.registry.channels["plc"]["area/a"], True)]


async def test_renamed_tag_with_other_limits_is_recognized_too(site: Site) -> None:
    """Limits that only affect reading or display may change at the same time."""
    first = (await site.up(_WAS)).registry.channels["plc"]
    edited = "area/a,holding:0,int16,°C,0,90,boiler,,,,80,0x8000\n"
    after = await site.up(edited, columns=",alarm_hi,no_data")
    assert "area/a has the address of retired a" in list(after.difference.lines())[-1]
    await rename_channel(site.database.owner_dsn, site.state, "a", "area/a")
    again = await site.up(edited, columns=",alarm_hi,no_data")
    assert again.registry.channels["plc"]["area/a"] == first["a"]
