"""The push endpoint over real sockets: what is answered with 204 is on disk, and reaches a real database once."""

from __future__ import annotations

import asyncio
import io
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core.batch import Event, SampleBatch
from core.config import snapshot, token_file
from core.config.load import load
from core.config.model import Plant, WriterOptions
from core.config.settings import PushSettings, WriterSettings
from core.paths import State
from core.registry import Registry
from core.timestamps import now_us
from ingest.run.process import run_push
from ingest.writer.writer import Writer
from ops.registration.register import register
from tests import children
from tests.batches import events_of, gaps_of
from tests.config_in_force import activate
from tests.database import Database, rows
from tests.ports import free_port, free_ports
from tests.spooling import Spooled, drained
from tests.states import claimed
from tests.waiting import PATIENCE, until

_TAGS = """
[[source.tag]]
name = "boiler/pressure"
address = "boiler.pressure"
[[source.tag]]
name = "boiler/mode"
address = "boiler.mode"
kind = "text"
"""
NOWHERE = "postgresql://nobody:nothing@127.0.0.1:1/nothing"
TOKEN = {"Authorization": "Token token-of-edge-gateway"}
_IDS = Registry({"edge": 1}, {"edge": {"boiler/pressure": 1, "boiler/mode": 2}}, {"edge": {}})


@dataclass(slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def message(self) -> str:
        return str(self.body["message"])


@dataclass(slots=True)
class Site:
    """A plant with one push source ``edge``, and its state folder."""

    root: Path
    plant: Plant
    state: State
    url: str = field(init=False)
    dsn: str = NOWHERE

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.plant.push.port}"
        dsn_file = self.state.dsn_file("ingest")
        dsn_file.parent.mkdir(exist_ok=True)
        dsn_file.write_text(self.dsn)

    def put_in_force(self) -> None:
        """The configuration is what a process is started with, and reads at SIGHUP."""
        snapshot.save(self.state.root, self.root / "p" / "plant.toml", {}, self.plant)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.put_in_force()
        stop = asyncio.Event()
        process = asyncio.create_task(run_push(PushSettings.of(self.plant), self.state.root, stop))
        await until(lambda: self.ready(process))
        yield
        stop.set()
        await asyncio.wait_for(process, PATIENCE)

    async def ready(self, process: asyncio.Task[None] | None = None) -> bool:
        if process is not None and process.done():
            process.result()
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/health") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def push(
        self, body: bytes, query: str = "", headers: dict[str, str] | None = None, session: Any = None
    ) -> Answer:
        """One body, over a connection of its own unless there is a ``session``."""
        if session is None:
            async with aiohttp.ClientSession() as own:
                return await self.push(body, query, headers, own)
        url = f"{self.url}/api/v2/write?org=o&bucket=b{query}"
        async with session.post(url, data=io.BytesIO(body), headers=TOKEN if headers is None else headers) as response:
            text = await response.text()
            return Answer(response.status, dict(response.headers), json.loads(text) if text else {})

    async def push_without_answer(self, body: bytes) -> None:
        """One body, whose sample is on disk when the gateway has gone."""
        head = f"POST /api/v2/write HTTP/1.1\r\nHost: h\r\nAuthorization: {TOKEN['Authorization']}\r\n"
        _, writer = await asyncio.open_connection("127.0.0.1", self.plant.push.port)
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.transport.abort()
        await until(lambda: len(self.samples()) == 1)

    async def health(self) -> dict[str, Any]:
        port = self.plant.health.port + 3
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/health") as response:
            body: dict[str, Any] = await response.json()
            return body

    def spooled(self) -> list[Any]:
        """Every batch in the spool."""
        return Spooled(self.state.spool / "push.sqlite").read()

    def samples(self) -> list[tuple[int, int, float]]:
        """(channel, µs, value) of every sample in the spool."""
        return [
            row
            for b in self.spooled()
            if isinstance(b, SampleBatch)
            for row in zip(b.samples.channel.tolist(), b.samples.time.tolist(), b.samples.value.tolist(), strict=True)
        ]

    def texts(self) -> list[tuple[int | None, int, str | None]]:
        """(channel, µs, text) of every text in the spool."""
        return [(e.channel_id, e.time, e.text) for e in self.events("text")]

    def events(self, *kinds: str) -> list[Event]:
        """Events of these types in the spool."""
        return events_of(self.spooled(), *kinds)


