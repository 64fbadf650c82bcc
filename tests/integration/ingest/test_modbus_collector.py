"""The Modbus collector over real sockets: a server that is not ours, our simulator's device, and nasty ones."""

from __future__ import annotations

import asyncio
import math
import random
import re
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from core import backoff
from core.batch import Gap, GapBatch, SampleBatch
from core.clock import ReadClocks, machine_clocks
from core.config.sources import ModbusSource, ModbusTag
from core.timestamps import now_us
from ingest.modbus.collector import Collector
from ingest.modbus.failures import BAD_COMMUNICATION_ERROR, BAD_NODE_ID_UNKNOWN, BAD_TIMEOUT
from ingest.modbus.transport import Connections
from ingest.no_data import BAD_NO_DATA
from ingest.status import SourceStatus
from tests.manual_clock import ManualClock
from tests.memory_appender import MemoryAppender
from tests.modbus_wire import CLOSE, TYPES, asked, exception_response, good_response, misbehaving_device, response
from tests.peers import free_port, peer
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
    kept: MemoryAppender | None = None,
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
    kept = kept or MemoryAppender()
    ids = {t.name: i for i, t in enumerate(tags)}
    connections = connections or Connections()
    polling = Collector(source, ids, status, kept, connections, read_clocks, stands_by=stands_by)
    async with running(polling.run()):
        yield kept, status


def gaps(kept: MemoryAppender, channel: int | None) -> list[Gap]:
    """As :func:`all_gaps`, but for those that a busy machine may have at any time: polls that came late."""
    return [gap for gap in all_gaps(kept, channel) if gap.reason != "poll_missed"]


def all_gaps(kept: MemoryAppender, channel: int | None) -> list[Gap]:
    """Gaps of one channel, or of the source as a whole: the last that was said of each."""
    last: dict[int, Gap] = {}
    for batch in kept.batches:
        for gap in batch.gaps if isinstance(batch, GapBatch) else ():
            if channel in gap.channel_ids if gap.channel_ids is not None else channel is None:
                last[gap.from_time] = gap
    return [last[at] for at in sorted(last)]


def times(kept: MemoryAppender, channel: int) -> list[int]:
    """Times of the good samples."""
    return [t for t, _, s in kept.samples(channel) if s == 0]


def values(kept: MemoryAppender, channel: int) -> list[float]:
    return [v for _, v, s in kept.samples(channel) if s == 0]


def lies_between_samples(gap: Gap, kept: MemoryAppender, channel: int) -> bool:
    """Whether the gap reaches from one good sample to the very next."""
    had = times(kept, channel)
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
    async with peer("modbus-serial", tmp_path, 0) as server, collecting(server.port, tags) as (kept, status):
        await kept.until(lambda: all(len(kept.samples(i)) >= 3 for i in range(len(expected))))
        for i, value in enumerate(expected):
            assert {(v, s) for _, v, s in kept.samples(i)} == {(value, 0)}, tags[i]
            assert times(kept, i) == sorted(set(times(kept, i)))
        assert [(e.text, e.channel_id) for e in kept.events("text")] == [("TANK-7", len(tags) - 1)]
        assert status.state == "connected"


async def test_integers_beyond_2_53_are_exact_as_text_and_reported_as_rounded(tmp_path: Path) -> None:
    tags = [tag("low", "holding:620", "int64"), tag("high", "input:624", "uint64"), tag("even", "holding:628", "int64")]
    tags += [tag("low/text", "holding:620", "int64", kind="text")]
    tags += [tag("high/text", "input:624", "uint64", kind="text")]
    async with peer("modbus-serial", tmp_path, 0) as server, collecting(server.port, tags) as (kept, _):
        await kept.until(lambda: all(len(kept.samples(i)) >= 3 for i in range(3)) and len(kept.events("text")) == 2)
        assert [set(values(kept, i)) for i in range(5)] == [{-(2.0**53)}, {2.0**64}, {2.0**53 + 2}, set(), set()]
        assert sorted(e.channel_id or 0 for e in kept.events("rounded")) == [0, 1], "once a channel"
        texts = {e.channel_id: e.text for e in kept.events("text")}
        assert texts == {3: "-9007199254740993", 4: "18446744073709551615"}


