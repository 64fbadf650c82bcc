"""The push endpoint's parts: names, rows, gzip, rate, retries, silence."""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.batch import Event
from core.config.sources import PushTag
from core.timestamps import now_us
from ingest.push.arrivals import Arrivals
from ingest.push.body import BodyRefused, GzipReader
from ingest.push.gateway import RateLimit
from ingest.push.line_protocol import Series, parse
from ingest.push.mapping import CountRule, NoChannelName, StatusRule, Template, digest_of, names, rows
from ingest.push.silence import Silence
from ingest.status import SourceStatus
from tests.manual_clock import ManualClock
from tests.memory_appender import MemoryAppender
from tests.samples import T0
from tests.waiting import until

# names


def test_channel_name_is_made_from_the_template() -> None:
    series = Series("cpu", {"host": "edge-1", "line name": "a/b ~%é"})
    assert Template("{measurement}.{field}").name(series, "idle") == "cpu.idle"
    assert Template("{tag.host}/{measurement}/{field}").name(series, "idle") == "edge-1/cpu/idle"
    assert Template("x-{tag.line name}").name(series, "idle") == "x-a%2Fb%20%7E%25%C3%A9"
    with pytest.raises(NoChannelName, match=r"tag 'site' of the template .* is missing"):
        Template("{tag.site}.{field}").name(series, "idle")
    with pytest.raises(NoChannelName, match="is 256 characters long"):
        Template("{field}").name(series, "a" * 256)


_TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


@given(_TEXTS, _TEXTS, _TEXTS)
def test_created_channel_names_are_valid_and_unambiguous(a: str, b: str, c: str) -> None:
    name = Template("p/{measurement}/{tag.t}/{field}").name(Series(a, {"t": b}), c)
    PushTag(name=name, address=name)
    assert [unquote(part) for part in name.split("/")] == ["p", a, b, c]


# rows

_BODY = b"""\
m,h=a x=1,y=2i,on=t,mode="auto" 1000
m,h=a x=1.5
m,h=a x=2.5,mode="off"
m,h=b x=3 4000
m x=4 5000
"""


def test_points_become_columns_and_texts() -> None:
    points = parse(_BODY).points
    named = names(points, Template("{tag.h}.{field}"))
    assert named.kinds == {"a.x": "analog", "a.y": "analog", "a.on": "discrete", "a.mode": "text", "b.x": "analog"}
    ids = {"a.x": 1, "a.y": 2, "a.on": 3, "a.mode": 4, "b.x": None}
    found = rows(points, {**{key: ids[name] for key, name in named.of.items()}, **named.unnamed}, T0, text_channels={4})
    samples = found.samples()
    assert list(zip(samples.channel.tolist(), samples.time.tolist(), samples.value.tolist(), strict=True)) == [
        (1, 1, 1.0),
        (2, 1, 2.0),
        (3, 1, 1.0),
        (1, T0, 1.5),
        (1, T0 + 1, 2.5),
    ]
    assert not samples.status.any()
    assert found.texts == [Event("text", 1, 4, 0, "auto"), Event("text", T0, 4, 0, "off")]
    assert found.waiting == 1
    assert [str(bad) for bad in found.bad] == [
        "line 5: field 'x': tag 'h' of the template '{tag.h}.{field}' is missing"
    ]


def test_text_for_a_numeric_channel_is_a_bad_event() -> None:
    points = parse(b'm x="open wire",y="auto" 1000\nm x=1.5 2000').points
    places = {key: "xy".index(key[1]) + 1 for key in names(points, Template("{field}")).of}
    found = rows(points, places, T0, text_channels={2})
    assert (len(found), found.value.tolist(), [e.text for e in found.texts]) == (2, [1.5], ["auto"])
    assert found.misplaced == [Event("text", 1, 1, 0x80740000, "open wire")]
    assert [str(bad) for bad in found.bad] == [
        "line 1: field 'x': text value for a numeric channel; stored as an event. Set kind = \"text\" for text values"
    ]


_STATUSES = """\
m,q=good x=1 1000
m,q=BAD x=2,t="a" 2000
m,q=192 x=3 3000
m,q=OK\\ (0x40000000) x=4 4000
m,q=open\\ wire x=5 5000
m,q=odd x=6,t="b" 6000
m x=7 7000
"""