def described(folder: Path, options: str = "", tags: str = _TAGS, push: str = "", more: str = "") -> Plant:
    """The configuration of a plant whose source ``edge`` pushes."""
    folder.mkdir(exist_ok=True)
    token_file.write(folder / "edge.token", "token-of-edge-gateway")
    (folder / "plant.toml").write_text(
        f'[plant]\nname = "demo"\n[health]\nport = {free_ports(5)}\n[push]\nport = {free_port()}\n{push}\n{more}\n'
        f'[[source]]\nname = "edge"\nkind = "push"\ntoken_file = "edge.token"\n{options}\n{tags}'
    )
    return load(folder / "plant.toml")


def site_in(folder: Path, options: str = "", tags: str = _TAGS, push: str = "", more: str = "") -> Site:
    """A plant that was registered once and whose database is away."""
    state = claimed(folder / "state")
    _IDS.save(state.registry)
    return Site(folder, described(folder / "p", options, tags, push, more), state)


async def registered(folder: Path, database: Database, options: str = "", tags: str = _TAGS) -> Site:
    """A plant that is registered in a database."""
    state = claimed(folder / "state")
    plant = described(folder / "p", options, tags)
    await register(plant, database.owner_dsn, state)
    return Site(folder, plant, state, database.ingest_dsn)


async def written(site: Site, database: Database) -> None:
    """Let the writer empty the spool."""
    await drained(Writer(site.state.spool, database.ingest_dsn, WriterOptions(connections=1)))