async def test_illegal_address_affects_only_its_tag(tmp_path: Path) -> None:
    """Registers from 1000 are illegal there: one bad tag amid good ones in one block."""
    tags = [tag(f"good{i}", f"holding:{990 + i}") for i in range(10)] + [tag("bad", "holding:1003")]
    async with peer("modbus-serial", tmp_path, 0) as server, collecting(server.port, tags, bridge=10) as (kept, status):
        await kept.until(lambda: len(kept.samples(9)) >= 3 and bool(kept.samples(10)))
        assert status.state == "degraded"
        assert status.bad_channels == {"bad": "unit 1, holding:1003: exception 2: illegal data address"}
        assert [(math.isnan(v), s) for _, v, s in kept.samples(10)] == [(True, BAD_NODE_ID_UNKNOWN)], (
            "once, not each poll"
        )
        assert {s for i in range(10) for _, _, s in kept.samples(i)} == {0}
        assert [e.text for e in kept.events("channel_state")] == ["bad"]
        (gap,) = gaps(kept, 10)
        assert (gap.channel_ids, gap.to_time, gap.reason) == ((10,), None, "refused")
        assert gap.detail == "unit 1, holding:1003: exception 2: illegal data address"
        assert status.open_gaps == 1


@pytest.mark.parametrize("code", [1, 2, 3])
async def test_refused_block_is_split_and_joined_again(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "REFUSED", (0.3, 0.6))
    illegal = {17, 57}
    reads: list[range] = []

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        reads.append(asked(frame)[1])
        return [(0, exception_response(frame, code) if illegal.intersection(reads[-1]) else good_response(frame, 7))]

    tags = [tag(f"t{i}", f"holding:{i}") for i in range(100)]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (kept, status):
        await kept.until(lambda: set(status.bad_channels) == {"t17", "t57"} and len(values(kept, 99)) >= 3)
        assert [g.reason for i in (17, 57) for g in gaps(kept, i)] == ["refused", "refused"]
        assert not [i for i in range(100) if i not in illegal and gaps(kept, i)], (
            "the others were read in the same poll"
        )
        await kept.until(lambda: reads.count(range(17, 18)) >= 3)
        illegal.clear()
        await kept.until(lambda: not status.bad_channels and reads[-1] == range(100))
        for i in (17, 57):
            assert [g.to_time for g in gaps(kept, i)] == times(kept, i)[:1]
        assert status.state == "connected" and status.open_gaps == 0
        assert [e.text for e in kept.events("source_state")] == ["degraded", "connected"]


