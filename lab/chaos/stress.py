"""Stress on the appliance: CPU-bound processes, and a database that is suspended most of the time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psutil

_CYCLE_SECONDS = 0.1
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"  # it does not outlive who started it


@asynccontextmanager
async def busy(number: int) -> AsyncIterator[None]:
    """Processes that never wait, each in a session of its own: no share of ours shields the appliance."""
    started: list[asyncio.subprocess.Process] = []
    try:
        for _ in range(number):
            command = (sys.executable, "-c", BUSY, str(os.getpid()))
            started.append(await asyncio.create_subprocess_exec(*command, start_new_session=True))
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            await process.wait()


@asynccontextmanager
async def slowed(pid: int, share: float) -> AsyncIterator[None]:
    """The process and its children run for a share of the time only; in between they are suspended."""
    stop = asyncio.Event()
    parent = psutil.Process(pid)

    async def suspend_and_resume() -> None:
        while not stop.is_set():
            processes = [parent, *parent.children()]
            _send(processes, signal.SIGSTOP)
            await asyncio.sleep(_CYCLE_SECONDS * (1 - share))
            _send(processes, signal.SIGCONT)
            await asyncio.sleep(_CYCLE_SECONDS * share)

    task = asyncio.create_task(suspend_and_resume())
    try:
        yield
    finally:
        stop.set()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        _send([parent, *parent.children()], signal.SIGCONT)


def _send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
