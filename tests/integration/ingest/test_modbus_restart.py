"""The Modbus collector as a process: what a kill and a stop leave on disk, and what the next one says of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.registry import Registry
from tests import children
from tests.config_in_force import activate
from tests.modbus_wire import good_response, misbehaving_device
from tests.ports import free_ports
from tests.spooling import Spooled
from tests.waiting import PATIENCE


@asynccontextmanager
async def collector(folder: Path, end: signal.Signals) -> AsyncIterator[asyncio.subprocess.Process]:
    """``python -m ingest modbus``, ended with a signal."""
    activate(folder, folder / "plant.toml")
    async with children.running("ingest", "modbus", "--state", folder) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.send_signal(end)
            async with asyncio.timeout(PATIENCE):
                code = await process.wait()
    assert code == (0 if end == signal.SIGTERM else -signal.SIGKILL)


@pytest.mark.slow
async def test_a_kill_and_a_stop_are_gaps_from_the_last_sample_to_the_first(tmp_path: Path) -> None:
    async with misbehaving_device(lambda frame, number: [(0, good_response(frame, number))]) as port:
        (tmp_path / "plant.toml").write_text(
            f'[plant]\nname = "demo"\n[health]\nport = {free_ports(3)}\n[[source]]\nname = "plc"\nkind = "modbus"\n'
            f'address = "tcp://127.0.0.1:{port}"\npoll_interval = "50ms"\ntags = "tags.csv"\n'
        )
        (tmp_path / "tags.csv").write_text("name,address,type\na,holding:0,uint16\n")
        Registry({"plc": 1}, {"plc": {"a": 1}}).save(tmp_path / "registry.json")
        spooled = Spooled(tmp_path / "spool" / "modbus.sqlite")
        ends = []
        for end in (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
            before = len(spooled.samples())
            async with collector(tmp_path, end):
                await spooled.until(before + 3)
            ends.append(int(spooled.samples().time[-1]))
    of_source = [gap for gap in spooled.gaps() if gap.channel_ids is None]
    # A machine that is busy may make polls late besides.
    interruptions = {(gap.from_time, gap.reason): gap for gap in of_source if gap.reason != "poll_missed"}
    assert set(interruptions) == {(ends[0], "killed"), (ends[1], "stopped")}
    for (start, _), gap in interruptions.items():
        assert gap.to_time == min(t for t in spooled.samples().time.tolist() if t > start)