async def test_illegal_address_between_tags_affects_no_tag() -> None:
    """Reading through unused registers is our idea; where the device does not like it, it gets two reads."""
    reads: list[range] = []

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        reads.append(asked(frame)[1])
        return [(0, exception_response(frame, 2) if 5 in reads[-1] else good_response(frame, 7))]

    tags = [tag("a", "holding:0"), tag("b", "holding:4"), tag("c", "holding:6")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (kept, status):
        await kept.until(lambda: all(len(values(kept, i)) >= 3 for i in range(3)))
        assert reads.count(range(7)) == 1 and status.state == "connected"
        assert not any(gaps(kept, i) for i in range(3))


async def test_late_answer_is_not_taken_for_the_next() -> None:
    """The third answer comes after the time-out; were it read later, a stale 3 would follow a fresh value."""
    timed_out = asyncio.Event()

    def answer(frame: bytes, number: int) -> list[tuple[float | asyncio.Event, bytes]]:
        return [(timed_out if number == 3 else 0.0, good_response(frame, number))]

    async with (
        misbehaving_device(answer) as port,
        collecting(port, [tag("a", "holding:0")], time_out=1.0) as (kept, status),
    ):
        await kept.until(lambda: bool(gaps(kept, 0)))
        timed_out.set()
        await kept.until(lambda: len(values(kept, 0)) >= 6)
        assert 3 not in values(kept, 0)
        assert values(kept, 0) == sorted(values(kept, 0))
        assert BAD_TIMEOUT in {s for _, _, s in kept.samples(0)}
        first = gaps(kept, 0)[0]
        assert first.reason == "poll_failed" and lies_between_samples(first, kept, 0)
        assert status.reconnects == 0, "the connection stands"


async def test_a_late_answer_in_pieces_keeps_the_connection_in_step() -> None:
    timed_out = asyncio.Event()

    def answer(frame: bytes, number: int) -> list[tuple[float | asyncio.Event, bytes]]:
        content = good_response(frame, number)
        return [(0, content[:11]), (timed_out, content[11:])] if number == 3 else [(0, content)]

    tags = [tag(f"t{i}", f"holding:{i}") for i in range(20)]
    async with misbehaving_device(answer) as port, collecting(port, tags, time_out=1.0) as (kept, status):
        await kept.until(lambda: bool(gaps(kept, 0)))
        timed_out.set()
        await kept.until(lambda: len(values(kept, 19)) >= 6)
        assert 3 not in values(kept, 0)
        assert status.decode_errors == 0 and status.reconnects == 0


async def test_late_answer_with_the_newest_transaction_id_is_recognised() -> None:
    """It answers in order and stamps each answer with the id of the last request that it has got."""
    timed_out = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        newest = b""
        waiting: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

        async def line() -> None:
            while True:
                number, frame = await waiting.get()
                if number == 3:
                    await timed_out.wait()
                writer.write(newest[:2] + good_response(frame, number)[2:])

        answering = asyncio.create_task(line())
        try:
            number = 0
            while True:
                newest = await reader.readexactly(12)
                number += 1
                waiting.put_nowait((number, newest))
        except (asyncio.IncompleteReadError, ConnectionError):
            answering.cancel()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, collecting(port, [tag("a", "holding:0")], time_out=2.0) as (kept, _):
        await kept.until(lambda: bool(gaps(kept, 0)))
        timed_out.set()
        await kept.until(lambda: len(values(kept, 0)) >= 6)
        assert 3 not in values(kept, 0)
        assert values(kept, 0) == sorted(set(values(kept, 0)))


async def test_answers_with_other_ids_are_ignored() -> None:
    """Another transaction, another unit, another function: each may come before the right one."""

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        right = good_response(frame, number)
        stale = good_response(frame, 1000)
        (transaction,) = struct.unpack(">H", frame[:2])
        return [
            (0, struct.pack(">H", (transaction - 1) % 65536) + stale[2:]),
            (0, b"\0\0" + stale[2:] if transaction else b""),
            (0, stale[:6] + b"\x77" + stale[7:]),
            (0, right),
            (0, good_response(frame, 1001)),
        ]

    async with misbehaving_device(answer) as port, collecting(port, [tag("a", "holding:0")]) as (kept, status):
        await kept.until(lambda: len(values(kept, 0)) >= 5)
        assert values(kept, 0) == [float(i + 1) for i in range(len(values(kept, 0)))]
        assert not gaps(kept, 0) and status.decode_errors == 0


def with_ids(frame: bytes, transaction: int | None = None, unit: int | None = None) -> bytes:
    """A response with other ids; a transaction id relative to the right one."""
    (own,) = struct.unpack(">H", frame[:2])
    head = struct.pack(">H", (own + (transaction or 0)) % 65536)
    return head + frame[2:6] + bytes((frame[6] if unit is None else unit,)) + frame[7:]


async def test_another_transaction_id_is_accepted_if_it_is_configured() -> None:
    """Also behind a response that came too late: the connection ends with the request that it was for."""
    slow = asyncio.Event()

    def answer(frame: bytes, number: int) -> list[tuple[float | asyncio.Event, bytes]]:
        late = good_response(frame, 1000 + number)
        return [(slow, with_ids(late, 77))] if number == 3 else [(0, with_ids(good_response(frame, number), 77))]

    tags = [tag("a", "holding:0")]
    async with (
        misbehaving_device(answer) as port,
        collecting(port, tags, any_transaction_id=True, time_out=0.5) as (kept, _),
    ):
        await kept.until(lambda: 4.0 in values(kept, 0))
        slow.set()
        await kept.until(lambda: len(values(kept, 0)) >= 6)
        assert [value for value in values(kept, 0) if value > 1000] == []
        assert values(kept, 0) == sorted(values(kept, 0))


async def test_another_transaction_id_is_named() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, good_response(frame, number) if frame[7] == 4 else with_ids(good_response(frame, number), 5))]

    tags = [tag("a", "holding:0"), tag("b", "input:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags, time_out=0.3) as (kept, status):
        await kept.until(lambda: bool(gaps(kept, 0)) and bool(values(kept, 1)))
        expected = (
            r"no response within 0.3 s: a response from unit 1 with transaction id \d+ arrived, expected unit 1 and"
        )
        assert re.search(expected, gaps(kept, 0)[0].detail)
        assert re.search(expected, status.bad_channels["a"])
        assert values(kept, 0) == [] and not gaps(kept, 1)


@pytest.mark.parametrize("unit", [0, 255])
async def test_response_from_no_unit_is_named_and_holds_up_no_other(unit: int) -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        right = good_response(frame, number)
        return [(0, with_ids(right, unit=unit) if frame[6] == 5 else right)]

    tags = [tag("a", "holding:0", unit_id=5), tag("b", "holding:0", unit_id=6)]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (kept, status):  # time_out is 10 s
        await kept.until(lambda: len(values(kept, 1)) >= 10 and bool(gaps(kept, 0)))
        assert f"a response from unit {unit} with transaction id" in status.bad_channels["a"]
        assert "expected unit 5" in gaps(kept, 0)[0].detail
        assert not values(kept, 0) and not gaps(kept, 1)
        assert [g for g in all_gaps(kept, None) if g.detail != "polls came late"] == [], "which a busy machine may have"
        assert status.reconnects == 0


async def test_values_that_mean_no_value_are_bad() -> None:
    """And a NaN: 0xFFFFFFFF as a float32."""

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, good_response(frame, number if number % 3 else 0xFFFF))]

    tags = [tag("a", "holding:0", no_data="0xFFFF", scale=0.1, alarm_hi=100.0), tag("b", "holding:0")]
    tags.append(tag("c", "holding:1", "float32"))
    async with misbehaving_device(answer) as port, collecting(port, tags) as (kept, _):
        await kept.until(lambda: len(kept.samples(0)) >= 6)
        rows = {name: kept.samples(i)[:6] for i, name in enumerate("abc")}
    assert [status for _, _, status in rows["a"]] == [0, 0, BAD_NO_DATA] * 2
    assert [status for _, _, status in rows["b"]] == [0] * 6
    assert [status for _, _, status in rows["c"]] == [0, 0, BAD_NO_DATA] * 2
    assert [math.isnan(value) for _, value, _ in rows["a"]] == [False, False, True] * 2
    assert not gaps(kept, 0)


