"""The configuration of a living push endpoint is edited: bodies go on being taken, over living connections."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from core.config import snapshot, token_file
from core.config.load import load
from core.registry import Registry
from tests.batches import gaps_of
from tests.integration.ingest.test_push import Site, site_in
from tests.waiting import until

_IDS = Registry(
    {"edge": 1, "other": 2},
    {"edge": {"boiler/pressure": 1, "boiler/mode": 2, "boiler/level": 3, "c": 4, "k": 5}, "other": {"c": 4}},
    {"edge": {}, "other": {}},
)
_OTHER = {"Authorization": "Token token-of-other-gateway"}


def tags(**addresses: str) -> str:
    rows = (f'[[source.tag]]\nname = "{name}"\naddress = "{address}"\n' for name, address in addresses.items())
    return "".join(rows).replace("__", "/")


async def edit(site: Site, options: str, versions: dict[str, int] | None = None, more: str = "") -> None:
    """Put this in force, and wait until it is."""
    file = site.root / "p" / "plant.toml"
    head = file.read_text().partition("[[source]]")[0]
    source = '[[source]]\nname = "edge"\nkind = "push"\ntoken_file = "edge.token"\n'
    file.write_text(f"{head}{source}{options}{more}")
    number = snapshot.save(site.state.root, file, {}, load(file), versions or {}).number
    os.kill(os.getpid(), signal.SIGHUP)

    async def followed() -> bool:
        return bool((await site.health())["configuration"] == number)

    await until(followed)


@asynccontextmanager
async def pushing(site: Site, body: bytes) -> AsyncIterator[list[int]]:
    """Bodies one after the other over four connections, and each time one over its own; gives the answers."""
    answers: list[int] = []
    stop = asyncio.Event()

    async def push_once(session: aiohttp.ClientSession | None) -> None:
        answer = await site.push(body, session=session)
        if "already being processed" not in answer.body.get("message", ""):  # a busy machine takes one at a time
            answers.append(answer.status)

    async def push() -> None:
        async with aiohttp.ClientSession() as session:
            while not stop.is_set():
                await push_once(session)
                await push_once(None)

    async def begun() -> bool:
        return len(answers) > 20

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(push())
        await until(begun)
        yield answers
        seen = len(answers)

        async def more() -> bool:
            return len(answers) > seen + 20

        await until(more)
        stop.set()


async def test_sources_and_tags_come_and_go_while_a_gateway_pushes(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    _IDS.save(site.state.registry)
    token_file.write(tmp_path / "p" / "other.token", "token-of-other-gateway")
    both = tags(boiler__pressure="boiler.pressure", boiler__level="boiler.level")
    other = '[[source]]\nname = "other"\nkind = "push"\ntoken_file = "other.token"\n' + tags(c="x.c")
    async with site.running(), pushing(site, b"boiler pressure=1") as answers:
        level = b"boiler level=2 1000"
        assert (await site.push(level)).status == 400
        await edit(site, "max_rate = 100000\n" + both)
        assert (await site.push(level)).status == 204
        assert (await site.push(b"x c=3 1000", headers=_OTHER)).status == 401
        await edit(site, both, more=other)
        assert (await site.push(b"x c=3 1000", headers=_OTHER)).status == 204
        await edit(site, tags(boiler__pressure="boiler.pressure"))
        assert (await site.push(b"x c=3 1000", headers=_OTHER)).status == 401
        assert (await site.push(level)).status == 400
        assert [source["name"] for source in (await site.health())["sources"]] == ["edge"]
    assert set(answers) == {204}
    assert sum(channel == 1 for channel, _, _ in site.samples()) == len(answers), "each once"
    assert [(gap.reason, gap.channel_ids) for gap in gaps_of(site.spooled())] == [("removed", (2,)), ("removed", (3,))]
    assert len(site.events("restart")) == 2, "each source was started once"


async def test_gap_of_texts_for_a_numeric_channel_ends_with_the_change(tmp_path: Path) -> None:
    """The channel takes texts from now on, or is gone."""
    site = site_in(tmp_path)
    _IDS.save(site.state.registry)
    both = tags(c="x.c", k="x.k")

    async def open_gaps() -> int:
        (source,) = (await site.health())["sources"]
        return int(source["open_gaps"])

    async with site.running():
        await edit(site, both)
        assert (await site.push(b'x c="off",k="off"')).status == 400
        assert await open_gaps() == 2
        await edit(site, tags(c="x.c") + 'kind = "text"\n')
        assert await open_gaps() == 0
        assert (await site.push(b'x c="off"')).status == 204


async def test_new_token_applies_and_invalid_configuration_is_refused(tmp_path: Path) -> None:
    one = tags(boiler__pressure="boiler.pressure")
    site = site_in(tmp_path, tags=one)
    Registry(_IDS.sources, {"edge": {"boiler/pressure": 1}}, _IDS.created).save(site.state.registry)
    new = {"Authorization": "Token token-of-this-gateway"}
    async with site.running():
        assert (await site.push(b"boiler pressure=1")).status == 204
        token_file.write(tmp_path / "p" / "edge.token", "token-of-this-gateway")

        async def refused() -> bool:
            return (await site.push(b"boiler pressure=1")).status == 401

        await until(refused)
        assert (await site.push(b"boiler pressure=1", headers=new)).status == 204
        file = site.root / "p" / "plant.toml"
        file.write_text(file.read_text() + tags(stranger="boiler.stranger"))
        bad = snapshot.save(site.state.root, file, {}, load(file)).number
        os.kill(os.getpid(), signal.SIGHUP)
        for _ in range(20):
            assert (await site.push(b"boiler pressure=1", headers=new)).status == 204
        assert (await site.health())["configuration"] < bad
        await edit(site, one)


async def test_lines_around_a_change_are_separated_by_its_time(tmp_path: Path) -> None:
    """Two channels change places while bodies without times are on their way."""
    site = site_in(tmp_path)
    _IDS.save(site.state.registry)
    body = b"\n".join(b"t c=%d,k=%d" % (20 + n % 50, 290 + n % 50) for n in range(200))

    def values(channel: int, rows: list[tuple[int, int, float]]) -> list[tuple[int, Any]]:
        return [(time, value > 100) for of, time, value in rows if of == channel]

    async with site.running():
        await edit(site, "max_rate = 10000000\n" + tags(c="t.c", k="t.k"))
        async with pushing(site, body) as answers:
            for version in range(1, 6):
                swapped = tags(c="t.k", k="t.c") if version % 2 else tags(c="t.c", k="t.k")
                await edit(site, "max_rate = 10000000\n" + swapped, {"c": version, "k": version})
                seen = len(answers)

                async def more(seen: int = seen) -> bool:
                    return len(answers) > seen + 8

                await until(more)
    assert set(answers) == {204}
    for channel in (4, 5):
        since = [e.time for e in site.events("version_read") if e.channel_id == channel]
        assert len(since) == 5
        for time, is_kelvin in values(channel, site.samples()):
            swapped_then = sum(at <= time for at in since) % 2 == 1
            assert is_kelvin == (swapped_then == (channel == 4))
