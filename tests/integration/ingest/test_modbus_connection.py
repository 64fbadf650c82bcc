"""Connections of the Modbus collector: devices that close them, and gateways that take only one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from ingest.modbus.transport import Connections
from tests.integration.ingest.test_modbus_collector import collecting, gaps, tag, values
from tests.modbus_wire import CLOSE, good_response, misbehaving_device
from tests.peers import FIRST_REGISTER, peer


async def test_device_closing_after_each_answer_is_read() -> None:
    tags = [tag(f"t{i}", f"holding:{200 * i}") for i in range(3)]
    async with (
        misbehaving_device(lambda frame, number: [(0, good_response(frame, number)), (0, CLOSE)]) as port,
        collecting(port, tags) as (spool, status),
    ):
        await spool.until(lambda: all(len(values(spool, i)) >= 12 for i in range(3)))
        assert status.state == "connected" and status.open_gaps == 0
        assert status.reconnects <= 3, "those from which it was learned"
        assert "closes the connection after each response" in status.remarks["connection"]
        assert not any(gaps(spool, i) for i in (None, 0, 1, 2))
        asked = [sorted(v for i in range(3) for v in values(spool, i)[n : n + 1]) for n in range(12)]
        assert all(after[0] > before[-1] for before, after in pairwise(asked)), "no block is read twice in a round"


async def test_a_connection_that_the_device_closes_now_and_then_costs_no_sample() -> None:
    """As a device does that closes what was idle for a while."""
    tags = [tag("a", "holding:0"), tag("b", "input:0")]
    async with (
        misbehaving_device(
            lambda frame, number: [(0, good_response(frame, number)), *([(0, CLOSE)] if number % 7 == 0 else [])]
        ) as port,
        collecting(port, tags) as (spool, status),
    ):
        await spool.until(lambda: len(values(spool, 1)) >= 20)
        assert not any(gaps(spool, i) for i in (None, 0, 1))
        assert status.reconnects >= 3 and not status.remarks


class Gateway:
    """Modbus TCP to a serial line: one connection at a time, others are closed at once; one request at a time."""

    def __init__(self, answers: Callable[[int, int], float | None]) -> None:
        """``answers`` gives the delay (s) before the answer to a unit's request of that number; None: there is none."""
        self._answers = answers
        self.connections = self.refused = self.number = 0
        self.requested: list[int] = []  # unit ids, in order
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.connections:
            self.refused += 1
            writer.close()
            return
        self.connections += 1
        late: set[asyncio.Task[None]] = set()
        try:
            while True:
                frame = await reader.readexactly(12)
                self.number += 1
                self.requested.append(frame[6])
                delay = self._answers(frame[6], self.number)
                if delay is not None:
                    late.add(asyncio.create_task(self._later(delay, writer, good_response(frame, 1000 * frame[6]))))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            for task in late:
                task.cancel()
            self.connections -= 1
            writer.close()

    async def _later(self, delay: float, writer: asyncio.StreamWriter, answer: bytes) -> None:
        await asyncio.sleep(delay)
        writer.write(answer)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]


async def test_two_sources_at_one_address_share_its_only_connection_in_turn() -> None:
    gateway = Gateway(lambda unit, number: 0.002)
    connections = Connections()
    tags = [tag("a", "holding:0"), tag("b", "holding:500")]
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(gateway.running())
        had = [
            await stack.enter_async_context(collecting(port, tags, connections=connections, unit_id=unit))
            for unit in (1, 2, 3)
        ]
        for spool, _ in had:
            await spool.until(lambda spool=spool: len(values(spool, 1)) >= 10)  # type: ignore[misc]
    for unit, (spool, status) in enumerate(had, 1):
        assert set(values(spool, 0)) == {1000.0 * unit}, "no answer of one unit is taken for another's"
        assert status.reconnects == 0 and not gaps(spool, None)
    assert gateway.refused == 0


async def test_a_tag_has_a_unit_id_of_its_own() -> None:
    gateway = Gateway(lambda unit, number: 0.0)
    tags = [tag("own", "holding:0"), tag("other", "holding:0", unit_id=7), tag("more", "holding:1", unit_id=7)]
    async with gateway.running() as port, collecting(port, tags, unit_id=2) as (spool, _):
        await spool.until(lambda: all(len(values(spool, i)) >= 3 for i in range(3)))
    assert (set(values(spool, 0)), set(values(spool, 1)), set(values(spool, 2))) == ({2000.0}, {7000.0}, {7000.0})
    assert abs(gateway.requested.count(2) - gateway.requested.count(7)) <= 1, "registers of one unit are read together"


