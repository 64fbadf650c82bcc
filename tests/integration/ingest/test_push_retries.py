"""Bodies that a gateway sends again: each sample once, whatever was lost on the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core.batch import CountBatch
from core.timestamps import now_us
from ingest.spool.reader import SpoolReader
from tests.batches import gaps_of
from tests.database import Database, rows
from tests.integration.ingest.test_push import TOKEN, Site, push_unacknowledged, registered, site_in, written
from tests.integration.ingest.test_push_counts import COUNTS, increments

_TIME = 1_790_000_000_000_000_000  # ns


@pytest.mark.parametrize(
    ("line", "stored"), [(b"boiler pressure=%d %d", Site.samples), (b"pulses a=%di %d", increments)]
)
async def test_a_full_spool_is_503_and_the_gateways_retry_loses_nothing(
    tmp_path: Path, line: bytes, stored: Callable[[Site], Sequence[Any]]
) -> None:
    site = site_in(tmp_path, f"{COUNTS}\nmax_rate = 10000000", more='[spool]\nmax_bytes = "1 MiB"')
    bodies = [
        b"\n".join(line % (i * 999_983, _TIME + (n * 10_000 + i) * 1000) for i in range(10_000)) for n in range(12)
    ]
    async with site.running():
        answers = [await site.push(body) for body in bodies]
        taken = [answer.status == 204 for answer in answers]
        assert any(taken)
        refused = next(answer for answer in answers if answer.status != 204)
        assert (refused.status, refused.body["code"], refused.headers["Retry-After"]) == (503, "unavailable", "5")
        assert (await site.health())["sources"][0]["state"] == "degraded"
        held: list[Any] = []
        for body in (body for body, done in zip(bodies, taken, strict=True) if not done):
            status = 503
            while status == 503:
                held += stored(site)
                file = SpoolReader(site.state.spool / "push.sqlite")
                file.delete([spooled.sequence for spooled in file.read(10_000_000)])
                file.close()
                status = (await site.push(body)).status
            assert status == 204
        held += stored(site)
        assert len(held) == len(set(held)) == 120_000
        (source,) = (await site.health())["sources"]
        assert (source["state"], source["open_gaps"]) == ("connected", 0)


async def test_a_retry_of_a_body_adds_nothing(database: Database, tmp_path: Path) -> None:
    site = await registered(tmp_path, database)
    body = b'boiler pressure=1.5,mode="auto" 1790000000000000000\nboiler pressure=2 1790000000001000000'
    async with site.running():
        for _ in range(3):
            assert (await site.push(body)).status == 204
    await written(site, database)
    assert await rows(database, "SELECT count(*), sum(value) FROM plant.samples") == [(2, 3.5)]
    assert await rows(database, "SELECT type, text FROM plant.event WHERE type IN ('text', 'conflict')") == [
        ("text", "auto")
    ]


async def test_retry_after_a_kill_before_the_answer_adds_nothing(database: Database, tmp_path: Path) -> None:
    site = await registered(tmp_path, database)
    body = b'boiler pressure=1.5,mode="auto"\nboiler pressure=2\nboiler pressure=3 1790000000000000000'
    before = now_us()
    await push_unacknowledged(site, body)
    killed = now_us()
    assert len(site.samples()) == 3
    async with site.running():
        assert (await site.push(body)).status == 204
        assert len(site.samples()) == 6
    await written(site, database)
    found = await rows(database, "SELECT value, (extract(epoch FROM time) * 1e6)::int8 FROM plant.samples ORDER BY 1")
    assert [value for value, _ in found] == [1.5, 2.0, 3.0]
    assert before <= found[0][1] < found[1][1] <= killed
    assert await rows(database, "SELECT text FROM plant.event WHERE type = 'text'") == [("auto",)]
    assert await rows(database, "SELECT count(*) FROM plant.event WHERE type = 'conflict'") == [(0,)]


@pytest.mark.parametrize("close", [False, True], ids=["keep-alive", "close"])
async def test_same_body_after_an_answer_is_a_new_value(tmp_path: Path, close: bool) -> None:
    site = site_in(tmp_path, COUNTS)
    headers = {**TOKEN, "Connection": "close"} if close else TOKEN
    async with site.running(), aiohttp.ClientSession() as session:
        for _ in range(3):
            answer = await site.push(b"boiler pressure=20\npulses a=2i", headers=headers, session=session)
            assert answer.status == 204
    times = [time for _, time, _ in site.samples()]
    assert len(set(times)) == 3
    assert times == sorted(times)
    assert len({batch.digest for batch in site.spooled() if isinstance(batch, CountBatch)}) == 3


async def test_a_body_whose_answer_never_arrived_is_a_retry(tmp_path: Path) -> None:
    """The gateway's connection breaks while its body is on the way to disk."""
    site = site_in(tmp_path)
    async with site.running():
        await site.push_without_answer(b"boiler pressure=20")
        assert (await site.push(b"boiler pressure=20")).status == 204
        assert len(site.samples()) == 2
        assert len(set(site.samples())) == 1


async def test_gateway_refused_for_lack_of_room_is_not_silent(tmp_path: Path) -> None:
    stale = 4.0  # s, which no machine is too busy for
    site = site_in(tmp_path, f'stale_after = "{stale:g}s"')
    head = f"POST /api/v2/write HTTP/1.1\r\nHost: h\r\nAuthorization: {TOKEN['Authorization']}\r\n"
    async with site.running():
        assert (await site.push(b"boiler pressure=1 1000")).status == 204
        opened = [await asyncio.open_connection("127.0.0.1", site.plant.push.port) for _ in range(8)]
        for _, writer in opened:
            writer.write(f"{head}Content-Length: 22\r\n\r\nboiler".encode())
        begun, last, states = time.monotonic(), 0.0, set()
        while last < 1.5 * stale:
            answer = await site.push(b"boiler pressure=2 2000")
            last = time.monotonic() - begun
            states.add((answer.status, (await site.health())["sources"][0]["state"]))
        for _, writer in opened:
            writer.write(b" pressure=3 3000")
        for reader, writer in opened:
            assert (await reader.readline()).startswith(b"HTTP/1.1 204")
            writer.close()
        assert {state for _, state in states} == {"connected"}
        assert 503 in {status for status, _ in states}
        assert gaps_of(site.spooled()) == []