async def test_twice_the_bytes_affect_only_their_block() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        function, registers = asked(frame)
        if function == 4:
            return [(0, good_response(frame, number))]
        words = struct.pack(">H", 7) * 2 * len(registers)
        return [(0, response(frame, bytes((3, len(words) & 0xFF)) + words))]

    tags = [tag(f"a{i}", f"holding:{i}") for i in range(0, 125, 4)] + [tag("b", "input:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (kept, status):
        await kept.until(lambda: len(values(kept, len(tags) - 1)) >= 5 and bool(gaps(kept, 0)))
        assert "response of 500 bytes (byte count 244), expected 250, half as many" in status.bad_channels["a0"]
        assert status.reconnects == 0 and not gaps(kept, len(tags) - 1)


async def test_a_short_answer_is_a_decode_error_of_its_block_only() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        if frame[7] == 4:
            return [(0, response(frame, struct.pack(">BBH", 4, 2, 7)))]
        return [(0, good_response(frame, number))]

    tags = [tag("a", "holding:0"), tag("b", "input:0"), tag("c", "input:1")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (kept, status):
        await kept.until(lambda: len(kept.samples(0)) >= 3 and bool(kept.samples(1)))
        assert {s for _, _, s in kept.samples(0)} == {0}
        assert status.decode_errors >= 1
        assert status.bad_channels == dict.fromkeys(
            ("b", "c"), "unit 1, input:0 to input:1: response of 2 bytes, expected 4"
        )
        assert not gaps(kept, 0)
        assert [(g.channel_ids, g.reason, g.to_time) for g in gaps(kept, 1)] == [((1, 2), "poll_failed", None)]


async def test_an_exception_is_a_gap_of_its_block_until_it_is_read_again() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        busy = frame[7] == 4 and 5 <= number <= 12
        return [(0, exception_response(frame, 6) if busy else good_response(frame, number))]

    tags = [tag("a", "holding:0"), tag("b", "input:0"), tag("text", "input:1", "string", kind="text")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (kept, _):
        await kept.until(lambda: len(kept.events("channel_state")) >= 4 and len(values(kept, 1)) >= 4)
        assert not gaps(kept, 0)
        (gap,) = gaps(kept, 1)
        assert (gap.reason, gap.detail) == ("poll_failed", "unit 1, input:0 to input:1: exception 6: device busy")
        assert lies_between_samples(gap, kept, 1)
        assert [(g.from_time, g.to_time) for g in gaps(kept, 2)] == [(gap.from_time, gap.to_time)]


async def test_garbage_affects_only_its_block() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, b"HTTP/1.1 400 Bad Request\r\n\r\n" if number == 3 else good_response(frame, number))]

    tags = [tag("a", "input:0"), tag("b", "holding:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (kept, status):
        await kept.until(lambda: len(values(kept, 0)) >= 4 and len(values(kept, 1)) >= 4)
        (gap,) = gaps(kept, 0)
        assert gap.reason == "poll_failed" and lies_between_samples(gap, kept, 0)
        assert "invalid Modbus TCP header" in gap.detail
        assert not gaps(kept, 1) and not gaps(kept, None)
        assert 4 in values(kept, 1), "read in the same poll, over a new connection"
        assert status.reconnects == 1


async def test_a_server_of_another_protocol_is_no_device() -> None:
    tags = [tag("a", "input:0"), tag("b", "holding:0")]
    rubbish = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    async with misbehaving_device(lambda frame, number: [(0, rubbish)]) as port, collecting(port, tags) as (kept, _):
        await kept.until(lambda: bool(kept.events("source_state")))
        assert [e.text for e in kept.events("source_state")] == ["disconnected"]
        assert [(g.reason, g.to_time) for g in gaps(kept, None)] == [("disconnected", None)]


async def test_another_reason_of_an_outage_is_recorded() -> None:
    port = free_port()
    async with collecting(port, [tag("a", "input:0"), tag("b", "holding:0")]) as (kept, _):
        await kept.until(lambda: bool(kept.events("source_state")))
        async with misbehaving_device(lambda frame, number: [(0, b"HTTP/1.1 400 Bad Request\r\n\r\n")], port):
            await kept.until(lambda: len(kept.events("source_state")) > 1)
        first, other = kept.events("source_state")
        assert (first.text, other.text) == ("disconnected", "disconnected")
        assert "invalid Modbus TCP header" in other.detail["reason"]
        assert other.detail["since"] == first.time
        assert len(gaps(kept, None)) == 1


async def test_unanswered_block_only_delays_the_others() -> None:
    """The device says nothing at all when asked for input registers. Time is shared: it is asked ever less often."""
    inputs = 0

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        nonlocal inputs
        inputs += frame[7] == 4
        return [] if frame[7] == 4 else [(0, good_response(frame, number))]

    tags = [tag("a", "holding:0"), tag("b", "input:0"), tag("c", "input:100"), tag("d", "input:200")]
    async with misbehaving_device(answer) as port, collecting(port, tags, time_out=0.1) as (kept, status):
        await kept.until(lambda: len(values(kept, 0)) >= 20 and set(status.bad_channels) == {"b", "c", "d"})
        assert status.reconnects <= 1, "at most once, before it is known which of them are answered"
        assert not gaps(kept, 0)
        for i in (1, 2, 3):
            *before, last = gaps(kept, i)
            assert (last.reason, last.to_time) == ("poll_failed", None)
            assert all(g.reason == "disconnected" and g.to_time == last.from_time for g in before), "not yet asked"
        assert inputs < len(values(kept, 0)), "three blocks, and yet asked less often than the one that answers"


async def test_a_poll_that_took_too_long_is_a_gap_until_the_next_sample() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0.45 if number == 3 else 0, good_response(frame, number))]

    async with (
        misbehaving_device(answer) as port,
        collecting(port, [tag("a", "holding:0")], time_out=60.0) as (kept, status),
    ):
        await kept.until(lambda: len(values(kept, 0)) >= 5 and bool(all_gaps(kept, None)))
        gap = all_gaps(kept, None)[0]
        assert gap.reason == "poll_missed"
        assert gap.from_time in times(kept, 0) and gap.to_time in times(kept, 0)
        assert status.missed >= 3


async def test_slow_device_is_one_event_and_no_gap() -> None:
    slow = True

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0.21 if slow else 0, good_response(frame, number))]

    async with (
        misbehaving_device(answer) as port,
        collecting(port, [tag("a", "holding:0")], time_out=60.0) as (kept, status),
    ):
        await kept.until(lambda: bool(kept.events("poll_stretched")))
        n = len(values(kept, 0))
        await kept.until(lambda: len(values(kept, 0)) >= n + 20)
        assert "interval 0.1 s" in status.remarks["polls of 0.1 s"]
        (event,) = [e for e in kept.events("poll_stretched") if e.text == "stretched"][:1]
        assert event.detail["interval_seconds"] == 0.1 and event.detail["pace_seconds"] >= 0.2
        assert event.detail["slow"] == "device" and event.detail["answers_seconds"] >= 0.2
        assert ": the device answers in 0." in status.remarks["polls of 0.1 s"]
        red = [g for g in all_gaps(kept, 0) + all_gaps(kept, None) if g.from_time >= event.time]
        assert all(g.to_time is not None and g.to_time - g.from_time > 2e6 * 0.2 for g in red), "of a busy machine"
        assert status.missed >= n + 10, "each poll that was left out is a missing sample"
        slow = False
        await kept.until(lambda: any(e.text == "good" for e in kept.events("poll_stretched")))
        assert not status.remarks


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
async def test_clock_step_neither_freezes_times_nor_misses_a_poll(seconds: float, tmp_path: Path) -> None:
    """Against a real server; its channels keep their pace by a clock that nobody sets."""
    clock = ManualClock()
    tags = [tag("a", "holding:0"), tag("slow", "holding:40", interval=0.4), tag("bad", "holding:60000")]
    async with (
        peer("modbus-serial", tmp_path, 0) as server,
        collecting(server.port, tags, read_clocks=clock) as (kept, status),
    ):
        await kept.until(lambda: len(values(kept, 0)) >= 8 and len(values(kept, 1)) >= 2)
        clock.set(seconds)
        n = len(values(kept, 0))
        await kept.until(lambda: len(values(kept, 0)) >= n + 12)
        polls = status.missed
    (event,) = kept.events("clock_set")
    assert (event.text, round(event.detail["step_seconds"])) == ("back" if seconds < 0 else "forward", seconds)
    (gap,) = [g for g in gaps(kept, None) if g.reason == "clock_set"]
    assert gap.to_time is not None and abs(gap.to_time - gap.from_time - 3600e6) < 60e6
    had = np.array([t for t, _, s in kept.samples(0) if s == 0])
    steps = np.diff(had)
    (at,) = np.flatnonzero(np.abs(steps) > 1800e6)
    for side in np.split(had, [at + 1]):  # a late one and the next may be close to one another
        assert np.ptp(side) > 20_000 * (len(side) - 1), "times do not stand still"
    assert abs(steps[at] - seconds * 1e6) < 60e6
    assert polls < 3600, "an hour of polls was not missed, which is ten times as many"
    missed = [g for i in (None, 0, 1) for g in all_gaps(kept, i) if g.reason == "poll_missed"]
    assert all(g.to_time - g.from_time < 60e6 for g in missed if g.to_time is not None)


