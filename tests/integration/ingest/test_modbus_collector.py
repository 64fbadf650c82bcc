"""The Modbus collector over real sockets: a server that is not ours, our simulator's device, and nasty ones."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from core import backoff
from core.batch import Gap, SampleBatch
from core.clock import ReadClocks, machine_clocks
from core.config.sources import ModbusSource, ModbusTag
from ingest.modbus.collector import Collector
from ingest.modbus.failures import BAD_NODE_ID_UNKNOWN
from ingest.modbus.transport import Connections
from ingest.no_data import BAD_NO_DATA
from ingest.status import SourceStatus
from tests.batches import gaps_of
from tests.manual_clock import ManualClock
from tests.memory_appender import MemoryAppender
from tests.modbus_wire import TYPES, exception_response, good_response, misbehaving_device, requested
from tests.peers import peer
from tests.ports import free_port
from tests.waiting import running, until

VALUES = {
    "int16": -1234,
    "uint16": 54321,
    "int32": -123456789,
    "uint32": 3123456789,
    "float32": -12.625,
    "float64": 3.141592653589793,
    "int64": -123456789012345,
    "uint64": 123456789012345,
    "int48": -123456789012345,
    "uint48": 234567890123456,
}


def tag(name: str, address: str, value_type: str = "uint16", **more: object) -> ModbusTag:
    return TypeAdapter(ModbusTag).validate_python({"name": name, "address": address, "type": value_type, **more})


@asynccontextmanager
async def collecting(
    port: int,
    tags: list[ModbusTag],
    spool: MemoryAppender | None = None,
    read_clocks: ReadClocks = machine_clocks,
    connections: Connections | None = None,
    stands_by: Callable[[], bool] = lambda: False,
    **options: object,
) -> AsyncIterator[tuple[MemoryAppender, SourceStatus]]:
    """A collector that runs inside the block and is stopped in order behind it. Channel ids are the tags' places.

    Its time-out is for a peer that is a process of its own, on a busy machine; who wants one over has a shorter one.
    """
    fast = {"poll_interval": 0.1, "time_out": 10.0, "backoff_min": 0.05, "backoff_max": 0.2}
    source = ModbusSource.model_validate(
        {"name": "plc", "kind": "modbus", "address": f"tcp://127.0.0.1:{port}", **fast, **options, "tags": tags}
    )
    status = SourceStatus(1, "plc", "modbus", source.address, len(tags))
    spool = spool or MemoryAppender()
    ids = {t.name: i for i, t in enumerate(tags)}
    connections = connections or Connections()
    polling = Collector(source, ids, status, spool, connections, read_clocks, stands_by=stands_by)
    async with running(polling.run()):
        yield spool, status


def gaps(spool: MemoryAppender, channel: int | None) -> list[Gap]:
    """Gaps of :func:`all_gaps` without those that a busy machine may have at any time: polls that came late."""
    return [gap for gap in all_gaps(spool, channel) if gap.reason != "poll_missed"]


def all_gaps(spool: MemoryAppender, channel: int | None) -> list[Gap]:
    """Gaps of one channel, or of the source as a whole: the last that was said of each."""
    last: dict[int, Gap] = {}
    for gap in gaps_of(spool.batches):
        if channel in gap.channel_ids if gap.channel_ids is not None else channel is None:
            last[gap.from_time] = gap
    return [last[at] for at in sorted(last)]


def times(spool: MemoryAppender, channel: int) -> list[int]:
    """Times of the good samples."""
    return [t for t, _, s in spool.samples(channel) if s == 0]


def values(spool: MemoryAppender, channel: int) -> list[float]:
    return [v for _, v, s in spool.samples(channel) if s == 0]


def lies_between_samples(gap: Gap, spool: MemoryAppender, channel: int) -> bool:
    """Return whether the gap reaches from one good sample to the very next."""
    had = times(spool, channel)
    return gap.to_time is not None and gap.to_time == had[had.index(gap.from_time) + 1]


@pytest.mark.slow
async def test_every_type_and_word_order_of_a_foreign_server(tmp_path: Path) -> None:
    assert set(VALUES) == set(TYPES)
    tags = [
        tag(f"{kind}/{order}", f"{table}:{8 * (4 * k + o)}", kind, word_order=order)
        for k, kind in enumerate(VALUES)
        for o, order in enumerate(("ABCD", "CDAB", "BADC", "DCBA"))
        for table in (("holding", "input")[(k + o) % 2],)
    ]
    expected = [float(VALUES[t.type]) for t in tags]
    tags += [tag(f"coil{i}", f"coil:{i}", "bool") for i in range(7)]
    expected += [float(i % 3 == 0) for i in range(7)]
    tags += [tag(f"discrete{i}", f"discrete:{i}", "bool") for i in range(11)]
    expected += [float(i % 5 == 0) for i in range(11)]
    tags += [tag("bit0", "holding:600", "bool", bit=0), tag("bit7", "input:600", "bool", bit=7)]
    tags += [tag("bit6", "holding:600", "bool", bit=6), tag("text", "holding:500", "string", length=5, kind="text")]
    expected += [1.0, 1.0, 0.0]
    async with peer("modbus-serial", tmp_path, 0) as server, collecting(server.port, tags) as (spool, status):
        await spool.until(lambda: all(len(spool.samples(i)) >= 3 for i in range(len(expected))))
        for i, value in enumerate(expected):
            assert {(v, s) for _, v, s in spool.samples(i)} == {(value, 0)}, tags[i]
            assert times(spool, i) == sorted(set(times(spool, i)))
        assert [(e.text, e.channel_id) for e in spool.events("text")] == [("TANK-7", len(tags) - 1)]
        assert status.state == "connected"


async def test_integers_beyond_2_53_are_exact_as_text_and_reported_as_rounded(tmp_path: Path) -> None:
    tags = [tag("low", "holding:620", "int64"), tag("high", "input:624", "uint64"), tag("even", "holding:628", "int64")]
    tags += [tag("low/text", "holding:620", "int64", kind="text")]
    tags += [tag("high/text", "input:624", "uint64", kind="text")]
    async with peer("modbus-serial", tmp_path, 0) as server, collecting(server.port, tags) as (spool, _):
        await spool.until(lambda: all(len(spool.samples(i)) >= 3 for i in range(3)) and len(spool.events("text")) == 2)
        assert [set(values(spool, i)) for i in range(5)] == [{-(2.0**53)}, {2.0**64}, {2.0**53 + 2}, set(), set()]
        assert sorted(e.channel_id or 0 for e in spool.events("rounded")) == [0, 1], "once a channel"
        texts = {e.channel_id: e.text for e in spool.events("text")}
        assert texts == {3: "-9007199254740993", 4: "18446744073709551615"}


async def test_illegal_address_affects_only_its_tag(tmp_path: Path) -> None:
    """Registers from 1000 are illegal there: one bad tag amid good ones in one block."""
    tags = [tag(f"good{i}", f"holding:{990 + i}") for i in range(10)] + [tag("bad", "holding:1003")]
    async with (
        peer("modbus-serial", tmp_path, 0) as server,
        collecting(server.port, tags, bridge=10) as (spool, status),
    ):
        await spool.until(lambda: len(spool.samples(9)) >= 3 and bool(spool.samples(10)))
        assert status.state == "degraded"
        assert status.bad_channels == {"bad": "unit 1, holding:1003: exception 2: illegal data address"}
        assert [(math.isnan(v), s) for _, v, s in spool.samples(10)] == [(True, BAD_NODE_ID_UNKNOWN)], (
            "once, not each poll"
        )
        assert {s for i in range(10) for _, _, s in spool.samples(i)} == {0}
        assert [e.text for e in spool.events("channel_state")] == ["bad"]
        (gap,) = gaps(spool, 10)
        assert (gap.channel_ids, gap.to_time, gap.reason) == ((10,), None, "refused")
        assert gap.detail == "unit 1, holding:1003: exception 2: illegal data address"
        assert status.open_gaps == 1


@pytest.mark.parametrize("code", [1, 2, 3])
async def test_refused_block_is_split_and_joined_again(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "REFUSED", (0.3, 0.6))
    illegal = {17, 57}
    reads: list[range] = []

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        reads.append(requested(frame)[1])
        return [(0, exception_response(frame, code) if illegal.intersection(reads[-1]) else good_response(frame, 7))]

    tags = [tag(f"t{i}", f"holding:{i}") for i in range(100)]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (spool, status):
        await spool.until(lambda: set(status.bad_channels) == {"t17", "t57"} and len(values(spool, 99)) >= 3)
        assert [g.reason for i in (17, 57) for g in gaps(spool, i)] == ["refused", "refused"]
        assert not [i for i in range(100) if i not in illegal and gaps(spool, i)], (
            "the others were read in the same poll"
        )
        await spool.until(lambda: reads.count(range(17, 18)) >= 3)
        illegal.clear()
        await spool.until(lambda: not status.bad_channels and reads[-1] == range(100))
        for i in (17, 57):
            assert [g.to_time for g in gaps(spool, i)] == times(spool, i)[:1]
        assert status.state == "connected" and status.open_gaps == 0
        assert [e.text for e in spool.events("source_state")] == ["degraded", "connected"]


async def test_illegal_address_between_tags_affects_no_tag() -> None:
    """Reading through unused registers is our idea; where the device does not like it, it gets two reads."""
    reads: list[range] = []

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        reads.append(requested(frame)[1])
        return [(0, exception_response(frame, 2) if 5 in reads[-1] else good_response(frame, 7))]

    tags = [tag("a", "holding:0"), tag("b", "holding:4"), tag("c", "holding:6")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (spool, status):
        await spool.until(lambda: all(len(values(spool, i)) >= 3 for i in range(3)))
        assert reads.count(range(7)) == 1 and status.state == "connected"
        assert not any(gaps(spool, i) for i in range(3))


async def test_values_that_mean_no_value_are_bad() -> None:
    """And a NaN: 0xFFFFFFFF as a float32."""

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, good_response(frame, number if number % 3 else 0xFFFF))]

    tags = [tag("a", "holding:0", no_data="0xFFFF", scale=0.1, alarm_hi=100.0), tag("b", "holding:0")]
    tags.append(tag("c", "holding:1", "float32"))
    async with misbehaving_device(answer) as port, collecting(port, tags) as (spool, _):
        await spool.until(lambda: len(spool.samples(0)) >= 6)
        rows = {name: spool.samples(i)[:6] for i, name in enumerate("abc")}
    assert [status for _, _, status in rows["a"]] == [0, 0, BAD_NO_DATA] * 2
    assert [status for _, _, status in rows["b"]] == [0] * 6
    assert [status for _, _, status in rows["c"]] == [0, 0, BAD_NO_DATA] * 2
    assert [math.isnan(value) for _, value, _ in rows["a"]] == [False, False, True] * 2
    assert not gaps(spool, 0)


async def test_an_exception_is_a_gap_of_its_block_until_it_is_read_again() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        busy = frame[7] == 4 and 5 <= number <= 12
        return [(0, exception_response(frame, 6) if busy else good_response(frame, number))]

    tags = [tag("a", "holding:0"), tag("b", "input:0"), tag("text", "input:1", "string", kind="text")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (spool, _):
        await spool.until(lambda: len(spool.events("channel_state")) >= 4 and len(values(spool, 1)) >= 4)
        assert not gaps(spool, 0)
        (gap,) = gaps(spool, 1)
        assert (gap.reason, gap.detail) == ("poll_failed", "unit 1, input:0 to input:1: exception 6: device busy")
        assert lies_between_samples(gap, spool, 1)
        assert [(g.from_time, g.to_time) for g in gaps(spool, 2)] == [(gap.from_time, gap.to_time)]


async def test_a_poll_that_took_too_long_is_a_gap_until_the_next_sample() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0.45 if number == 3 else 0, good_response(frame, number))]

    async with (
        misbehaving_device(answer) as port,
        collecting(port, [tag("a", "holding:0")], time_out=60.0) as (spool, status),
    ):
        await spool.until(lambda: len(values(spool, 0)) >= 5 and bool(all_gaps(spool, None)))
        gap = all_gaps(spool, None)[0]
        assert gap.reason == "poll_missed"
        assert gap.from_time in times(spool, 0) and gap.to_time in times(spool, 0)
        assert status.missed >= 3


async def test_slow_device_is_one_event_and_no_gap() -> None:
    slow = True

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0.21 if slow else 0, good_response(frame, number))]

    async with (
        misbehaving_device(answer) as port,
        collecting(port, [tag("a", "holding:0")], time_out=60.0) as (spool, status),
    ):
        await spool.until(lambda: bool(spool.events("poll_stretched")))
        n = len(values(spool, 0))
        await spool.until(lambda: len(values(spool, 0)) >= n + 20)
        assert "interval 0.1 s" in status.remarks["polls of 0.1 s"]
        (event,) = [e for e in spool.events("poll_stretched") if e.text == "stretched"][:1]
        assert event.detail["interval_seconds"] == 0.1 and event.detail["pace_seconds"] >= 0.2
        assert event.detail["slow"] == "device" and event.detail["answers_seconds"] >= 0.2
        assert ": the device answers in 0." in status.remarks["polls of 0.1 s"]
        red = [g for g in all_gaps(spool, 0) + all_gaps(spool, None) if g.from_time >= event.time]
        assert all(g.to_time is not None and g.to_time - g.from_time > 2e6 * 0.2 for g in red), "of a busy machine"
        assert status.missed >= n + 10, "each poll that was left out is a missing sample"
        slow = False
        await spool.until(lambda: any(e.text == "good" for e in spool.events("poll_stretched")))
        assert not status.remarks


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
async def test_clock_step_neither_freezes_times_nor_misses_a_poll(seconds: float, tmp_path: Path) -> None:
    """Against a real server; its channels keep their pace by a clock that nobody sets."""
    clock = ManualClock()
    tags = [tag("a", "holding:0"), tag("slow", "holding:40", interval=0.4), tag("bad", "holding:60000")]
    async with (
        peer("modbus-serial", tmp_path, 0) as server,
        collecting(server.port, tags, read_clocks=clock) as (spool, status),
    ):
        await spool.until(lambda: len(values(spool, 0)) >= 8 and len(values(spool, 1)) >= 2)
        clock.set(seconds)
        n = len(values(spool, 0))
        await spool.until(lambda: len(values(spool, 0)) >= n + 12)
        polls = status.missed
    (event,) = spool.events("clock_set")
    assert (event.text, round(event.detail["step_seconds"])) == ("back" if seconds < 0 else "forward", seconds)
    (gap,) = [g for g in gaps(spool, None) if g.reason == "clock_set"]
    assert gap.to_time is not None and abs(gap.to_time - gap.from_time - 3600e6) < 60e6
    had = np.array([t for t, _, s in spool.samples(0) if s == 0])
    steps = np.diff(had)
    (at,) = np.flatnonzero(np.abs(steps) > 1800e6)
    for side in np.split(had, [at + 1]):  # a late one and the next may be close to one another
        assert np.ptp(side) > 20_000 * (len(side) - 1), "times do not stand still"
    assert abs(steps[at] - seconds * 1e6) < 60e6
    assert polls < 3600, "an hour of polls was not missed, which is ten times as many"
    missed = [g for i in (None, 0, 1) for g in all_gaps(spool, i) if g.reason == "poll_missed"]
    assert all(g.to_time - g.from_time < 60e6 for g in missed if g.to_time is not None)


async def test_gap_open_during_a_clock_set_back_is_closed() -> None:
    clock = ManualClock()
    port = free_port()
    async with collecting(port, [tag("a", "holding:0")], read_clocks=clock) as (spool, _):
        await spool.until(lambda: bool(gaps(spool, None)))
        clock.set(-3600)
        await spool.until(lambda: bool(spool.events("clock_set")))
        async with misbehaving_device(lambda frame, number: [(0, good_response(frame, number))], port):
            await spool.until(lambda: len(values(spool, 0)) >= 3)
            assert all(g.to_time is not None for g in gaps(spool, None))
            last = next(g for g in gaps(spool, None) if g.reason == "disconnected")
            assert last.to_time == times(spool, 0)[0]


async def test_values_refused_by_a_full_spool_are_a_gap() -> None:
    async with (
        misbehaving_device(lambda frame, number: [(0, good_response(frame, number))]) as port,
        collecting(port, [tag("a", "holding:0"), tag("text", "holding:1", "string", kind="text")]) as (spool, status),
    ):
        await spool.until(lambda: len(values(spool, 0)) >= 2)
        spool.full = True
        await spool.until(lambda: bool(gaps(spool, 0)) and gaps(spool, 0)[-1].reason == "spool_full")
        (gap,) = (g for g in gaps(spool, 0) if g.reason == "spool_full")
        assert gap.from_time == times(spool, 0)[-1] and gap.to_time is None
        polls = status.missed
        await until(lambda: status.missed >= polls + 3)
        spool.full = False
        await spool.until(lambda: all(g.to_time is not None for g in gaps(spool, 0)))
        (gap,) = (g for g in gaps(spool, 0) if g.reason == "spool_full")
        assert lies_between_samples(gap, spool, 0)
        assert not [g for g in gaps(spool, 1) if g.reason == "spool_full"], "events had room"


async def test_one_batch_per_poll_for_any_number_of_reads() -> None:
    tags = [tag(f"t{i}", f"holding:{200 * i}") for i in range(5)]
    async with (
        misbehaving_device(lambda frame, number: [(0, good_response(frame, 1))]) as port,
        collecting(port, tags) as (spool, _),
    ):
        await spool.until(lambda: len(spool.samples(0)) >= 3)
        sizes = {len(b) % 5 for b in spool.batches if isinstance(b, SampleBatch)}
        assert sizes == {0}
        assert all(np.all(b.samples.status == 0) for b in spool.batches if isinstance(b, SampleBatch))


async def test_a_stop_is_a_gap_and_so_is_a_kill() -> None:
    tags = [tag("a", "holding:0"), tag("bad", "input:0")]

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, exception_response(frame, 4) if frame[7] == 4 else good_response(frame, number))]

    async with misbehaving_device(answer) as port:
        async with collecting(port, tags) as (spool, _):
            await spool.until(lambda: len(values(spool, 0)) >= 3)
            killed = MemoryAppender(spool.notes)  # what is on disk of a process that ends here
            last = times(spool, 0)[-1]
            assert not gaps(spool, None), "the first start of all interrupts nothing"
        stopped_after = times(spool, 0)[-1]
        async with collecting(port, tags, MemoryAppender(spool.notes)) as (again, status):
            await again.until(lambda: len(values(again, 0)) >= 1 and bool(gaps(again, None)[0].to_time))
            (gap,) = gaps(again, None)
            assert (gap.from_time, gap.to_time, gap.reason) == (stopped_after, times(again, 0)[0], "stopped")
            assert status.open_gaps == 1 and not gaps(again, 1), "the bad channel's gap just goes on"
        async with collecting(port, [tags[0], tag("bad", "holding:1")], killed) as (after, status):
            await after.until(lambda: len(values(after, 1)) >= 1 and status.open_gaps == 0)
            (gap,) = gaps(after, None)
            assert (gap.from_time, gap.to_time, gap.reason) == (last, times(after, 0)[0], "killed")
            (gap,) = gaps(after, 1)
            assert (gap.to_time, gap.reason) == (times(after, 1)[0], "poll_failed"), "and ends with its first sample"