def test_a_tag_tells_the_status_of_a_line() -> None:
    points = parse(_STATUSES.encode()).points
    places = {key: "xt".index(key[1]) + 1 for key in names(points, Template("{field}")).of}
    rule = StatusRule("tag.q", ["192=Good", "Open wire=0x808B0000"])
    found = rows(points, places, T0, text_channels={2}, statuses=rule)
    samples = found.samples()
    bad, uncertain = 0x80000000, 0x40000000
    assert samples.status.tolist() == [0, bad, 0, uncertain, 0x808B0000, uncertain, 0]
    assert samples.value.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert [(e.text, e.status) for e in found.texts] == [("a", bad), ("b", uncertain)]
    assert found.unknown_statuses == {"odd"}
    assert not rows(points, places, T0, text_channels={2}).samples().status.any()


def test_a_field_that_tells_the_status_is_no_channel() -> None:
    body = b'm x=1,q="uncertain" 1000\nm q=0i,x=2 2000\nm x=3,q=2147483648u 3000\nm x=4,q=f 4000\nm x=5,q=192.0 5000'
    points, rule = parse(body).points, StatusRule("field.q", ["false=Bad", "192=Good"])
    named = names(points, Template("{field}"), status=rule)
    assert set(named.kinds) == {"x"}
    found = rows(points, dict.fromkeys(named.of, 1), T0, statuses=rule)
    assert found.samples().status.tolist() == [0x40000000, 0, 0x80000000, 0x80000000, 0]
    assert not found.unknown_statuses


def test_integers_beyond_double_precision_are_reported_and_exact_as_text() -> None:
    body = b"m a=9007199254740992i,b=9007199254740993i,c=18446744073709551615u,d=-9007199254740993i,e=t,f=1.5 1000"
    points = parse(body).points
    places = {key: "abcdef".index(key[1]) + 1 for key in names(points, Template("{field}")).of}
    found = rows(points, places, T0)
    assert found.rounded == {2, 3, 4}
    assert (len(found.value), found.texts) == (6, [])
    found = rows(points, places, T0, text_channels={2, 3, 4, 5, 6})
    assert [e.text for e in found.texts] == [
        "9007199254740993",
        "18446744073709551615",
        "-9007199254740993",
        "true",
        "1.5",
    ]
    assert (found.value.tolist(), found.rounded) == ([2.0**53], set())


def test_two_fields_of_a_line_for_one_channel_are_an_error() -> None:
    points = parse(b"m a=1,b=2 1000\nm a=3 2000").points
    named = names(points, Template("{measurement}"))
    found = rows(points, dict.fromkeys(named.of, 1), T0)
    assert found.value.tolist() == [1.0, 3.0]
    assert [bad.line for bad in found.bad] == [1]


# counts


@pytest.mark.parametrize(
    ("patterns", "counted"),
    [
        (["pulses"], ["pulses.a"]),
        (["pulses.a", "alarms.*"], ["pulses.a", "alarms.high%2Flow"]),
        (["*.n"], ["line.2.n"]),
        (["line.2"], ["line.2.n"]),
        (["Pulses", "pulses.b", "puls"], []),
        (["*"], ["pulses.a", "alarms.high%2Flow", "line.2.n"]),
    ],
)
def test_count_rule_matches_measurements_or_fields(patterns: list[str], counted: list[str]) -> None:
    rule = CountRule(patterns)
    found = [rule.type(Series(m, {}), f) for m, f in (("pulses", "a"), ("alarms", "high/low"), ("line.2", "n"))]
    assert [kind for kind in found if kind is not None] == counted


def test_count_is_no_sample_and_creates_a_counter_channel() -> None:
    points = parse(b"m,h=a n=3i,x=1 1000\nm,h=a n=4i\nm,h=b n=0i").points
    named = names(points, Template("{tag.h}"), CountRule(["m.n"]))
    assert named.kinds == {"a": "counter", "b": "counter"}
    found = rows(points, dict.fromkeys(named.of, 7), T0, named.counts)
    assert (found.bad, found.waiting, found.value.tolist()) == ([], 0, [1.0])
    assert (found.counts.time.tolist(), found.counts.n.tolist()) == ([1, T0, T0], [3, 4, 0])
    assert len(found) == 4
    assert sorted(found.times().tolist()) == [1, 1, T0, T0]


