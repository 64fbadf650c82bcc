"""A push gateway: sends values at a steady rate, to each of its receivers, and retries each batch until it gets 204."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np

from core.timestamps import now_us
from simulator.truth import TruthWriter

CHANNELS = 200
SOURCE = "gateway"
TEMPLATE = f"{SOURCE}/{{measurement}}.{{field}}"
_SECONDS = 0.5  # between two batches
_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 0.5


@dataclass(slots=True)
class _Receiver:
    """Receiver of the batches."""

    url: str
    waiting: deque[tuple[int, bytes]] = field(default_factory=deque)  # with the time of measuring, µs


class Gateway:
    """Measures every half a second, writes down what, and pushes in the order of measuring."""

    def __init__(self, urls: Sequence[str], token: str, truth: Path) -> None:
        """``urls``: of a redundant pair, both members'."""
        self._receivers = [_Receiver(f"{url}/api/v2/write?precision=us") for url in urls]
        self._headers = {"Authorization": f"Token {token}"}
        self._names = [f"{SOURCE}/c{i:03d}.value" for i in range(CHANNELS)]  # as TEMPLATE says
        self._truth = TruthWriter(truth, self._names, now_us())
        self._random = np.random.default_rng(1)
        self.refused: dict[str, int] = {}  # answers other than 204, by what they were

    @property
    def waiting(self) -> int:
        """Batches that no 204 has taken, of the receiver that lags most."""
        return max(len(receiver.waiting) for receiver in self._receivers)

    @property
    def oldest(self) -> float:
        """Time of the oldest of them, µs; infinite where there is none."""
        return min(receiver.waiting[0][0] if receiver.waiting else math.inf for receiver in self._receivers)

    async def run(self) -> None:
        """Measure and push until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._measure())
                for receiver in self._receivers:
                    group.create_task(self._push(receiver))
        finally:
            self._truth.close()

    async def _measure(self) -> None:
        due = time.monotonic()
        while True:
            at = now_us()
            values = self._random.integers(0, 1_000_000, CHANNELS) / 1000
            self._truth.numbers("push", np.arange(CHANNELS), at, values)
            lines = [f"c{i:03d} value={value!r} {at}" for i, value in enumerate(values.tolist())]
            for receiver in self._receivers:
                receiver.waiting.append((at, "\n".join(lines).encode()))
            due += _SECONDS
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _push(self, receiver: _Receiver) -> None:
        time_out = aiohttp.ClientTimeout(_ANSWER_SECONDS)
        async with aiohttp.ClientSession(headers=self._headers, timeout=time_out) as session:
            while True:
                if not receiver.waiting:
                    await asyncio.sleep(_SECONDS / 5)
                    continue
                answer = await _answer(session, receiver.url, receiver.waiting[0][1])
                if answer == "204":
                    receiver.waiting.popleft()
                else:
                    self.refused[answer] = self.refused.get(answer, 0) + 1
                    await asyncio.sleep(_RETRY_SECONDS)


async def _answer(session: aiohttp.ClientSession, url: str, body: bytes) -> str:
    try:
        async with session.post(url, data=body) as response:
            await response.read()
            return str(response.status)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return type(error).__name__
