"""What is done to the appliance: busy processes, and a database that is stopped most of the time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psutil

_CYCLE_SECONDS = 0.1
_BUSY = "while True: pass"


@asynccontextmanager
async def busy(number: int) -> AsyncIterator[None]:
    """So many processes that never wait, each in a session of its own: no share of ours shields the appliance."""
    started = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", _BUSY, start_new_session=True) for _ in range(number)
    ]
    try:
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

    async def alternate() -> None:
        while not stop.is_set():
            processes = [parent, *parent.children()]
            _send(processes, signal.SIGSTOP)
            await asyncio.sleep(_CYCLE_SECONDS * (1 - share))
            _send(processes, signal.SIGCONT)
            await asyncio.sleep(_CYCLE_SECONDS * share)

    task = asyncio.create_task(alternate())
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
