"""Modbus answers that come late, are damaged, or belong to another request."""

from __future__ import annotations

import asyncio
import re
import struct

import pytest

from ingest.modbus.failures import BAD_TIMEOUT
from tests.integration.ingest.test_modbus_collector import all_gaps, collecting, gaps, lies_between_samples, tag, values
from tests.modbus_wire import good_response, misbehaving_device, requested, response


async def test_late_answer_is_not_taken_for_the_next() -> None:
    """The third answer comes after the time-out; were it read later, a stale 3 would follow a fresh value."""
    timed_out = asyncio.Event()

    def answer(frame: bytes, number: int) -> list[tuple[float | asyncio.Event, bytes]]:
        return [(timed_out if number == 3 else 0.0, good_response(frame, number))]

    async with (
        misbehaving_device(answer) as port,
        collecting(port, [tag("a", "holding:0")], time_out=1.0) as (spool, status),
    ):
        await spool.until(lambda: bool(gaps(spool, 0)))
        timed_out.set()
        await spool.until(lambda: len(values(spool, 0)) >= 6)
        assert 3 not in values(spool, 0)
        assert values(spool, 0) == sorted(values(spool, 0))
        assert BAD_TIMEOUT in {s for _, _, s in spool.samples(0)}
        first = gaps(spool, 0)[0]
        assert first.reason == "poll_failed" and lies_between_samples(first, spool, 0)
        assert status.reconnects == 0, "the connection stands"


async def test_a_late_answer_in_pieces_keeps_the_connection_in_step() -> None:
    timed_out = asyncio.Event()

    def answer(frame: bytes, number: int) -> list[tuple[float | asyncio.Event, bytes]]:
        content = good_response(frame, number)
        return [(0, content[:11]), (timed_out, content[11:])] if number == 3 else [(0, content)]

    tags = [tag(f"t{i}", f"holding:{i}") for i in range(20)]
    async with misbehaving_device(answer) as port, collecting(port, tags, time_out=1.0) as (spool, status):
        await spool.until(lambda: bool(gaps(spool, 0)))
        timed_out.set()
        await spool.until(lambda: len(values(spool, 19)) >= 6)
        assert 3 not in values(spool, 0)
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
    async with server, collecting(port, [tag("a", "holding:0")], time_out=2.0) as (spool, _):
        await spool.until(lambda: bool(gaps(spool, 0)))
        timed_out.set()
        await spool.until(lambda: len(values(spool, 0)) >= 6)
        assert 3 not in values(spool, 0)
        assert values(spool, 0) == sorted(set(values(spool, 0)))


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

    async with misbehaving_device(answer) as port, collecting(port, [tag("a", "holding:0")]) as (spool, status):
        await spool.until(lambda: len(values(spool, 0)) >= 5)
        assert values(spool, 0) == [float(i + 1) for i in range(len(values(spool, 0)))]
        assert not gaps(spool, 0) and status.decode_errors == 0


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
        collecting(port, tags, any_transaction_id=True, time_out=0.5) as (spool, _),
    ):
        await spool.until(lambda: 4.0 in values(spool, 0))
        slow.set()
        await spool.until(lambda: len(values(spool, 0)) >= 6)
        assert [value for value in values(spool, 0) if value > 1000] == []
        assert values(spool, 0) == sorted(values(spool, 0))


