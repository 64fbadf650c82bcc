"""A push gateway: sends values at a steady rate and retries each batch until it gets 204."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from pathlib import Path

import aiohttp
import numpy as np

from ingest.timestamps import now_us
from simulator.truth import TruthWriter

CHANNELS = 200
SOURCE = "gateway"
TEMPLATE = f"{SOURCE}/{{measurement}}.{{field}}"
_SECONDS = 0.5  # between two batches
_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 0.5


class Gateway:
    """Measures every half a second, writes down what, and pushes in the order of measuring."""

    def __init__(self, url: str, token: str, truth: Path) -> None:
        self._url = f"{url}/api/v2/write?precision=us"
        self._headers = {"Authorization": f"Token {token}"}
        self._names = [f"{SOURCE}/c{i:03d}.value" for i in range(CHANNELS)]  # as TEMPLATE says
        self._truth = TruthWriter(truth, self._names, now_us())
        self._random = np.random.default_rng(1)
        self._waiting: deque[tuple[int, bytes]] = deque()  # with the time of measuring, µs
        self.refused: dict[str, int] = {}  # answers other than 204, by what they were

    @property
    def waiting(self) -> int:
        """Batches that no 204 has taken."""
        return len(self._waiting)

    @property
    def oldest(self) -> float:
        """When the oldest of them was measured, µs; infinite where there is none."""
        return self._waiting[0][0] if self._waiting else math.inf

    async def run(self) -> None:
        """Measure and push until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._measure())
                group.create_task(self._push())
        finally:
            self._truth.close()

    async def _measure(self) -> None:
        due = time.monotonic()
        while True:
            at = now_us()
            values = self._random.integers(0, 1_000_000, CHANNELS) / 1000
            self._truth.numbers("push", np.arange(CHANNELS), at, values)
            lines = [f"c{i:03d} value={value!r} {at}" for i, value in enumerate(values.tolist())]
            self._waiting.append((at, "\n".join(lines).encode()))
            due += _SECONDS
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _push(self) -> None:
        time_out = aiohttp.ClientTimeout(_ANSWER_SECONDS)
        async with aiohttp.ClientSession(headers=self._headers, timeout=time_out) as session:
            while True:
                if not self._waiting:
                    await asyncio.sleep(_SECONDS / 5)
                    continue
                answer = await self._answer(session, self._waiting[0][1])
                if answer == "204":
                    self._waiting.popleft()
                else:
                    self.refused[answer] = self.refused.get(answer, 0) + 1
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _answer(self, session: aiohttp.ClientSession, body: bytes) -> str:
        try:
            async with session.post(self._url, data=body) as response:
                await response.read()
                return str(response.status)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return type(error).__name__
