"""The Modbus collector and our simulator's device, told to fail: whatever it answered is stored or in a gap."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from pydantic import TypeAdapter

from core.batch import Gap
from core.config.sources import ModbusSource, ModbusTag
from core.timestamps import now_us
from ingest.modbus.collector import Collector
from ingest.modbus.transport import Connections
from ingest.status import SourceStatus
from simulator.demo_tags import demo_tags
from simulator.export import devices
from simulator.faults import Faults
from simulator.modbus_server import ModbusDevice
from simulator.registers import Registers
from tests.batches import gaps_of
from tests.memory_appender import MemoryAppender
from tests.ports import free_port
from tests.waiting import running, until

DAY = 86_400.0


def modbus_tags(device: str) -> list[ModbusTag]:
    found = []
    for tag in demo_tags():
        if tag.register is not None and tag.register.device == device:
            r = tag.register
            form = {"type": r.type, "word_order": r.word_order, "bit": r.bit, "length": r.length}
            kind = "text" if r.type == "string" else "analog"
            row = {"name": tag.name, "kind": kind, "address": f"{r.table}:{r.address}", **form}
            found.append(TypeAdapter(ModbusTag).validate_python(row))
    return found


def gaps(spool: MemoryAppender, channel: int) -> list[Gap]:
    """Gaps of a channel and of the source as a whole, the last that was said of each."""
    last: dict[tuple[bool, int], Gap] = {}
    for gap in gaps_of(spool.batches):
        if gap.channel_ids is None or channel in gap.channel_ids:
            last[gap.channel_ids is None, gap.from_time] = gap
    return list(last.values())


@asynccontextmanager
async def serving(device: ModbusDevice, port: int) -> AsyncIterator[None]:
    await device.start("127.0.0.1", port)
    try:
        yield
    finally:
        await device.stop()


async def test_each_answer_is_stored_or_in_a_gap() -> None:
    plant = demo_tags()
    name = next(iter(devices(plant)))
    tags = modbus_tags(name)
    registers = Registers(
        plant, [i for i, t in enumerate(plant) if t.register is not None and t.register.device == name]
    )
    registers.update(np.ones(len(plant)), dict.fromkeys(range(len(plant)), "ON"))
    faults = Faults(plant)
    answers: list[tuple[int, str, range]] = []
    device = ModbusDevice(
        name, registers, faults, lambda _, table, start, n: answers.append((now_us(), table, range(start, start + n))),
        lambda tag, value: None,
    )  # fmt: skip
    port = free_port()
    options = {"poll_interval": 0.1, "time_out": 0.3, "backoff_min": 0.05, "tags": tags}
    source = ModbusSource.model_validate(
        {"name": "plc", "kind": "modbus", "address": f"tcp://127.0.0.1:{port}", **options}
    )
    spool, status = MemoryAppender(), SourceStatus(1, "plc", "modbus", source.address, len(tags))
    collector = Collector(source, {t.name: i for i, t in enumerate(tags)}, status, spool, Connections())

    async def some_polls() -> None:
        first = status.samples
        await until(lambda: status.samples > first + 5 * len(tags) and status.state == "connected")

    async with serving(device, port), running(collector.run()):
        await some_polls()
        for fault, seen in (
            ("exception", lambda: len(status.bad_channels) == len(tags)),
            ("stop_answering", lambda: status.state == "disconnected"),
            ("close_connections", lambda: status.state == "disconnected"),
        ):
            faults.add(name, fault, DAY, 4)  # type: ignore[arg-type]
            if fault == "close_connections":
                device.close_connections()
            await until(seen)
            faults.clear()
            await some_polls()
    assert status.open_gaps == 0 and not status.bad_channels
    assert {g.reason for g in spool.gaps()} >= {"poll_failed", "disconnected"}
    for i, tag in enumerate(tags):
        if tag.type == "string":
            continue
        mine = [t for t, table, span in answers if table == tag.table and tag.register in span]
        assert mine
        stored = np.array([t for t, _, s in spool.samples(i) if s == 0])
        for answered, following in zip(mine, [*mine[1:], now_us()], strict=True):
            got = np.any((stored >= answered) & (stored < following))
            missing = any(g.from_time <= answered <= (g.to_time or now_us()) for g in gaps(spool, i))
            assert got or missing or answered == mine[-1], f"{tag.name} at {answered}: neither stored nor missed"