async def test_another_transaction_id_is_named() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, good_response(frame, number) if frame[7] == 4 else with_ids(good_response(frame, number), 5))]

    tags = [tag("a", "holding:0"), tag("b", "input:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags, time_out=0.3) as (spool, status):
        await spool.until(lambda: bool(gaps(spool, 0)) and bool(values(spool, 1)))
        expected = (
            r"no response within 0.3 s: a response from unit 1 with transaction id \d+ arrived, expected unit 1 and"
        )
        assert re.search(expected, gaps(spool, 0)[0].detail)
        assert re.search(expected, status.bad_channels["a"])
        assert values(spool, 0) == [] and not gaps(spool, 1)


@pytest.mark.parametrize("unit", [0, 255])
async def test_response_from_no_unit_is_named_and_holds_up_no_other(unit: int) -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        right = good_response(frame, number)
        return [(0, with_ids(right, unit=unit) if frame[6] == 5 else right)]

    tags = [tag("a", "holding:0", unit_id=5), tag("b", "holding:0", unit_id=6)]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (spool, status):  # time_out is 10 s
        await spool.until(lambda: len(values(spool, 1)) >= 10 and bool(gaps(spool, 0)))
        assert f"a response from unit {unit} with transaction id" in status.bad_channels["a"]
        assert "expected unit 5" in gaps(spool, 0)[0].detail
        assert not values(spool, 0) and not gaps(spool, 1)
        assert [g for g in all_gaps(spool, None) if g.detail != "polls came late"] == [], (
            "which a busy machine may have"
        )
        assert status.reconnects == 0


async def test_twice_the_bytes_affect_only_their_block() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        function, registers = requested(frame)
        if function == 4:
            return [(0, good_response(frame, number))]
        words = struct.pack(">H", 7) * 2 * len(registers)
        return [(0, response(frame, bytes((3, len(words) & 0xFF)) + words))]

    tags = [tag(f"a{i}", f"holding:{i}") for i in range(0, 125, 4)] + [tag("b", "input:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (spool, status):
        await spool.until(lambda: len(values(spool, len(tags) - 1)) >= 5 and bool(gaps(spool, 0)))
        assert "response of 500 bytes (byte count 244), expected 250, half as many" in status.bad_channels["a0"]
        assert status.reconnects == 0 and not gaps(spool, len(tags) - 1)


async def test_a_short_answer_is_a_decode_error_of_its_block_only() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        if frame[7] == 4:
            return [(0, response(frame, struct.pack(">BBH", 4, 2, 7)))]
        return [(0, good_response(frame, number))]

    tags = [tag("a", "holding:0"), tag("b", "input:0"), tag("c", "input:1")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (spool, status):
        await spool.until(lambda: len(spool.samples(0)) >= 3 and bool(spool.samples(1)))
        assert {s for _, _, s in spool.samples(0)} == {0}
        assert status.decode_errors >= 1
        assert status.bad_channels == dict.fromkeys(
            ("b", "c"), "unit 1, input:0 to input:1: response of 2 bytes, expected 4"
        )
        assert not gaps(spool, 0)
        assert [(g.channel_ids, g.reason, g.to_time) for g in gaps(spool, 1)] == [((1, 2), "poll_failed", None)]


async def test_garbage_affects_only_its_block() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, b"HTTP/1.1 400 Bad Request\r\n\r\n" if number == 3 else good_response(frame, number))]

    tags = [tag("a", "input:0"), tag("b", "holding:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (spool, status):
        await spool.until(lambda: len(values(spool, 0)) >= 4 and len(values(spool, 1)) >= 4)
        (gap,) = gaps(spool, 0)
        assert gap.reason == "poll_failed" and lies_between_samples(gap, spool, 0)
        assert "invalid Modbus TCP header" in gap.detail
        assert not gaps(spool, 1) and not gaps(spool, None)
        assert 4 in values(spool, 1), "read in the same poll, over a new connection"
        assert status.reconnects == 1


async def test_a_server_of_another_protocol_is_no_device() -> None:
    tags = [tag("a", "input:0"), tag("b", "holding:0")]
    rubbish = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    async with misbehaving_device(lambda frame, number: [(0, rubbish)]) as port, collecting(port, tags) as (spool, _):
        await spool.until(lambda: bool(spool.events("source_state")))
        assert [e.text for e in spool.events("source_state")] == ["disconnected"]
        assert [(g.reason, g.to_time) for g in gaps(spool, None)] == [("disconnected", None)]
