"""Counts that gateways push: over HTTP into event_count_1m, once for each body, however often it is sent."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from core.batch import CountBatch
from tests.database import Database, rows
from tests.integration.ingest.test_push import Site, push_unacknowledged, registered, site_in, written

COUNTS = 'counts = ["pulses", "alarms.*", "line.rejects"]'
_TAG = '[[source.tag]]\nname = "line1/pulses"\naddress = "line1.pulses"\nkind = "counter"\n'
_TIME = 1_790_000_000_000_000_000  # ns
CELLS = "SELECT type, channel_id, n FROM plant.event_count_1m WHERE type LIKE '%.%' ORDER BY 1, 2"


def increments(site: Site) -> list[tuple[str, int, int, int]]:
    """(type, channel, µs, n) of every increment in the spool."""
    return [
        (b.types[kind], *row)
        for b in site.spooled()
        if isinstance(b, CountBatch)
        for kind, *row in zip(b.type.tolist(), b.channel_id.tolist(), b.time.tolist(), b.n.tolist(), strict=True)
    ]


async def test_counts_are_distinguished_from_samples(tmp_path: Path) -> None:
    site = site_in(tmp_path, f'{COUNTS}\nchannel = "{{measurement}}.{{field}}"')
    body = (
        b"pulses a=3i,b=4u 1000\n"  # all fields of a measurement
        b"boiler pressure=1.5 1000\n"
        b"alarms high\\ temp=1i 2000\n"
        b"line rejects=0i 3000\n"
        b"pulses a=3i 1000\n"  # a second line of one body is a second count
    )
    async with site.running():
        assert (await site.push(body)).status == 204
        assert increments(site) == [
            ("pulses.a", 0, 1, 3),
            ("pulses.b", 0, 1, 4),
            ("alarms.high%20temp", 0, 2, 1),
            ("line.rejects", 0, 3, 0),
            ("pulses.a", 0, 1, 3),
        ]
        assert site.samples() == [(1, 1, 1.5)]
        (source,) = (await site.health())["sources"]
        assert source["state"] == "connected"


async def test_invalid_count_is_named_with_its_line_and_the_rest_kept(tmp_path: Path) -> None:
    site = site_in(tmp_path, COUNTS)
    body = (
        b'pulses a=3 1000\npulses a=2i,b=-1i 2000\npulses a="x",b=true 3000\n'
        b"pulses a=10000000001i\nline rejects=1i 4000"
    )
    async with site.running():
        answer = await site.push(body)
        assert (answer.status, answer.body["code"]) == (400, "invalid")
        assert answer.message == (
            "partial write: 2 values written, 4 bad lines: "
            "line 1: field 'a': found 3.0; a count is a whole number, as in 3i; "
            "line 2: field 'b': found -1; a count is from 0 to 10000000000; "
            "line 3: field 'a': found a text; a count is a whole number, as in 3i; "
            "line 3: field 'b': found true; a count is a whole number, as in 3i; "
            "line 4: field 'a': found 10000000001; a count is from 0 to 10000000000"
        )
        assert increments(site) == [("pulses.a", 0, 2, 2), ("line.rejects", 0, 4, 1)]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
async def test_retry_of_a_committed_body_adds_nothing(database: Database, tmp_path: Path, packed: bool) -> None:
    site = await registered(tmp_path, database, f'{COUNTS}\nchannel = "{{tag.line}}.{{measurement}}"', _TAG)
    body = b"pulses,line=line1 a=3i %d\npulses,line=line2 a=5i %d\nalarms high=1i %d" % (_TIME, _TIME, _TIME)
    sent = gzip.compress(body) if packed else body
    headers = {"Authorization": "Token token-of-edge-gateway", **({"Content-Encoding": "gzip"} if packed else {})}
    other = b"pulses,line=line1 a=10i %d" % _TIME
    async with site.running():
        for _ in range(3):  # twice before, or while, it is written
            assert (await site.push(sent, headers=headers)).status == 204
        await written(site, database)
        assert site.spooled() == []
        for _ in range(2):
            assert (await site.push(sent, headers=headers)).status == 204
            await written(site, database)
        assert (await site.push(other)).status == 204
        together = await asyncio.gather(*(site.push(b"pulses a=100i %d" % _TIME) for _ in range(4)))
        assert {answer.status for answer in together} == {204}
    async with site.running():  # a process that knows nothing of it
        assert (await site.push(sent, headers=headers)).status == 204
    await written(site, database)
    ((channel,),) = await rows(database, "SELECT id FROM plant.channel WHERE name = 'line1/pulses'")
    assert await rows(database, CELLS) == [
        ("alarms.high", 0, 1),
        ("pulses.a", 0, 105),
        ("pulses.a", channel, 13),
    ]
    assert await rows(database, "SELECT count(*) FROM plant.samples") == [(0,)]
    facts = await rows(
        database, "SELECT bool_and(sequence < 0), count(*) FROM plant.ingest_batch WHERE kind = 'counts'"
    )
    assert facts == [(True, 3)]


async def test_retry_after_a_kill_before_the_answer_adds_nothing(database: Database, tmp_path: Path) -> None:
    site = await registered(tmp_path, database, COUNTS, tags="")
    body = b"pulses a=7i\nalarms high=1i %d" % _TIME
    await push_unacknowledged(site, body)
    assert len(increments(site)) == 2
    await written(site, database)
    async with site.running():
        assert (await site.push(body)).status == 204
        assert len(increments(site)) == 2
    await written(site, database)
    assert await rows(database, CELLS) == [("alarms.high", 0, 1), ("pulses.a", 0, 7)]


async def test_counts_are_taken_only_with_the_whole_body(database: Database, tmp_path: Path) -> None:
    """A channel that can't be created now: what can be kept is kept, but an increment must not come twice."""
    site = await registered(tmp_path, database, f'{COUNTS}\nunknown = "create"', tags="")
    dsn = site.state.dsn_file("ingest")
    async with site.running():
        assert (await site.push(b"pulses a=1i %d" % _TIME)).status == 204
    dsn.write_text("postgresql://nobody:nothing@127.0.0.1:1/nothing")
    body = b"pulses a=10i,b=20i %d\nboiler pressure=1.5 %d" % (_TIME, _TIME)
    async with site.running():
        for _ in range(2):
            later = await site.push(body)
            assert (later.status, later.body["code"]) == (503, "unavailable")
        assert len(increments(site)) == 1
    dsn.write_text(database.ingest_dsn)
    async with site.running():
        for _ in range(2):
            assert (await site.push(body)).status == 204
    await written(site, database)
    of_channels = "plant.event_count_1m n JOIN plant.channel c ON c.id = n.channel_id"
    named = await rows(database, f"SELECT c.name, c.kind, n.type, n.n FROM {of_channels} ORDER BY 1")
    assert named == [("pulses.a", "counter", "pulses.a", 11), ("pulses.b", "counter", "pulses.b", 20)]
    assert await rows(database, "SELECT sum(value) FROM plant.samples") == [(1.5,)]
