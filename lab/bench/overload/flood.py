"""Gateways that push more than the appliance can accept, regardless of the responses."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal, TypeAlias

import aiohttp

GATEWAYS = 10  # each a source of its own, from an address of its own
LINES = 1000  # of a body, each of a channel of its own
_ANSWER_SECONDS = 5.0  # as Telegraf waits by default
_BODY = "\n".join(f"c{i:04d} value={i}" for i in range(1, LINES)).encode()

Answer: TypeAlias = Literal["taken", "refused", "unanswered", "wrong"]


def source(number: int) -> str:
    """The name of a gateway's source."""
    return f"flood{number:02d}"


class Flood:
    """Bodies of lines without times: all of one body are of the moment in which it comes.

    A body is due when its schedule says so, whatever became of the one before: as many are under way as a time-out
    allows. ``answers`` counts lines: offered, and by response: taken (204), refused (429 or 503 with
    the time to wait, a gateway would send them again, and these don't), ``unanswered`` (in time), or ``wrong``.
    """

    def __init__(self, url: str, tokens: Sequence[str]) -> None:
        self._url = f"{url}/api/v2/write"
        self._tokens = tokens
        self._serials = itertools.count(1)
        self.answers: Counter[str] = Counter()
        self.accepted: set[int] = set()  # bodies, by the value of their first line

    @asynccontextmanager
    async def at(self, rate: float) -> AsyncIterator[None]:
        """Offer ``rate`` lines/s in all."""
        async with self._sessions(len(self._tokens)) as sessions, asyncio.TaskGroup() as group:
            schedules = [
                group.create_task(self._on_schedule(session, LINES * len(sessions) / rate)) for session in sessions
            ]
            try:
                yield
            finally:
                for schedule in schedules:
                    schedule.cancel()

    async def create_channels(self) -> None:
        """A body of each gateway is taken: its channels are made by it."""
        async with self._sessions(len(self._tokens)) as sessions:
            for session in sessions:
                while await self._push(session) != "taken":
                    await asyncio.sleep(1.0)

    async def capacity(self, seconds: float, written: Callable[[], int]) -> float:
        """Samples/s that are written while two gateways push as fast as they are answered."""
        async with self._sessions(2) as sessions, asyncio.TaskGroup() as group:
            pushing = [group.create_task(self._push_continuously(session)) for session in sessions]
            await asyncio.sleep(seconds / 3)
            before, began = await asyncio.to_thread(written), time.monotonic()
            await asyncio.sleep(seconds)
            rate = (await asyncio.to_thread(written) - before) / (time.monotonic() - began)
            for task in pushing:
                task.cancel()
        return rate

    @asynccontextmanager
    async def _sessions(self, number: int) -> AsyncIterator[list[aiohttp.ClientSession]]:
        time_out = aiohttp.ClientTimeout(_ANSWER_SECONDS)
        async with AsyncExitStack() as stack:
            sessions = []
            for i, token in enumerate(self._tokens[:number]):
                connector = aiohttp.TCPConnector(limit=0, local_addr=(f"127.0.1.{i + 1}", 0))
                headers = {"Authorization": f"Token {token}"}
                session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=time_out)
                sessions.append(await stack.enter_async_context(session))
            yield sessions

    async def _on_schedule(self, session: aiohttp.ClientSession, period: float) -> None:
        """Push on schedule until cancelled; then wait for requests that are under way."""
        due = time.monotonic() + period * random.random()
        async with asyncio.TaskGroup() as pushes:
            try:
                while True:
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    pushes.create_task(self._push(session))
                    due += period
            except asyncio.CancelledError:
                pass

    async def _push_continuously(self, session: aiohttp.ClientSession) -> None:
        while True:
            await self._push(session)

    async def _push(self, session: aiohttp.ClientSession) -> Answer:
        # Another body each time: the same one again would be a retry.
        serial = next(self._serials)
        self.answers["offered"] += LINES
        answer: Answer = "unanswered"
        try:
            async with session.post(self._url, data=b"c0000 value=%d\n%b" % (serial, _BODY)) as response:
                await response.read()
                with_retry_after = response.status in (429, 503) and "Retry-After" in response.headers
                answer = "taken" if response.status == 204 else "refused" if with_retry_after else "wrong"
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass
        self.answers[answer] += LINES
        if answer == "taken":
            self.accepted.add(serial)
        return answer
