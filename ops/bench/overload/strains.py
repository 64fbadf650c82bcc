"""What is done to the appliance: busy processes, a flood of pushes, and a database that is stopped most of the time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
import psutil

SOURCE = "flood"
CHANNELS = 1000  # of the flood
TEMPLATE = f"{SOURCE}/{{measurement}}.{{field}}"
_CYCLE_SECONDS = 0.1
_ANSWER_SECONDS = 30.0
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


class Flood:
    """Gateways that push lines without times: all of one body are of the moment in which it comes."""

    def __init__(self, url: str, token: str) -> None:
        self._url = f"{url}/api/v2/write"
        self._headers = {"Authorization": f"Token {token}"}
        self._body = "\n".join(f"c{i:04d} value={i}" for i in range(1, CHANNELS)).encode()
        self.taken = 0  # lines that were answered with 204
        self.refused = 0  # lines that were not: a gateway would send them again, and these don't
        self._sent = 0

    @asynccontextmanager
    async def at(self, rate: float, connections: int) -> AsyncIterator[None]:
        """Offer ``rate`` lines/s over so many connections; one that is not answered in time offers less."""
        time_out = aiohttp.ClientTimeout(_ANSWER_SECONDS)
        async with aiohttp.ClientSession(headers=self._headers, timeout=time_out) as session:
            tasks = [asyncio.create_task(self._push(session, rate / connections)) for _ in range(connections)]
            try:
                yield
            finally:
                self._stopped = True
                for task in tasks:
                    await task

    async def _push(self, session: aiohttp.ClientSession, rate: float) -> None:
        self._stopped = False
        due = time.monotonic()
        while not self._stopped:
            self._sent += 1
            # Another body each time: the same one again would be a retry.
            body = b"c0000 value=%d\n%b" % (self._sent, self._body)
            try:
                async with session.post(self._url, data=body) as response:
                    await response.read()
                    taken = response.status == 204
            except (aiohttp.ClientError, TimeoutError, OSError):
                taken = False
            self.taken += CHANNELS * taken
            self.refused += CHANNELS * (not taken)
            due = max(due + CHANNELS / rate, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def at_most(rate: float, flood: Flood, seconds: float, written: Callable[[], int]) -> float:
    """Samples/s that are written while two gateways push as fast as they are answered."""
    async with flood.at(rate, 2):
        await asyncio.sleep(seconds / 3)
        before, began = written(), time.monotonic()
        await asyncio.sleep(seconds)
        return (written() - before) / (time.monotonic() - began)
