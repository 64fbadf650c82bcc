"""The push endpoint over real sockets: what is answered with 204 is on disk, and reaches a real database once."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import REGISTRY

from core.batch import EventBatch, GapBatch, SampleBatch
from core.config import snapshot, token_file
from core.config.load import load
from core.config.model import Plant, WriterOptions
from core.config.settings import PushSettings, WriterSettings
from core.paths import State
from core.registry import Registry
from core.timestamps import now_us
from ingest.run.process import run_push
from ingest.spool.reader import SpoolReader
from ingest.writer.writer import Writer
from ops.ports import free_ports
from ops.registration.register import register
from ops.registration.rename import rename_channel
from tests import children
from tests.config_in_force import activate
from tests.database import Database, backup_of, rows
from tests.peers import free_port
from tests.spooling import drained
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
_NOWHERE = "postgresql://nobody:nothing@127.0.0.1:1/nothing"
_TIME = 1_790_000_000_000_000_000  # ns
_TOKEN = {"Authorization": "Token token-of-edge-gateway"}
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
    dsn: str = _NOWHERE

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
        async with session.post(url, data=io.BytesIO(body), headers=_TOKEN if headers is None else headers) as response:
            text = await response.text()
            return Answer(response.status, dict(response.headers), json.loads(text) if text else {})

    async def health(self) -> dict[str, Any]:
        port = self.plant.health.port + 3
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/health") as response:
            body: dict[str, Any] = await response.json()
            return body

    def spooled(self) -> list[Any]:
        """Every batch in the spool."""
        file = SpoolReader(self.state.spool / "push.sqlite")
        try:
            return [spooled.batch for spooled in file.read(10_000_000)]
        finally:
            file.close()

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
        events = [e for b in self.spooled() if isinstance(b, EventBatch) for e in b.events]
        return [(e.channel_id, e.time, e.text) for e in events if e.type == "text"]


def described(folder: Path, options: str = "", tags: str = _TAGS, push: str = "", more: str = "") -> Plant:
    """The configuration of a plant whose source ``edge`` pushes."""
    folder.mkdir(exist_ok=True)
    token_file.write(folder / "edge.token", "token-of-edge-gateway")
    (folder / "plant.toml").write_text(
        f'[plant]\nname = "demo"\n[health]\nport = {free_ports(5)}\n[push]\nport = {free_port()}\n{push}\n{more}\n'
        f'[[source]]\nname = "edge"\nkind = "push"\ntoken_file = "edge.token"\n{options}\n{tags}'
    )
    return load(folder / "plant.toml")


def site(folder: Path, options: str = "", tags: str = _TAGS, push: str = "", more: str = "") -> Site:
    """A plant that was registered once and whose database is away."""
    state = State(folder / "state")
    state.claim()
    _IDS.save(state.registry)
    return Site(folder, described(folder / "p", options, tags, push, more), state)


async def registered(folder: Path, database: Database, options: str = "", tags: str = _TAGS) -> Site:
    """A plant that is registered in a database."""
    state = State(folder / "state")
    state.claim()
    plant = described(folder / "p", options, tags)
    await register(plant, database.owner_dsn, state)
    return Site(folder, plant, state, database.ingest_dsn)


async def written(site: Site, database: Database) -> None:
    """Let the writer empty the spool."""
    await drained(Writer(site.state.spool, database.ingest_dsn, WriterOptions(connections=1)))


async def test_answered_body_is_durable(tmp_path: Path) -> None:
    here = site(tmp_path)
    async with here.running():
        assert (await here.push(b'boiler pressure=1.5,mode="auto" 1790000000000001999')).status == 204
        assert here.samples() == [(1, 1790000000000001, 1.5)]
        assert here.texts() == [(2, 1790000000000001, "auto")]
        (source,) = (await here.health())["sources"]
        assert (source["state"], source["samples"], source["last_sample_at"]) == ("connected", 1, 1790000000000001)


async def test_sample_that_the_writer_quarantines_raises_no_alarm(database: Database, tmp_path: Path) -> None:
    tags = _TAGS.replace('address = "boiler.pressure"\n', 'address = "boiler.pressure"\nalarm_hi = 8.0\n')
    plant = described(tmp_path / "p", tags=tags, more='[writer]\nfuture_limit = "1m"\n')
    state = State(tmp_path / "state")
    state.claim()
    await register(plant, database.owner_dsn, state)
    here = Site(tmp_path, plant, state, database.ingest_dsn)
    ahead = now_us() + 600_000_000
    async with here.running():
        assert (await here.push(b"boiler pressure=9 %d" % (ahead * 1000))).status == 204
        assert (await here.push(b"boiler pressure=9 %d" % (now_us() * 1000))).status == 204
    alarms = [e for b in here.spooled() if isinstance(b, EventBatch) for e in b.events if e.type == "alarm"]
    assert [event.time < ahead for event in alarms] == [True]
    await drained(Writer(here.state.spool, database.ingest_dsn, WriterSettings.of(plant).writer))
    assert await rows(database, "SELECT q.time_us, q.reason FROM plant.quarantine AS q") == [(ahead, "future")]
    assert await rows(database, "SELECT count(*) FROM plant.samples") == [(1,)]


async def test_text_for_a_numeric_channel_is_refused_and_recorded(tmp_path: Path) -> None:
    here = site(tmp_path)
    async with here.running():
        answer = await here.push(b'boiler pressure=1.5,mode="auto" 1000\nboiler pressure="open wire" 2000')
        assert answer.status == 400
        assert answer.message.startswith(
            "partial write: 2 values written, 1 bad line: line 2: field 'pressure': text value"
        )
        (source,) = (await here.health())["sources"]
        assert (source["state"], list(source["bad_channels"]), source["open_gaps"]) == (
            "degraded",
            ["boiler/pressure"],
            1,
        )
    async with here.running():  # goes on with the gap
        answer = await here.push(b'boiler pressure="short" 3000\nboiler pressure="short" 4000')
        assert answer.message.startswith("0 values written, 2 bad lines")
        # Of the year 2096: it will be in the quarantine, and the gap goes on.
        assert (await here.push(b"boiler pressure=1.6 4000000000000000000")).status == 204
        assert (await here.health())["sources"][0]["open_gaps"] == 1
        assert (await here.push(b"boiler pressure=1.6 5000\nboiler pressure=1.7 6000")).status == 204
        (source,) = (await here.health())["sources"]
        assert (source["state"], source["bad_channels"], source["open_gaps"]) == ("connected", {}, 0)
        both = b'boiler pressure="short" 7000\nboiler pressure=1.8 9000'
        assert (await here.push(both)).message.startswith("partial write: 1 value written, 1 bad line")
    gaps = [
        (g.channel_ids, g.from_time, g.to_time, g.reason)
        for b in here.spooled()
        if isinstance(b, GapBatch)
        for g in b.gaps
    ]
    assert gaps == [((1,), 2, None, "undecodable"), ((1,), 2, 5, "undecodable"), ((1,), 7, 9, "undecodable")]
    events = [e for b in here.spooled() if isinstance(b, EventBatch) for e in b.events]
    assert [(e.time, e.text, e.status) for e in events if e.type == "text" and e.channel_id == 1] == [
        (2, "open wire", 0x80740000),
        (3, "short", 0x80740000),
        (4, "short", 0x80740000),
        (7, "short", 0x80740000),
    ]
    assert [e.text for e in events if e.type == "channel_state"] == ["bad", "good"]
    assert [value for _, _, value in here.samples()] == [1.5, 1.6, 1.6, 1.7, 1.8]


async def test_numbers_for_a_text_channel_that_was_created_are_texts(database: Database, tmp_path: Path) -> None:
    here = await registered(tmp_path, database, 'unknown = "create"', tags="")
    async with here.running():
        assert (await here.push(b'm mode="auto" 1000\nm mode=2i 2000')).status == 204
    async with here.running():
        assert (await here.push(b"m mode=3i 3000")).status == 204
        await register(here.plant, database.owner_dsn, here.state)
        assert (await here.push(b"m mode=4i 4000")).status == 204
    assert [text for _, _, text in here.texts()] == ["auto", "2", "3", "4"]
    assert here.samples() == []


async def test_integers_beyond_2_53_are_exact_as_text_and_reported_once_as_rounded(tmp_path: Path) -> None:
    here = site(tmp_path)
    async with here.running():
        for second in range(1, 3):
            line = b"boiler pressure=9007199254740993i,mode=9007199254740993i %d000" % second
            assert (await here.push(line)).status == 204
        assert here.samples() == [(1, 1, 2.0**53), (1, 2, 2.0**53)]
        events = [e for batch in here.spooled() if isinstance(batch, EventBatch) for e in batch.events]
        assert [e.channel_id for e in events if e.type == "rounded"] == [1]
        assert [e.text for e in events if e.type == "text"] == ["9007199254740993"] * 2


async def test_unknown_status_is_uncertain_and_reported_once(tmp_path: Path) -> None:
    here = site(tmp_path, 'status = "tag.q"\nstatus_codes = ["fault=Bad"]')
    async with here.running():
        for second in (b"1000", b"2000"):
            body = b"boiler pressure=0 %s\nboiler,q=fault pressure=1 3%s\nboiler,q=odd pressure=2 4%s" % ((second,) * 3)
            assert (await here.push(body)).status == 204
        statuses = [code for b in here.spooled() if isinstance(b, SampleBatch) for code in b.samples.status.tolist()]
        assert statuses == [0, 0x80000000, 0x40000000] * 2
        events = [e for batch in here.spooled() if isinstance(batch, EventBatch) for e in batch.events]
        assert [e.text for e in events if e.type == "unknown_status"] == ["odd"]


@pytest.mark.parametrize(
    ("query", "microseconds"),
    [("", 1), ("&precision=ns", 1), ("&precision=us", 1790), ("&precision=ms", 1790000), ("&precision=s", 1790000000)],
)
async def test_timestamp_precision_is_applied(tmp_path: Path, query: str, microseconds: int) -> None:
    here = site(tmp_path)
    async with here.running():
        assert (await here.push(b"boiler pressure=1 1790", query)).status == 204
        assert here.samples() == [(1, microseconds, 1.0)]
        refused = await here.push(b"boiler pressure=1 1790", "&precision=minutes")
        assert (refused.status, refused.message) == (400, "precision 'minutes'; legal: ns, us, ms, s")


async def test_times_of_arrival_where_timestamps_repeat(tmp_path: Path) -> None:
    here, since = site(tmp_path, 'time = "arrival"'), now_us()
    async with here.running():
        for value in range(3):
            lines = f'boiler pressure={value} 1000\nboiler pressure={value + 0.5},mode="{value}" 1000'
            assert (await here.push(lines.encode())).status == 204
        assert [value for _, _, value in here.samples()] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
        times = [time for _, time, _ in here.samples()]
        assert times == sorted(set(times)) and since <= times[0] and times[-1] <= now_us()
        assert next(time for _, time, _ in here.texts()) >= since


async def test_times_of_arrival_of_one_tag(tmp_path: Path) -> None:
    """The body that is sent again with a newer line behind it is known by its beginning."""
    arrival = _TAGS.replace('address = "boiler.pressure"', 'address = "boiler.pressure"\ntime = "arrival"')
    here, since = site(tmp_path, tags=arrival), now_us()
    lost, newer = b'boiler pressure=1,mode="auto" 1000\n', b"boiler pressure=2 1000\n"
    head = f"POST /api/v2/write HTTP/1.1\r\nHost: h\r\nAuthorization: {_TOKEN['Authorization']}\r\n"
    async with here.running():
        _, writer = await asyncio.open_connection("127.0.0.1", here.plant.push.port)
        writer.write(f"{head}Content-Length: {len(lost)}\r\n\r\n".encode() + lost)
        await writer.drain()
        writer.transport.abort()

        async def stored() -> bool:
            return len(here.samples()) == 1

        await until(stored)
        assert (await here.push(lost + newer)).status == 204
        (source,) = (await here.health())["sources"]
        assert (source["remarks"], source["open_gaps"]) == ({}, 0)
    first, second = sorted(set(here.samples()))
    assert (first[2], second[2]) == (1.0, 2.0) and since <= first[1] < second[1] <= now_us()
    assert {time for _, time, _ in here.texts()} == {1}


async def test_gzip_is_accepted_and_bombs_refused(tmp_path: Path) -> None:
    here = site(tmp_path, push='max_body = "1 MiB"')
    packed = {**_TOKEN, "Content-Encoding": "gzip"}
    async with here.running():
        assert (await here.push(gzip.compress(b"boiler pressure=1 1000"), headers=packed)).status == 204
        same = {**packed, "Content-Encoding": "x-gzip"}  # RFC 9110, 8.4.1.3
        assert (await here.push(gzip.compress(b"boiler pressure=2 2000"), headers=same)).status == 204
        bomb = gzip.compress(b"boiler pressure=1 1000\n" * 1_000_000)
        assert len(bomb) < 1024**2
        assert (await here.push(bomb, headers=packed)).status == 413
        broken = await here.push(b"boiler pressure=1 1000", headers=packed)
        assert (broken.status, broken.body["code"]) == (400, "invalid")
        assert (await here.push(b"x", headers={**_TOKEN, "Content-Encoding": "br"})).status == 415
        assert here.samples() == [(1, 1, 1.0), (1, 2, 2.0)]


async def test_oversized_body_and_lines_are_refused(tmp_path: Path) -> None:
    here = site(tmp_path, push='max_body = "1 MiB"\nmax_lines = 3')
    async with here.running():
        assert (await here.push(b"#" * (1024**2 + 1))).body == {
            "code": "request too large",
            "message": "the body is larger than max_body, which is 1048576 bytes (inflated)",
        }

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(1025):
                yield b"#" * 1024

        url = f"{here.url}/api/v2/write"
        async with aiohttp.ClientSession() as own, own.post(url, data=chunks(), headers=_TOKEN) as response:
            assert response.status == 413
        assert (await here.push(b"boiler pressure=1 1000\n" * 4)).status == 413
        assert (await here.push(b"boiler pressure=1 1000\n" * 3)).status == 204
        assert (await here.push(b"")).status == 204


async def test_too_fast_gateway_gets_retry_after(tmp_path: Path) -> None:
    here = site(tmp_path, "max_rate = 10")
    async with here.running():
        assert (await here.push(b"boiler pressure=1 1000\n" * 200)).status == 204
        refused = await here.push(b"boiler pressure=1 1000\n")
        assert (refused.status, refused.body["code"]) == (429, "too many requests")
        assert 1 <= int(refused.headers["Retry-After"]) <= 19


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"Authorization": "Token wrong"},
        {"Authorization": "Basic token-of-edge-gateway"},
        {"Authorization": "Token"},
    ],
    ids=["none", "wrong", "scheme", "empty"],
)
async def test_request_without_token_is_refused(
    tmp_path: Path, given: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    here = site(tmp_path)
    before = REGISTRY.get_sample_value("plantlog_wrong_tokens_total", {"endpoint": "push"}) or 0.0
    async with here.running():
        refused = await here.push(b"boiler pressure=1 1000", headers=given)
        assert (refused.status, refused.body) == (401, {"code": "unauthorized", "message": "unauthorized access"})
        assert REGISTRY.get_sample_value("plantlog_wrong_tokens_total", {"endpoint": "push"}) == before + 1
        assert "request from 127.0.0.1 rejected: missing or wrong token" in caplog.text
        wrong = (await here.health())["wrong_tokens"]
        assert (wrong["count"], wrong["last_from"]) == (1, "127.0.0.1")
        assert abs(wrong["last_at"] - now_us()) < 600e6
        assert (
            await here.push(b"boiler pressure=1 1000", headers={"Authorization": "Bearer token-of-edge-gateway"})
        ).status == 204
        assert len(here.samples()) == 1


async def test_each_token_is_its_own_source(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    token_file.write(tmp_path / "p" / "other.token", "token-of-other-gateway")
    here = site(
        tmp_path, more='[[source]]\nname = "other"\nkind = "push"\ntoken_file = "other.token"\nunknown = "create"\n'
    )
    Registry({"edge": 1, "other": 2}, _IDS.channels, {"edge": {}, "other": {"boiler.pressure": 9}}).save(
        here.state.registry
    )
    async with here.running():
        assert (await here.push(b"boiler pressure=1 1000")).status == 204
        given = {"Authorization": "Token token-of-other-gateway"}
        assert (await here.push(b"boiler pressure=2 1000", headers=given)).status == 204
        assert sorted(here.samples()) == [(1, 1, 1.0), (9, 1, 2.0)]


async def test_good_lines_are_kept_and_bad_ones_named(tmp_path: Path) -> None:
    here = site(tmp_path)
    async with here.running():
        body = b"boiler pressure=1 1000\nboiler pressure=\nboiler pressure=3,level=3 3000\n\xff\nboiler pressure=5 5000"
        answer = await here.push(body)
        assert (answer.status, answer.body["code"]) == (400, "invalid")
        assert answer.message == (
            "partial write: 3 values written, 3 bad lines: line 2: field 'pressure': the value is missing; "
            "line 3: field 'level': channel 'boiler.level' is not a tag of the source (unknown channels are "
            "rejected); line 4: byte 0xff is not UTF-8"
        )
        assert here.samples() == [(1, 1, 1.0), (1, 3, 3.0), (1, 5, 5.0)]
        answer = await here.push(b"x\n" * 30)
        assert answer.message.startswith("0 values written, 30 bad lines: line 1: ")
        assert answer.message.endswith("line 20: found the end of the line where field=value is expected; and 10 more")


async def test_unknown_requests_get_the_same_error_format(tmp_path: Path) -> None:
    here = site(tmp_path)
    async with here.running(), aiohttp.ClientSession() as session:
        for path in ("/ping", "/api/v2/ping"):
            async with session.get(here.url + path) as response:
                assert (response.status, response.headers["X-Influxdb-Version"][:2]) == (204, "2.")
        async with session.head(here.url + "/ping") as response:
            assert response.status == 204
        async with session.get(here.url + "/health") as response:
            assert (await response.json())["status"] == "pass"
        async with session.get(here.url + "/api/v2/write") as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")
            assert (await response.json())["code"] == "method not allowed"
        async with session.post(here.url + "/query") as response:
            assert (response.status, (await response.json())["code"]) == (404, "not found")


async def test_client_waiting_for_100_continue_gets_it(tmp_path: Path) -> None:
    here = site(tmp_path)
    async with here.running(), aiohttp.ClientSession() as session:
        url = f"{here.url}/api/v2/write"
        async with session.post(url, data=b"boiler pressure=1 1000", headers=_TOKEN, expect100=True) as response:
            assert response.status == 204


async def test_a_full_spool_is_503_and_the_gateways_retry_loses_nothing(tmp_path: Path) -> None:
    here = site(tmp_path, "max_rate = 10000000", more='[spool]\nmax_bytes = "1 MiB"')
    bodies = [
        b"\n".join(b"boiler pressure=%d %d" % (i, _TIME + (n * 10_000 + i) * 1000) for i in range(10_000))
        for n in range(10)
    ]
    async with here.running():
        answers = [await here.push(body) for body in bodies]
        taken = [answer.status == 204 for answer in answers]
        assert any(taken)
        refused = next(answer for answer in answers if answer.status != 204)
        assert (refused.status, refused.body["code"], refused.headers["Retry-After"]) == (503, "unavailable", "5")
        assert (await here.health())["sources"][0]["state"] == "degraded"
        held: list[tuple[int, int, float]] = []
        for body in (body for body, done in zip(bodies, taken, strict=True) if not done):
            status = 503
            while status == 503:
                held += here.samples()
                file = SpoolReader(here.state.spool / "push.sqlite")
                file.delete([spooled.sequence for spooled in file.read(10_000_000)])
                file.close()
                status = (await here.push(body)).status
            assert status == 204
        held += here.samples()
        assert len(held) == len(set(held)) == 100_000
        (source,) = (await here.health())["sources"]
        assert (source["state"], source["open_gaps"]) == ("connected", 0)


async def test_a_retry_of_a_body_adds_nothing(database: Database, tmp_path: Path) -> None:
    here = await registered(tmp_path, database)
    body = b'boiler pressure=1.5,mode="auto" 1790000000000000000\nboiler pressure=2 1790000000001000000'
    async with here.running():
        for _ in range(3):
            assert (await here.push(body)).status == 204
    await written(here, database)
    assert await rows(database, "SELECT count(*), sum(value) FROM plant.samples") == [(2, 3.5)]
    assert await rows(database, "SELECT type, text FROM plant.event WHERE type IN ('text', 'conflict')") == [
        ("text", "auto")
    ]


async def push_unacknowledged(here: Site, body: bytes) -> None:
    """Push to a process that is killed when it has stored the body, before its answer."""
    activate(here.state.root, here.root / "p" / "plant.toml")
    process = await children.start("tests.crashing_push_collector", "push", "--state", here.state.root)
    await until(here.ready)
    with pytest.raises(aiohttp.ClientError):
        await here.push(body)
    assert await asyncio.wait_for(process.wait(), PATIENCE) == -signal.SIGKILL


async def test_retry_after_a_kill_before_the_answer_adds_nothing(database: Database, tmp_path: Path) -> None:
    here = await registered(tmp_path, database)
    body = b'boiler pressure=1.5,mode="auto"\nboiler pressure=2\nboiler pressure=3 1790000000000000000'
    before = now_us()
    await push_unacknowledged(here, body)
    killed = now_us()
    assert len(here.samples()) == 3
    async with here.running():
        assert (await here.push(body)).status == 204
        assert len(here.samples()) == 6
    await written(here, database)
    found = await rows(database, "SELECT value, (extract(epoch FROM time) * 1e6)::int8 FROM plant.samples ORDER BY 1")
    assert [value for value, _ in found] == [1.5, 2.0, 3.0]
    assert before <= found[0][1] < found[1][1] <= killed
    assert await rows(database, "SELECT text FROM plant.event WHERE type = 'text'") == [("auto",)]
    assert await rows(database, "SELECT count(*) FROM plant.event WHERE type = 'conflict'") == [(0,)]


@pytest.mark.parametrize("close", [False, True], ids=["keep-alive", "close"])
async def test_same_body_after_an_answer_is_a_new_value(tmp_path: Path, close: bool) -> None:
    here = site(tmp_path)
    headers = {**_TOKEN, "Connection": "close"} if close else _TOKEN
    async with here.running(), aiohttp.ClientSession() as session:
        for _ in range(3):
            assert (await here.push(b"boiler pressure=20", headers=headers, session=session)).status == 204
    times = [time for _, time, _ in here.samples()]
    assert len(set(times)) == 3
    assert times == sorted(times)


async def test_a_body_whose_answer_never_arrived_is_a_retry(tmp_path: Path) -> None:
    """The gateway's connection breaks while its body is on the way to disk."""
    here = site(tmp_path)
    head = f"POST /api/v2/write HTTP/1.1\r\nHost: h\r\nAuthorization: {_TOKEN['Authorization']}\r\n"
    async with here.running():
        _, writer = await asyncio.open_connection("127.0.0.1", here.plant.push.port)
        writer.write(f"{head}Content-Length: 18\r\n\r\nboiler pressure=20".encode())
        await writer.drain()
        writer.transport.abort()

        async def stored() -> bool:
            return len(here.samples()) == 1

        await until(stored)
        assert (await here.push(b"boiler pressure=20")).status == 204
        assert len(here.samples()) == 2
        assert len(set(here.samples())) == 1