async def test_unanswering_unit_only_delays_the_others() -> None:
    """The second unit is dead: its source is away, and the connection stands for the first."""
    gateway = Gateway(lambda unit, number: 0.0 if unit == 1 else None)
    others = [tag(f"b{i}", f"holding:{200 * i}") for i in range(3)]
    connections = Connections()
    async with (
        gateway.running() as port,
        collecting(port, [tag("a", "holding:0")], connections=connections) as (spool, status),
        collecting(port, others, connections=connections, unit_id=2, time_out=0.3) as (dead, away),
    ):
        await dead.until(lambda: bool(gaps(dead, None)))
        n = len(values(spool, 0))
        await spool.until(lambda: len(values(spool, 0)) >= n + 25)
        assert away.state in ("disconnected", "connecting") and status.state == "connected"
        assert status.reconnects == 0 and not gaps(spool, None), "nor was it closed"
        assert gateway.requested.count(2) >= 2
        assert (2, 2) not in pairwise(gateway.requested), "one request of the other, and not all that it has in mind"


async def test_late_answer_of_one_unit_is_not_taken_for_another() -> None:
    gateway = Gateway(lambda unit, number: 0.0 if unit == 1 else 1.0)  # ten time-outs, on a busy machine too
    connections = Connections()
    async with (
        gateway.running() as port,
        collecting(port, [tag("a", "holding:0")], connections=connections) as (spool, _),
        collecting(port, [tag("b", "holding:0")], connections=connections, unit_id=2, time_out=0.1) as (slow, _),
    ):
        await spool.until(lambda: len(values(spool, 0)) >= 25)
        await slow.until(lambda: bool(gaps(slow, 0) or gaps(slow, None)))
    assert set(values(spool, 0)) == {1000.0} and not values(slow, 0)


async def test_unresponsive_connection_is_reopened() -> None:
    """A cable is pulled and plugged in elsewhere: both sources time out, and one of them closes it."""
    silent = False
    gateway = Gateway(lambda unit, number: None if silent else 0.0)
    connections = Connections()
    options = {"time_out": 0.1, "connections": connections}
    async with (
        gateway.running() as port,
        collecting(port, [tag("a", "holding:0")], **options) as (one, _),  # type: ignore[arg-type]
        collecting(port, [tag("b", "holding:0")], **options, unit_id=2) as (two, _),  # type: ignore[arg-type]
    ):
        await one.until(lambda: len(values(one, 0)) >= 3 and len(values(two, 0)) >= 3)
        connection = connections.get(f"tcp://127.0.0.1:{port}")
        protocol = connection._protocol
        silent = True
        await two.until(
            lambda: bool(gaps(one, None) and gaps(two, None)) and connection._protocol not in (None, protocol)
        )
        silent = False
        n = len(values(one, 0)), len(values(two, 0))
        await one.until(lambda: len(values(one, 0)) > n[0] + 2 and len(values(two, 0)) > n[1] + 2)
        assert all(g.to_time is not None for spool in (one, two) for g in gaps(spool, None))


@pytest.mark.parametrize("options", [("single=1",), ("single=1", "close=1"), ("close=1", "delay=20")])
async def test_foreign_device_with_two_units_is_read_exactly(tmp_path: Path, options: tuple[str, ...]) -> None:
    """libmodbus, which takes one connection, closes it after each answer, or both; a request for each channel."""
    connections = Connections()
    tags = [tag(f"c{i}", f"holding:{FIRST_REGISTER + 2 * i}", "float32") for i in range(3)]
    async with AsyncExitStack() as stack:
        device = await stack.enter_async_context(peer("libmodbus", tmp_path, 3, "units=2", *options))
        had = [
            await stack.enter_async_context(
                collecting(device.port, tags, connections=connections, unit_id=unit, max_registers=2, poll_interval=0.3)
            )
            for unit in (1, 2)
        ]
        for spool, _ in had:
            await spool.until(lambda spool=spool: len(values(spool, 2)) >= 10)  # type: ignore[misc]
    published = device.published()
    for unit, (spool, status) in enumerate(had, 1):
        for i in range(3):
            truth = [value for (name, _), (value, _) in sorted(published.items()) if name == f"unit{unit}/c{i}"]
            stored = values(spool, i)
            assert stored == [value for value in truth if value in stored], "in order, none invented"
            assert len(truth) - len(stored) <= 1, "each answer is stored, but the one at the end"
        assert not gaps(spool, None) and status.reconnects <= 3
        assert bool(status.remarks.get("connection")) == ("close=1" in options)
