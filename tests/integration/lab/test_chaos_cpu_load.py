"""The processes of chaos that load the processors."""

from __future__ import annotations

import asyncio
import os
import sys

import psutil
import pytest

from lab.chaos.inject import inject
from lab.chaos.schedule import FAULTS, Step
from lab.chaos.stress import BUSY
from tests.processes import command_line
from tests.waiting import PATIENCE, until


async def test_cpu_load_processes_lead_own_sessions_and_end() -> None:
    (fault,) = [fault for fault in FAULTS if fault.act == "busy"]
    playing = asyncio.create_task(inject(Step(0.0, fault, 60.0, 2.7), None))  # type: ignore[arg-type]
    ours = psutil.Process()

    def two_busy() -> list[psutil.Process]:
        found = [p for p in ours.children() if BUSY in command_line(p)]
        return found if len(found) == 2 else []

    found = await until(two_busy)
    assert [os.getsid(process.pid) for process in found] == [process.pid for process in found]
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert not any(process.is_running() for process in found)


async def test_cpu_load_processes_end_with_a_killed_parent() -> None:
    program = "async def main():\n async with s.busy(2): await asyncio.sleep(600)\nasyncio.run(main())"
    parent = psutil.Popen([sys.executable, "-c", f"import asyncio, lab.chaos.stress as s\n{program}"])
    try:
        await until(lambda: len(parent.children()) == 2)
        found = parent.children()
    finally:
        parent.kill()
        parent.wait()
    assert psutil.wait_procs(found, PATIENCE)[1] == []