async def test_new_channels_are_created_once_also_without_database(database: Database, tmp_path: Path) -> None:
    options = 'unknown = "create"\nchannel = "{tag.host}/{measurement}.{field}"'
    here = await registered(tmp_path, database, options, tags="")
    body = b'cpu,host=a\\ b idle=5,on=true,mode="x" 1790000000000000000\ncpu,host=c idle=6 1790000000000000000'
    async with here.running():
        assert {a.status for a in await asyncio.gather(*(here.push(body) for _ in range(4)))} == {204}
    here.state.dsn_file("ingest").write_text(_NOWHERE)
    more = b"cpu,host=c idle=7 1790000000001000000"
    async with here.running():
        assert (await here.push(more)).status == 204
        later = await here.push(more + b"\ncpu,host=d idle=8 1790000000001000000")
        assert (later.status, later.body["code"], later.headers["Retry-After"]) == (503, "unavailable", "5")
        assert later.message.startswith("1 value written; cannot create channels in the database")
    await written(here, database)
    named = "SELECT c.name, c.kind, c.address = c.name, s.value FROM plant.channel c LEFT JOIN plant.samples s"
    assert await rows(database, f"{named} ON s.channel_id = c.id ORDER BY c.name, s.value") == [
        ("a%20b/cpu.idle", "analog", True, 5.0),
        ("a%20b/cpu.mode", "text", True, None),
        ("a%20b/cpu.on", "discrete", True, 1.0),
        ("c/cpu.idle", "analog", True, 6.0),
        ("c/cpu.idle", "analog", True, 7.0),
    ]


