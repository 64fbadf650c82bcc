"""The Modbus collector over real sockets: a server that is not ours, our simulator's device, and nasty ones."""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np

from ingest.batch import SampleBatch
from ingest.config.model import ModbusSource, ModbusTag
from ingest.modbus.collector import collect
from ingest.modbus.transport import BAD_COMMUNICATION_ERROR, BAD_NODE_ID_UNKNOWN, BAD_TIMEOUT
from ingest.status import SourceStatus
from tests.appender import Kept
from tests.peers import free_port, peer

VALUES = {
    "int16": -1234,
    "uint16": 54321,
    "int32": -123456789,
    "uint32": 3123456789,
    "float32": -12.625,
    "float64": 3.141592653589793,
    "int64": -123456789012345,
    "uint64": 123456789012345,
}


def tag(name: str, address: str, value_type: str = "uint16", **more: object) -> ModbusTag:
    return ModbusTag.model_validate({"name": name, "address": address, "type": value_type, **more})


@asynccontextmanager
async def collecting(port: int, tags: list[ModbusTag], **options: object) -> AsyncIterator[tuple[Kept, SourceStatus]]:
    fast = {"poll_interval": 0.1, "time_out": 0.5, "backoff_min": 0.05, "backoff_max": 0.2}
    source = ModbusSource.model_validate(
        {"name": "plc", "kind": "modbus", "address": f"tcp://127.0.0.1:{port}", **fast, **options, "tags": tags}
    )
    status = SourceStatus(1, "plc", "modbus", source.address, len(tags))
    kept = Kept()
    task = asyncio.create_task(collect(source, {t.name: i for i, t in enumerate(tags)}, status, kept))
    try:
        yield kept, status
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_every_type_and_order_of_a_foreign_server() -> None:
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
    async with peer("modbus-server.js") as server, collecting(server.port, tags) as (kept, status):
        await kept.until(lambda: all(len(kept.samples(i)) >= 3 for i in range(len(expected))))
        for i, value in enumerate(expected):
            assert {(v, s) for _, v, s in kept.samples(i)} == {(value, 0)}, tags[i]
            times = [t for t, _, _ in kept.samples(i)]
            assert times == sorted(set(times))
        assert [(e.text, e.channel_id) for e in kept.events("text")] == [("TANK-7", len(tags) - 1)]
        assert status.state == "connected"


async def test_an_illegal_address_costs_only_its_tag() -> None:
    """Registers from 1000 are illegal there: one bad tag amid good ones in one block."""
    tags = [tag(f"good{i}", f"holding:{990 + i}") for i in range(10)] + [tag("bad", "holding:1003")]
    async with peer("modbus-server.js") as server, collecting(server.port, tags, bridge=10) as (kept, status):
        await kept.until(lambda: len(kept.samples(9)) >= 3 and bool(kept.samples(10)))
        assert status.state == "degraded"
        assert status.bad_channels == {"bad": "exception 2: illegal data address"}
        assert [(math.isnan(v), s) for _, v, s in kept.samples(10)] == [(True, BAD_NODE_ID_UNKNOWN)], (
            "once, not each poll"
        )
        assert {s for i in range(10) for _, _, s in kept.samples(i)} == {0}
        assert [e.text for e in kept.events("channel_state")] == ["bad"]


Answer = Callable[[bytes, int], list[tuple[float, bytes]]]  # (request frame, its number) → [(delay, bytes)]


@asynccontextmanager
async def nasty(answer: Answer, port: int = 0) -> AsyncIterator[int]:
    """A server whose every byte the test decides."""
    number = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        try:
            while True:
                frame = await reader.readexactly(12)
                number += 1
                for delay, content in answer(frame, number):
                    await asyncio.sleep(delay)
                    if not content:
                        return
                    writer.write(content)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def good(frame: bytes, value: int) -> bytes:
    count: int = struct.unpack(">H", frame[10:12])[0]
    body: bytes = struct.pack(">BB", frame[7], 2 * count) + struct.pack(">H", value) * count
    return frame[:4] + struct.pack(">HB", len(body) + 1, frame[6]) + body


