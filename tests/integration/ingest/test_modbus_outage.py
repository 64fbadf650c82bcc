"""Records of the Modbus collector while its device does not answer, or is not there."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from core.timestamps import now_us
from ingest.modbus.failures import BAD_COMMUNICATION_ERROR
from tests.integration.ingest.test_modbus_collector import (
    all_gaps,
    collecting,
    gaps,
    lies_between_samples,
    tag,
    times,
    values,
)
from tests.modbus_wire import CLOSE, exception_response, good_response, misbehaving_device, response
from tests.ports import free_port
from tests.waiting import until


async def test_another_reason_of_an_outage_is_recorded() -> None:
    port = free_port()
    async with collecting(port, [tag("a", "input:0"), tag("b", "holding:0")]) as (spool, _):
        await spool.until(lambda: bool(spool.events("source_state")))
        async with misbehaving_device(lambda frame, number: [(0, b"HTTP/1.1 400 Bad Request\r\n\r\n")], port):
            await spool.until(lambda: len(spool.events("source_state")) > 1)
        first, other = spool.events("source_state")
        assert (first.text, other.text) == ("disconnected", "disconnected")
        assert "invalid Modbus TCP header" in other.detail["reason"]
        assert other.detail["since"] == first.time
        assert len(gaps(spool, None)) == 1


async def test_unanswered_block_only_delays_the_others() -> None:
    """The device says nothing at all when asked for input registers. Time is shared: it is asked ever less often."""
    inputs = 0

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        nonlocal inputs
        inputs += frame[7] == 4
        return [] if frame[7] == 4 else [(0, good_response(frame, number))]

    tags = [tag("a", "holding:0"), tag("b", "input:0"), tag("c", "input:100"), tag("d", "input:200")]
    async with misbehaving_device(answer) as port, collecting(port, tags, time_out=0.1) as (spool, status):
        await spool.until(lambda: len(values(spool, 0)) >= 20 and set(status.bad_channels) == {"b", "c", "d"})
        assert status.reconnects <= 1, "at most once, before it is known which of them are answered"
        assert not gaps(spool, 0)
        for i in (1, 2, 3):
            *before, last = gaps(spool, i)
            assert (last.reason, last.to_time) == ("poll_failed", None)
            assert all(g.reason == "disconnected" and g.to_time == last.from_time for g in before), "not yet asked"
        assert inputs < len(values(spool, 0)), "three blocks, and yet asked less often than the one that answers"


async def test_connection_closed_mid_answer_then_lost_then_restored() -> None:
    def closes(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return (
            [(0, good_response(frame, number)[:5]), (0, CLOSE)] if number == 4 else [(0, good_response(frame, number))]
        )

    port = free_port()
    began = now_us()
    async with collecting(port, [tag("a", "holding:0")]) as (spool, status):
        await spool.until(lambda: bool(spool.events("source_state")))
        assert status.state in ("disconnected", "connecting")
        async with misbehaving_device(closes, port):
            await spool.until(lambda: len(values(spool, 0)) >= 8)
            statuses = [s for _, _, s in spool.samples(0)]
            assert statuses.count(BAD_COMMUNICATION_ERROR) >= 2, "once before it was there, once when it closed"
            before, closed = gaps(spool, None)[:2]
            assert {before.reason, closed.reason} == {"disconnected"}
            assert began <= before.from_time and before.to_time == times(spool, 0)[0]
            assert lies_between_samples(closed, spool, 0) and closed.from_time == times(spool, 0)[2]
            assert not gaps(spool, 0), "one gap of the source, not one for each channel"


async def test_values_read_before_a_connection_loss_are_kept() -> None:
    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, CLOSE if number == 4 else good_response(frame, number))]

    tags = [tag("a", "input:0"), tag("b", "holding:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (spool, _):
        await spool.until(lambda: len(values(spool, 1)) >= 3)
        assert values(spool, 0)[:2] == [1.0, 3.0] and values(spool, 1)[0] == 2.0


async def test_a_channel_has_one_bad_sample_however_often_its_source_is_lost() -> None:
    """The device answers the first request after each connection, and never the second one."""

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [(0, good_response(frame, number) if frame[7] == 4 or number == 2 else CLOSE)]

    tags = [tag("a", "input:0"), tag("b", "holding:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags) as (spool, status):
        await spool.until(lambda: len(values(spool, 0)) >= 5 and status.reconnects >= 3)
    assert [code == 0 for _, _, code in spool.samples(1)] == [True, False]
    assert sum(code != 0 for _, _, code in spool.samples(0)) >= 3


async def test_silent_device_is_disconnected_and_read_again() -> None:
    silent = False

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [] if silent else [(0, good_response(frame, number))]

    tags = [tag(f"t{i}", f"holding:{200 * i}") for i in range(5)]
    async with misbehaving_device(answer) as port, collecting(port, tags, time_out=0.1) as (spool, status):
        await spool.until(lambda: len(values(spool, 4)) >= 2)
        silent = True
        await spool.until(lambda: status.reconnects >= 2)
        (gap,) = gaps(spool, None)
        assert (gap.reason, gap.to_time) == ("disconnected", None)
        assert gap.detail in [f"unit 1, holding:{200 * i}: no response within 0.1 s" for i in range(5)], (
            "the last of some"
        )
        silent = False
        await spool.until(lambda: gaps(spool, None)[0].to_time is not None and status.state == "connected")
        firsts = [min(t for t in times(spool, i) if t > gap.from_time) for i in range(5)]
        end = gaps(spool, None)[0].to_time
        assert end in firsts, "with the last block of the first poll, which is short where one timed out just before"


async def test_device_of_which_one_block_was_set_apart_stays_disconnected_while_it_is_silent() -> None:
    """Polls then have a single time-out, fewer than those that end the connection: they say nothing of the device."""
    silent = False

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        return [] if silent or frame[7] == 4 else [(0, good_response(frame, number))]

    tags = [tag("a", "holding:0"), tag("b", "input:0")]
    async with misbehaving_device(answer) as port, collecting(port, tags, time_out=0.1) as (spool, status):
        await spool.until(lambda: len(values(spool, 0)) >= 20 and set(status.bad_channels) == {"b"})
        silent, seen = True, len(spool.events("source_state"))
        await spool.until(lambda: status.reconnects >= 5)
        assert {event.text for event in spool.events("source_state")[seen:]} == {"disconnected"}
        assert status.state in ("connecting", "disconnected")
        silent = False
        await spool.until(lambda: status.state == "degraded")
        assert spool.events("source_state")[-1].text == "degraded"


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
    async with away, collecting(port, [tag("a", "holding:0")], poll_interval=0.2, backoff_max=600.0) as (spool, _):
        await until(lambda: attempts >= 14)
        away.close()
        await away.wait_closed()
        async with misbehaving_device(lambda frame, number: [(0, good_response(frame, number))], port):
            await spool.until(lambda: len(values(spool, 0)) >= 2)
            assert [(g.reason, g.to_time) for g in gaps(spool, None)] == [("disconnected", times(spool, 0)[0])]


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
        collecting(port, tags, poll_interval=period, time_out=0.1) as (spool, _),
    ):
        await spool.until(lambda: all(len(values(spool, i)) >= 40 for i in range(4)), seconds=120)
    slow_polls = [
        (e.time, float(e.detail["pace_seconds"])) for e in spool.events("poll_stretched")
    ]  # by a busy machine
    paces = [(at, end, s) for (at, s), (end, _) in pairwise([(0, period), *slow_polls, (now_us(), period)])]
    for i in range(4):
        had = times(spool, i)
        assert values(spool, i) == sorted(set(values(spool, i))) and 0xFFFF not in values(spool, i)
        known = [(g.from_time, g.to_time or now_us()) for g in all_gaps(spool, i) + all_gaps(spool, None)]
        for before, after in pairwise(had):
            reached, longest = before, 0
            for start, end in sorted(known):
                if start < after and end > reached:
                    longest, reached = max(longest, start - reached), end
            pace = max([s for start, end, s in paces if start <= after and end >= before], default=period)
            assert max(longest, after - reached) <= 2e6 * pace + 1000, f"{tags[i].name}: {before} to {after}"