async def test_a_new_registration_keeps_what_was_created(database: Database, tmp_path: Path) -> None:
    here = await registered(tmp_path, database, 'unknown = "create"', tags="")
    async with here.running():
        assert (await here.push(b"m a=1 1000")).status == 204
        again = (await register(here.plant, database.owner_dsn, here.state)).registry
        assert (await here.push(b"m a=2,b=2 2000")).status == 204
        assert len({channel for channel, _, _ in here.samples()}) == 2
    assert list(again.created["edge"]) == ["m.a"]
    assert await rows(database, "SELECT name FROM plant.channel WHERE retired_at IS NULL ORDER BY 1") == [
        ("m.a",),
        ("m.b",),
    ]


async def test_renamed_created_channel_continues(database: Database, tmp_path: Path) -> None:
    here = await registered(tmp_path, database, 'unknown = "create"', tags="")
    async with here.running():
        assert (await here.push(b"m a=1 1000")).status == 204
    row = await rename_channel(database.owner_dsn, here.state, "m.a", "area/a")
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
    here = await registered(tmp_path, database, 'unknown = "create"', tags="")
    async with backup_of(database) as backup:
        async with here.running():
            assert (await here.push(b"m a=1 1000")).status == 204
        here.state.dsn_file("ingest").write_text(backup.ingest_dsn)
        async with here.running():
            assert (await here.push(b"m a=2,b=2 2000")).status == 204
        assert await rows(backup, "SELECT name FROM plant.channel") == [("m.b",)]
        created = (await register(here.plant, backup.owner_dsn, here.state)).registry.created["edge"]
        assert sorted(created) == ["m.a", "m.b"]
        assert {channel for channel, _, _ in here.samples()} == set(created.values())
        assert len(set(created.values())) == 2