async def test_a_late_answer_is_never_taken_for_the_next_ones() -> None:
    """The third answer comes after the time-out; were it read later, a stale 3 would follow a fresh value."""

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0.8 if number == 3 else 0.0, good(frame, number))]

    async with nasty(answer) as port, collecting(port, [tag("a", "holding:0")]) as (kept, status):
        await kept.until(lambda: sum(s == 0 for _, _, s in kept.samples(0)) >= 6)
        values = [v for _, v, s in kept.samples(0) if s == 0]
        assert 3 not in values
        assert values == sorted(values)
        assert [s for _, _, s in kept.samples(0) if s] == [BAD_TIMEOUT]
        assert status.missed >= 1
        (missed,) = kept.events("missed")
        assert missed.detail["from"] < missed.detail["to"]
        assert [e.text for e in kept.events("source_state")] == ["connected", "disconnected", "connected"]


async def test_a_short_answer_is_a_decode_error_of_its_block_only() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        if frame[7] == 4:
            body = struct.pack(">BBH", 4, 2, 7)
            return [(0, frame[:4] + struct.pack(">HB", len(body) + 1, frame[6]) + body)]
        return [(0, good(frame, number))]

    tags = [tag("a", "holding:0"), tag("b", "input:0"), tag("c", "input:1")]
    async with nasty(answer) as port, collecting(port, tags) as (kept, status):
        await kept.until(lambda: len(kept.samples(0)) >= 3 and bool(kept.samples(1)))
        assert {s for _, _, s in kept.samples(0)} == {0}
        assert status.decode_errors >= 1
        assert set(status.bad_channels) == {"b", "c"}


async def test_closed_in_the_middle_then_gone_then_back() -> None:
    def closes(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, good(frame, number)[:5]), (0, b"")] if number == 4 else [(0, good(frame, number))]

    port = free_port()
    async with collecting(port, [tag("a", "holding:0")]) as (kept, status):
        await kept.until(lambda: bool(kept.events("source_state")))
        assert status.state in ("disconnected", "connecting")
        async with nasty(closes, port):
            await kept.until(lambda: sum(s == 0 for _, _, s in kept.samples(0)) >= 8)
        statuses = [s for _, _, s in kept.samples(0)]
        assert statuses.count(BAD_COMMUNICATION_ERROR) >= 2, "once before it was there, once when it closed"
        assert status.reconnects >= 1


async def test_a_full_spool_is_on_record() -> None:
    async with (
        nasty(lambda frame, number: [(0, good(frame, number))]) as port,
        collecting(port, [tag("a", "holding:0")]) as (kept, status),
    ):
        await kept.until(lambda: len(kept.samples(0)) >= 2)
        kept.full = True
        async with asyncio.timeout(10):
            while status.missed < 3:
                await asyncio.sleep(0.01)
        kept.full = False
        await kept.until(lambda: bool(kept.events("missed")))
        (missed,) = kept.events("missed")
        stored = [t for t, _, _ in kept.samples(0)]
        assert not [t for t in stored if missed.detail["from"] < t < missed.detail["to"] - 100_000]


async def test_one_batch_a_poll_however_many_reads() -> None:
    tags = [tag(f"t{i}", f"holding:{200 * i}") for i in range(5)]
    async with (
        nasty(lambda frame, number: [(0, good(frame, 1))]) as port,
        collecting(port, tags) as (kept, _),
    ):
        await kept.until(lambda: len(kept.samples(0)) >= 3)
        sizes = {len(b) for b in kept.batches if isinstance(b, SampleBatch)}
        assert sizes == {5}
        assert all(np.all(b.status == 0) for b in kept.batches if isinstance(b, SampleBatch))