async def test_answered_body_is_durable(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    async with site.running():
        assert (await site.push(b'boiler pressure=1.5,mode="auto" 1790000000000001999')).status == 204
        assert site.samples() == [(1, 1790000000000001, 1.5)]
        assert site.texts() == [(2, 1790000000000001, "auto")]
        (source,) = (await site.health())["sources"]
        assert (source["state"], source["samples"], source["last_sample_at"]) == ("connected", 1, 1790000000000001)


async def test_sample_that_the_writer_quarantines_raises_no_alarm(database: Database, tmp_path: Path) -> None:
    tags = _TAGS.replace('address = "boiler.pressure"\n', 'address = "boiler.pressure"\nalarm_hi = 8.0\n')
    plant = described(tmp_path / "p", tags=tags, more='[writer]\nfuture_limit = "1m"\n')
    state = claimed(tmp_path / "state")
    await register(plant, database.owner_dsn, state)
    site = Site(tmp_path, plant, state, database.ingest_dsn)
    ahead = now_us() + 600_000_000
    async with site.running():
        assert (await site.push(b"boiler pressure=9 %d" % (ahead * 1000))).status == 204
        assert (await site.push(b"boiler pressure=9 %d" % (now_us() * 1000))).status == 204
    assert [event.time < ahead for event in site.events("alarm")] == [True]
    await drained(Writer(site.state.spool, database.ingest_dsn, WriterSettings.of(plant).writer))
    assert await rows(database, "SELECT q.time_us, q.reason FROM plant.quarantine AS q") == [(ahead, "future")]
    assert await rows(database, "SELECT count(*) FROM plant.samples") == [(1,)]


async def test_text_for_a_numeric_channel_is_refused_and_recorded(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    async with site.running():
        answer = await site.push(b'boiler pressure=1.5,mode="auto" 1000\nboiler pressure="open wire" 2000')
        assert answer.status == 400
        assert answer.message.startswith(
            "partial write: 2 values written, 1 bad line: line 2: field 'pressure': text value"
        )
        (source,) = (await site.health())["sources"]
        assert (source["state"], list(source["bad_channels"]), source["open_gaps"]) == (
            "degraded",
            ["boiler/pressure"],
            1,
        )
    async with site.running():  # goes on with the gap
        answer = await site.push(b'boiler pressure="short" 3000\nboiler pressure="short" 4000')
        assert answer.message.startswith("0 values written, 2 bad lines")
        # Of the year 2096: it will be in the quarantine, and the gap goes on.
        assert (await site.push(b"boiler pressure=1.6 4000000000000000000")).status == 204
        assert (await site.health())["sources"][0]["open_gaps"] == 1
        assert (await site.push(b"boiler pressure=1.6 5000\nboiler pressure=1.7 6000")).status == 204
        (source,) = (await site.health())["sources"]
        assert (source["state"], source["bad_channels"], source["open_gaps"]) == ("connected", {}, 0)
        both = b'boiler pressure="short" 7000\nboiler pressure=1.8 9000'
        assert (await site.push(both)).message.startswith("partial write: 1 value written, 1 bad line")
    gaps = [(g.channel_ids, g.from_time, g.to_time, g.reason) for g in gaps_of(site.spooled())]
    assert gaps == [((1,), 2, None, "undecodable"), ((1,), 2, 5, "undecodable"), ((1,), 7, 9, "undecodable")]
    assert [(e.time, e.text, e.status) for e in site.events("text") if e.channel_id == 1] == [
        (2, "open wire", 0x80740000),
        (3, "short", 0x80740000),
        (4, "short", 0x80740000),
        (7, "short", 0x80740000),
    ]
    assert [e.text for e in site.events("channel_state")] == ["bad", "good"]
    assert [value for _, _, value in site.samples()] == [1.5, 1.6, 1.6, 1.7, 1.8]


async def test_integers_beyond_2_53_are_exact_as_text_and_reported_once_as_rounded(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    async with site.running():
        for second in range(1, 3):
            line = b"boiler pressure=9007199254740993i,mode=9007199254740993i %d000" % second
            assert (await site.push(line)).status == 204
        assert site.samples() == [(1, 1, 2.0**53), (1, 2, 2.0**53)]
        assert [e.channel_id for e in site.events("rounded")] == [1]
        assert [text for _, _, text in site.texts()] == ["9007199254740993"] * 2


async def test_unknown_status_is_uncertain_and_reported_once(tmp_path: Path) -> None:
    site = site_in(tmp_path, 'status = "tag.q"\nstatus_codes = ["fault=Bad"]')
    async with site.running():
        for second in (b"1000", b"2000"):
            body = b"boiler pressure=0 %s\nboiler,q=fault pressure=1 3%s\nboiler,q=odd pressure=2 4%s" % ((second,) * 3)
            assert (await site.push(body)).status == 204
        statuses = [code for b in site.spooled() if isinstance(b, SampleBatch) for code in b.samples.status.tolist()]
        assert statuses == [0, 0x80000000, 0x40000000] * 2
        assert [e.text for e in site.events("unknown_status")] == ["odd"]


@pytest.mark.parametrize(
    ("query", "microseconds"),
    [("", 1), ("&precision=ns", 1), ("&precision=us", 1790), ("&precision=ms", 1790000), ("&precision=s", 1790000000)],
)
async def test_timestamp_precision_is_applied(tmp_path: Path, query: str, microseconds: int) -> None:
    site = site_in(tmp_path)
    async with site.running():
        assert (await site.push(b"boiler pressure=1 1790", query)).status == 204
        assert site.samples() == [(1, microseconds, 1.0)]
        refused = await site.push(b"boiler pressure=1 1790", "&precision=minutes")
        assert (refused.status, refused.message) == (400, "precision 'minutes'; legal: ns, us, ms, s")


async def test_times_of_arrival_where_timestamps_repeat(tmp_path: Path) -> None:
    site, since = site_in(tmp_path, 'time = "arrival"'), now_us()
    async with site.running():
        for value in range(3):
            lines = f'boiler pressure={value} 1000\nboiler pressure={value + 0.5},mode="{value}" 1000'
            assert (await site.push(lines.encode())).status == 204
        assert [value for _, _, value in site.samples()] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
        times = [time for _, time, _ in site.samples()]
        assert times == sorted(set(times)) and since <= times[0] and times[-1] <= now_us()
        assert next(time for _, time, _ in site.texts()) >= since


async def test_times_of_arrival_of_one_tag(tmp_path: Path) -> None:
    """The body that is sent again with a newer line behind it is known by its beginning."""
    arrival = _TAGS.replace('address = "boiler.pressure"', 'address = "boiler.pressure"\ntime = "arrival"')
    site, since = site_in(tmp_path, tags=arrival), now_us()
    lost, newer = b'boiler pressure=1,mode="auto" 1000\n', b"boiler pressure=2 1000\n"
    async with site.running():
        await site.push_without_answer(lost)
        assert (await site.push(lost + newer)).status == 204
        (source,) = (await site.health())["sources"]
        assert (source["remarks"], source["open_gaps"]) == ({}, 0)
    first, second = sorted(set(site.samples()))
    assert (first[2], second[2]) == (1.0, 2.0) and since <= first[1] < second[1] <= now_us()
    assert {time for _, time, _ in site.texts()} == {1}


async def test_each_token_is_its_own_source(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    token_file.write(tmp_path / "p" / "other.token", "token-of-other-gateway")
    site = site_in(
        tmp_path, more='[[source]]\nname = "other"\nkind = "push"\ntoken_file = "other.token"\nunknown = "create"\n'
    )
    Registry({"edge": 1, "other": 2}, _IDS.channels, {"edge": {}, "other": {"boiler.pressure": 9}}).save(
        site.state.registry
    )
    async with site.running():
        assert (await site.push(b"boiler pressure=1 1000")).status == 204
        given = {"Authorization": "Token token-of-other-gateway"}
        assert (await site.push(b"boiler pressure=2 1000", headers=given)).status == 204
        assert sorted(site.samples()) == [(1, 1, 1.0), (9, 1, 2.0)]


async def test_good_lines_are_kept_and_bad_ones_named(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    async with site.running():
        body = b"boiler pressure=1 1000\nboiler pressure=\nboiler pressure=3,level=3 3000\n\xff\nboiler pressure=5 5000"
        answer = await site.push(body)
        assert (answer.status, answer.body["code"]) == (400, "invalid")
        assert answer.message == (
            "partial write: 3 values written, 3 bad lines: line 2: field 'pressure': the value is missing; "
            "line 3: field 'level': channel 'boiler.level' is not a tag of the source (unknown channels are "
            "rejected); line 4: byte 0xff is not UTF-8"
        )
        assert site.samples() == [(1, 1, 1.0), (1, 3, 3.0), (1, 5, 5.0)]
        answer = await site.push(b"x\n" * 30)
        assert answer.message.startswith("0 values written, 30 bad lines: line 1: ")
        assert answer.message.endswith("line 20: found the end of the line where field=value is expected; and 10 more")


async def push_unacknowledged(site: Site, body: bytes) -> None:
    """Push to a process that is killed when it has stored the body, before its answer."""
    activate(site.state.root, site.root / "p" / "plant.toml")
    process = await children.start("tests.crashing_push_collector", "push", "--state", site.state.root)
    await until(site.ready)
    with pytest.raises(aiohttp.ClientError):
        await site.push(body)
    assert await asyncio.wait_for(process.wait(), PATIENCE) == -signal.SIGKILL


async def test_a_silent_source_is_a_gap_until_it_pushes_again(tmp_path: Path) -> None:
    site = site_in(tmp_path, 'stale_after = "100ms"')
    async with site.running():
        last = now_us()
        assert (await site.push(b"boiler pressure=1 %d" % last, "&precision=us")).status == 204

        async def stale() -> bool:
            return bool((await site.health())["sources"][0]["state"] == "disconnected")

        await until(stale)
        again = now_us()
        assert (await site.push(b"boiler pressure=2 %d" % again, "&precision=us")).status == 204
    # Where the machine is busy, it was silent before and afterwards, too, and the gap goes on.
    (gap,) = [gap for gap in gaps_of(site.spooled()) if gap.to_time == again]
    assert (gap.reason, gap.channel_ids) == ("stale", None)
    assert gap.from_time <= last  # before it, where the first body was slow to come