async def test_name_of_another_source_is_refused(database: Database, tmp_path: Path) -> None:
    tags = '[[source.tag]]\nname = "m.a"\naddress = "x.y"\n'
    here = await registered(tmp_path, database, 'unknown = "create"\nmax_channels = 1', tags)
    async with here.running():
        assert (await here.push(b"m a=1 1000")).message.endswith(
            "line 1: field 'a': the channel name 'm.a' is used by a tag with the address 'x.y'"
        )
        assert (await here.push(b"x y=1 1000\nm b=1 1000")).status == 204
        assert "exceeds max_channels, which is 1" in (await here.push(b"m c=1 1000")).message


async def test_a_silent_source_is_a_gap_until_it_pushes_again(database: Database, tmp_path: Path) -> None:
    here = await registered(tmp_path, database, 'stale_after = "100ms"')
    async with here.running():
        last = now_us()
        assert (await here.push(b"boiler pressure=1 %d" % last, "&precision=us")).status == 204

        async def stale() -> bool:
            return bool((await here.health())["sources"][0]["state"] == "disconnected")

        await until(stale)
        again = now_us()
        assert (await here.push(b"boiler pressure=2 %d" % again, "&precision=us")).status == 204
    await written(here, database)
    times = "(extract(epoch FROM from_time) * 1e6)::int8, (extract(epoch FROM to_time) * 1e6)::int8"
    gaps = await rows(database, f"SELECT {times}, reason, channel_id FROM plant.gap ORDER BY 2")
    (gap,) = [gap for gap in gaps if gap[1] == again]  # where the machine is busy there are others
    assert gap[2:] == ("stale", None)
    assert gap[0] <= last  # before it, where the first body was slow to come