def test_too_long_count_type_is_named() -> None:
    points = parse(b"m %s=1i 1000" % (b"n" * 254)).points
    named = names(points, Template("c"), CountRule(["m"]))
    found = rows(points, dict.fromkeys(named.of, 1), T0, named.counts)
    assert not found
    assert "the type is 256 characters long; at most 255 are legal" in found.bad[0].problem


@given(st.binary(), st.sampled_from(["ns", "s"]), st.integers(0, 2**62))
def test_body_digest_covers_the_whole_request(body: bytes, precision: str, arrival: int) -> None:
    digest = digest_of(body, precision, arrival)
    assert -(2**63) <= digest < 0
    assert digest == digest_of(body, precision, arrival)
    assert digest not in (
        digest_of(body + b"\n", precision, arrival),
        digest_of(body, "ms", arrival),
        digest_of(body, precision, arrival + 1),
    )


# gzip


def test_gzip_bomb_is_refused_before_inflating() -> None:
    bomb = zlib.compress(b"\0" * 10_000_000, wbits=31)
    with pytest.raises(BodyRefused, match="larger than max_body") as refused:
        GzipReader(100_000).feed(bomb)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    "packed",
    [b"m f=1", b"", gzip.compress(b"x") + b"junk", gzip.compress(b"") * 200],
    ids=["plain", "empty", "junk", "members"],
)
def test_invalid_gzip_is_refused(packed: bytes) -> None:
    with pytest.raises(BodyRefused) as refused:
        inflate = GzipReader(1000)
        inflate.feed(packed)
        inflate.finish()
    assert refused.value.status == 400


# rate


def test_one_body_may_exceed_the_rate_limit() -> None:
    limit = RateLimit(10)
    assert limit.wait() == 0
    limit.take(1000)
    assert 50 < limit.wait() <= 99, "it is told the truth, as late as it asks"


# retries


async def test_unanswered_body_keeps_its_time_over_a_restart() -> None:
    spool = MemoryAppender()
    first = Arrivals("s", 1, spool)
    lost, had = first.note_name(b"lost"), first.note_name(b"had")
    lost_at, notes = first.time_of(lost, 5)
    await spool.note(notes)
    had_at, notes = first.time_of(had, 1)
    await spool.note(notes)
    assert had_at >= lost_at + 5
    assert first.time_of(lost, 5)[0] == lost_at
    first.forget(had)
    await first.close()
    assert set(spool.notes) == {lost, "push:1:arrived"}
    again = Arrivals("s", 1, spool)
    assert again.time_of(lost, 5)[0] == lost_at
    assert again.time_of(had, 1)[0] > had_at
    assert Arrivals("t", 2, spool).time_of(lost, 5)[0] > lost_at


async def test_body_repeated_while_being_forgotten_is_kept() -> None:
    spool = MemoryAppender()
    arrivals = Arrivals("s", 1, spool)
    note = arrivals.note_name(b"x")
    await spool.note(arrivals.time_of(note, 1)[1])
    arrivals.forget(note)
    arrival, notes = arrivals.time_of(note, 1)
    await spool.note(notes)
    await arrivals.close()
    assert spool.notes[note] == f"{arrival} 0"


async def test_body_that_begins_with_unanswered_ones_is_told_apart() -> None:
    spool = MemoryAppender()
    arrivals = Arrivals("s", 1, spool)
    first, second, text = b"level v=1\nlevel v=2\n", b"level v=3\n", b"level v=1"
    for body in (first, second, text):
        await spool.note(arrivals.time_of(arrivals.note_name(body), 1, len(body))[1])
    for again in (arrivals, Arrivals("s", 1, spool)):
        assert again.beginning(first + second + b"level v=4\n") == len(first), "the longest"
        assert again.beginning(second + first) == len(second)
        assert again.beginning(text + b"\nlevel v=5") == len(text)
        for other in (b"", b"level v=2\n", text + b"5\n", text):
            assert again.beginning(other) == 0
        assert again.beginning(first + second, "ms") == 0
    arrivals.forget(arrivals.note_name(second))
    assert arrivals.beginning(second + first) == 0
    await arrivals.close()