async def test_gap_open_during_a_clock_set_back_is_closed() -> None:
    clock = ManualClock()
    port = free_port()
    async with collecting(port, [tag("a", "holding:0")], read_clocks=clock) as (kept, _):
        await kept.until(lambda: bool(gaps(kept, None)))
        clock.set(-3600)
        await kept.until(lambda: bool(kept.events("clock_set")))
        async with misbehaving_device(lambda frame, number: [(0, good_response(frame, number))], port):
            await kept.until(lambda: len(values(kept, 0)) >= 3)
            assert all(g.to_time is not None for g in gaps(kept, None))
            last = next(g for g in gaps(kept, None) if g.reason == "disconnected")
            assert last.to_time == times(kept, 0)[0]


async def test_connection_closed_mid_answer_then_lost_then_restored() -> None:
    def closes(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return (
            [(0, good_response(frame, number)[:5]), (0, CLOSE)] if number == 4 else [(0, good_response(frame, number))]
        )

    port = free_port()
    began = now_us()
    async with collecting(port, [tag("a", "holding:0")]) as (kept, status):
        await kept.until(lambda: bool(kept.events("source_state")))
        assert status.state in ("disconnected", "connecting")
        async with misbehaving_device(closes, port):
            await kept.until(lambda: len(values(kept, 0)) >= 8)
            statuses = [s for _, _, s in kept.samples(0)]
            assert statuses.count(BAD_COMMUNICATION_ERROR) >= 2, "once before it was there, once when it closed"
            before, closed = gaps(kept, None)[:2]
            assert {before.reason, closed.reason} == {"disconnected"}
            assert began <= before.from_time and before.to_time == times(kept, 0)[0]
            assert lies_between_samples(closed, kept, 0) and closed.from_time == times(kept, 0)[2]
            assert not gaps(kept, 0), "one gap of the source, not one for each channel"


async def test_values_read_before_a_connection_loss_are_kept() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, CLOSE if number == 4 else good_response(frame, number))]

    tags = [tag("a", "input:0"), tag("b", "holding:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (kept, _):
        await kept.until(lambda: len(values(kept, 1)) >= 3)
        assert values(kept, 0)[:2] == [1.0, 3.0] and values(kept, 1)[0] == 2.0


async def test_a_channel_has_one_bad_sample_however_often_its_source_is_lost() -> None:
    """The device answers the first request after each connection, and never the second one."""

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, good_response(frame, number) if frame[7] == 4 or number == 2 else CLOSE)]

    tags = [tag("a", "input:0"), tag("b", "holding:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (kept, status):
        await kept.until(lambda: len(values(kept, 0)) >= 5 and status.reconnects >= 3)
    assert [code == 0 for _, _, code in kept.samples(1)] == [True, False]
    assert sum(code != 0 for _, _, code in kept.samples(0)) >= 3


async def test_silent_device_is_disconnected_and_read_again() -> None:
    silent = False

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [] if silent else [(0, good_response(frame, number))]

    tags = [tag(f"t{i}", f"holding:{200 * i}") for i in range(5)]
    async with misbehaving_device(answer) as port, collecting(port, tags, time_out=0.1) as (kept, status):
        await kept.until(lambda: len(values(kept, 4)) >= 2)
        silent = True
        await kept.until(lambda: status.reconnects >= 2)
        (gap,) = gaps(kept, None)
        assert (gap.reason, gap.to_time) == ("disconnected", None)
        assert gap.detail in [f"unit 1, holding:{200 * i}: no response within 0.1 s" for i in range(5)], (
            "the last of some"
        )
        silent = False
        await kept.until(lambda: gaps(kept, None)[0].to_time is not None and status.state == "connected")
        firsts = [min(t for t in times(kept, i) if t > gap.from_time) for i in range(5)]
        end = gaps(kept, None)[0].to_time
        assert end in firsts, "with the last block of the first poll, which is short where one timed out just before"


async def test_device_of_which_one_block_was_set_apart_stays_disconnected_while_it_is_silent() -> None:
    """Polls then have a single time-out, fewer than those that end the connection: they say nothing of the device."""
    silent = False

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [] if silent or frame[7] == 4 else [(0, good_response(frame, number))]

    tags = [tag("a", "holding:0"), tag("b", "input:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags, time_out=0.1) as (kept, status):
        await kept.until(lambda: len(values(kept, 0)) >= 20 and set(status.bad_channels) == {"b"})
        silent, seen = True, len(kept.events("source_state"))
        await kept.until(lambda: status.reconnects >= 5)
        assert {event.text for event in kept.events("source_state")[seen:]} == {"disconnected"}
        assert status.state in ("connecting", "disconnected")
        silent = False
        await kept.until(lambda: status.state == "degraded")
        assert kept.events("source_state")[-1].text == "degraded"


async def test_a_device_that_comes_back_is_read_within_a_period_however_long_it_was_away() -> None:
    """Doubling waits would have grown to more minutes than a test waits."""
    attempts = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()
        await writer.wait_closed()

    port = free_port()
    away = await asyncio.start_server(refuse, "127.0.0.1", port)
    async with away, collecting(port, [tag("a", "holding:0")], poll_interval=0.2, backoff_max=600.0) as (kept, _):
        await until(lambda: attempts >= 14)
        away.close()
        await away.wait_closed()
        async with misbehaving_device(lambda frame, number: [(0, good_response(frame, number))], port):
            await kept.until(lambda: len(values(kept, 0)) >= 2)
            assert [(g.reason, g.to_time) for g in gaps(kept, None)] == [("disconnected", times(kept, 0)[0])]


async def test_values_refused_by_a_full_spool_are_a_gap() -> None:
    async with (
        misbehaving_device(lambda frame, number: [(0, good_response(frame, number))]) as port,
        collecting(port, [tag("a", "holding:0"), tag("text", "holding:1", "string", kind="text")]) as (kept, status),
    ):
        await kept.until(lambda: len(values(kept, 0)) >= 2)
        kept.full = True
        await kept.until(lambda: bool(gaps(kept, 0)) and gaps(kept, 0)[-1].reason == "spool_full")
        (gap,) = (g for g in gaps(kept, 0) if g.reason == "spool_full")
        assert gap.from_time == times(kept, 0)[-1] and gap.to_time is None
        polls = status.missed
        await until(lambda: status.missed >= polls + 3)
        kept.full = False
        await kept.until(lambda: all(g.to_time is not None for g in gaps(kept, 0)))
        (gap,) = (g for g in gaps(kept, 0) if g.reason == "spool_full")
        assert lies_between_samples(gap, kept, 0)
        assert not [g for g in gaps(kept, 1) if g.reason == "spool_full"], "events had room"


async def test_one_batch_per_poll_for_any_number_of_reads() -> None:
    tags = [tag(f"t{i}", f"holding:{200 * i}") for i in range(5)]
    async with (
        misbehaving_device(lambda frame, number: [(0, good_response(frame, 1))]) as port,
        collecting(port, tags) as (kept, _),
    ):
        await kept.until(lambda: len(kept.samples(0)) >= 3)
        sizes = {len(b) % 5 for b in kept.batches if isinstance(b, SampleBatch)}
        assert sizes == {0}
        assert all(np.all(b.samples.status == 0) for b in kept.batches if isinstance(b, SampleBatch))


async def test_a_stop_is_a_gap_and_so_is_a_kill() -> None:
    tags = [tag("a", "holding:0"), tag("bad", "input:0")]

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, exception_response(frame, 4) if frame[7] == 4 else good_response(frame, number))]

    async with misbehaving_device(answer) as port:
        async with collecting(port, tags) as (kept, _):
            await kept.until(lambda: len(values(kept, 0)) >= 3)
            killed = MemoryAppender(kept.notes)  # what is on disk of a process that ends here
            last = times(kept, 0)[-1]
            assert not gaps(kept, None), "the first start of all interrupts nothing"
        stopped_after = times(kept, 0)[-1]
        async with collecting(port, tags, MemoryAppender(kept.notes)) as (again, status):
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


@pytest.mark.parametrize("seed", range(2))
async def test_every_silence_has_a_gap_under_random_faults(seed: int) -> None:
    """Two samples further apart than two periods have a gap between them, and values are none but those in time."""
    chance = random.Random(seed)

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        right = good_response(frame, number)
        kind = chance.randrange(48)
        if kind == 0:
            return [(0, CLOSE)]
        wrong: dict[int, list[tuple[float, bytes]]] = {
            1: [(0.25, right)],
            2: [(0, right[:-1])],
            3: [(0, chance.randbytes(chance.randrange(1, 40)))],
            4: [(0, exception_response(frame, chance.randrange(12)))],
            5: [(0, response(frame, bytes((frame[7],))))],
            6: [],
            7: [(0, right[:9]), (0.2, right[9:])],
            8: [(0, good_response(frame, 0xFFFF)[:6] + bytes((frame[6], frame[7] ^ 1)) + right[8:])],
        }
        return wrong.get(kind, [(0, right)])

    tags = [tag("a", "holding:0"), tag("b", "input:0"), tag("c", "holding:300"), tag("d", "holding:301")]
    period = 0.03
    async with (
        misbehaving_device(answer) as port,
        collecting(port, tags, poll_interval=period, time_out=0.1) as (kept, _),
    ):
        await kept.until(lambda: all(len(values(kept, i)) >= 40 for i in range(4)), seconds=120)
    slow_polls = [(e.time, float(e.detail["pace_seconds"])) for e in kept.events("poll_stretched")]  # by a busy machine
    paces = [(at, end, s) for (at, s), (end, _) in pairwise([(0, period), *slow_polls, (now_us(), period)])]
    for i in range(4):
        had = times(kept, i)
        assert values(kept, i) == sorted(set(values(kept, i))) and 0xFFFF not in values(kept, i)
        known = [(g.from_time, g.to_time or now_us()) for g in all_gaps(kept, i) + all_gaps(kept, None)]
        for before, after in pairwise(had):
            reached, longest = before, 0
            for start, end in sorted(known):
                if start < after and end > reached:
                    longest, reached = max(longest, start - reached), end
            pace = max([s for start, end, s in paces if start <= after and end >= before], default=period)
            assert max(longest, after - reached) <= 2e6 * pace + 1000, f"{tags[i].name}: {before} to {after}"