async def test_gateway_refused_for_lack_of_room_is_not_silent(tmp_path: Path) -> None:
    stale = 4.0  # s, which no machine is too busy for
    here = site(tmp_path, f'stale_after = "{stale:g}s"')
    head = f"POST /api/v2/write HTTP/1.1\r\nHost: h\r\nAuthorization: {_TOKEN['Authorization']}\r\n"
    async with here.running():
        assert (await here.push(b"boiler pressure=1 1000")).status == 204
        opened = [await asyncio.open_connection("127.0.0.1", here.plant.push.port) for _ in range(8)]
        for _, writer in opened:
            writer.write(f"{head}Content-Length: 22\r\n\r\nboiler".encode())
        begun, last, states = time.monotonic(), 0.0, set()
        while last < 1.5 * stale:
            answer = await here.push(b"boiler pressure=2 2000")
            last = time.monotonic() - begun
            states.add((answer.status, (await here.health())["sources"][0]["state"]))
        for _, writer in opened:
            writer.write(b" pressure=3 3000")
        for reader, writer in opened:
            assert (await reader.readline()).startswith(b"HTTP/1.1 204")
            writer.close()
        assert {state for _, state in states} == {"connected"}
        assert 503 in {status for status, _ in states}
        assert [batch for batch in here.spooled() if isinstance(batch, GapBatch)] == []