async def test_clock_set_back_keeps_its_times_and_makes_a_gap() -> None:
    spool, clock = MemoryAppender(), ManualClock()
    status = SourceStatus(1, "s", "push", "", 1)
    arrivals, silence = Arrivals("s", 1, spool, 5.0, clock), Silence(status, 300.0, spool)

    async def taken(body: bytes) -> int:
        if (step := arrivals.detect_step()) is not None:
            await silence.clock_set(step)
        at, notes = arrivals.time_of(arrivals.note_name(body), 3)
        times = np.arange(at, at + 3, dtype=np.int64)
        await spool.note({**notes, **silence.notes(times)})
        await silence.samples_stored(times)
        return at

    before = await taken(b"1")
    clock.set(-3600)
    after = await taken(b"2")
    assert abs(after - (before - 3600_000_000)) < 60e6, "not three microseconds behind the last one, for an hour"
    (event,) = spool.events("clock_set")
    assert (event.text, round(event.detail["step_seconds"])) == ("back", -3600)
    (gap,) = spool.gaps()
    assert (gap.reason, gap.channel_ids) == ("clock_set", None)
    assert gap.to_time is not None and gap.from_time < after and before <= gap.to_time
    assert int(spool.notes["push:1:newest"]) == after + 2
    again = Arrivals("s", 1, spool, 5.0, clock)
    assert again.detect_step() is None and again.time_of(again.note_name(b"3"), 1)[0] > after + 2
    clock.set(-3600)
    assert Arrivals("s", 1, spool, 5.0, clock).detect_step() is not None, "set back while nothing ran"


async def test_remembered_bodies_are_bounded() -> None:
    spool = MemoryAppender()
    arrivals = Arrivals("s", 1, spool)
    for i in range(3000):
        await spool.note(arrivals.time_of(arrivals.note_name(str(i).encode()), 1)[1])
    await arrivals.close()
    assert len(spool.notes) <= 1024 + 1, "and the last time that was given"


# silence


def _times(*offsets: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(offsets, np.int64) + T0


@asynccontextmanager
async def watched(spool: MemoryAppender, stale_after: float) -> AsyncIterator[tuple[Silence, SourceStatus]]:
    status = SourceStatus(1, "edge", "push", "", 1)
    silence = Silence(status, stale_after, spool)
    watching = asyncio.create_task(silence.watch())
    yield silence, status
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_silence_is_a_gap_from_the_last_sample_to_the_next() -> None:
    spool = MemoryAppender()
    async with watched(spool, 0.05) as (silence, status):
        await silence.samples_stored(_times(5, 9, 7))
        await spool.note(silence.notes(_times(5, 9, 7)))
        await spool.until(lambda: bool(spool.gaps()))
        (gap,) = spool.gaps()
        assert (gap.from_time, gap.to_time, gap.reason, gap.channel_ids) == (T0 + 9, None, "stale", None)
        assert status.state == "disconnected"
    async with watched(spool, 60) as (silence, status):  # after a restart
        await silence.samples_stored(_times(3, 9))
        assert [g.to_time for g in spool.gaps()] == [None]
        await silence.samples_stored(_times(3, 40, 20))
        assert [g.to_time for g in spool.gaps()] == [T0 + 20]
        assert status.state == "connected"
    assert [e.text for e in spool.events("source_state")] == ["connected", "disconnected", "connected"]


async def test_silence_after_samples_that_the_disk_was_slow_to_take_is_a_gap() -> None:
    """A gap was opened while they waited."""
    spool = MemoryAppender()
    async with watched(spool, 0.05) as (silence, status):
        await spool.until(lambda: status.state == "disconnected")
        last = now_us()
        await silence.samples_stored(np.array([last], np.int64))
        assert (status.state, status.open_gaps) == ("connected", 0)
        await spool.until(lambda: (status.state, status.open_gaps) == ("disconnected", 1))
    assert [gap.to_time for gap in spool.gaps()] == [None]  # one, goes on: nothing lies between


async def test_refused_gateway_is_not_silent() -> None:
    spool = MemoryAppender()
    other = MemoryAppender()
    async with watched(spool, 0.2) as (silence, _), watched(other, 0.2):

        def other_is_silent() -> bool:
            silence.record_activity()
            return bool(other.gaps())

        await until(other_is_silent)
        assert spool.gaps() == []


async def test_newest_sample_of_a_fast_clock_is_not_in_the_future() -> None:
    spool = MemoryAppender()
    async with watched(spool, 0.05) as (silence, _):
        await silence.samples_stored(np.array([2**62], np.int64))
        await spool.until(lambda: bool(spool.gaps()))
        assert spool.gaps()[0].from_time < 2**62
    assert re.fullmatch(r"[0-9]+", silence.notes(_times(0))[f"push:{1}:newest"] or "")
