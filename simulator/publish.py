"""Publishes due and changed values on the OPC UA server, with unique times, after recording them in the truth."""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray

from core.samples import Samples
from core.timestamps import now_us
from simulator.faults import Faults
from simulator.opcua_server import OpcuaServer
from simulator.tags import Plant
from simulator.truth import TruthWriter

_BAD = np.uint32(0x8000_0000)  # set in every Bad status
_WRITES_PER_PAUSE = 250  # values between two turns of the event loop


class Publisher:
    """Publishes the plant's OPC UA tags. Servers report changes of value or status (OPC 10000-4, 7.22.2); unchanged
    values are not samples.

    A tag's source times only increase, except for a fault that makes its clock jump: then odd, else even, so
    that no tag ever has two values at the same time.
    """

    def __init__(
        self,
        plant: Plant,
        server: OpcuaServer,
        faults: Faults,
        truth: TruthWriter | None,
        jitter: float = 0.0,  # s, maximum age of a value relative to its cycle
        seed: int = 0,
    ) -> None:
        tags = plant.tags
        self._plant = plant
        self._server = server
        self._faults = faults
        self._truth = truth
        self._jitter = round(jitter * 1e6 / 2)  # in steps of 2 µs
        self._random = np.random.default_rng(seed)
        self.tags = np.array([i for i, tag in enumerate(tags) if tag.opcua is not None], np.int64)
        periods = np.array([tags[i].period for i in self.tags])
        self._ticks = np.maximum(1, np.round(periods / plant.tick)).astype(np.int64)
        self._phase = np.arange(len(self.tags)) % self._ticks if plant.spread else np.zeros_like(self._ticks)
        self._is_text = np.array([tag.kind == "text" for tag in tags], bool)
        self._is_float = np.array([tag.opcua == "Float" for tag in tags], bool)
        self._shown = np.full(len(tags), np.nan)  # last published value
        self._shown_texts: dict[int, str] = {}
        self._shown_status = np.zeros(len(tags), np.uint32)
        self._time = np.zeros(len(tags), np.int64)  # µs of the last one, without clock jumps

    async def publish(self, tags: NDArray[np.int64], values: NDArray[np.float64], texts: dict[int, str]) -> int:
        """Publish changed values of ``tags``; returns their number. ``values`` (n,) and ``texts`` are of all tags."""
        status = self._status(tags)
        shown = np.where(self._is_float[tags], values[tags].astype(np.float32), values[tags])
        differs = (shown != self._shown[tags]) & ~(np.isnan(shown) & np.isnan(self._shown[tags]))
        for k in np.flatnonzero(self._is_text[tags]).tolist():
            differs[k] = texts[int(tags[k])] != self._shown_texts.get(int(tags[k]))
        # Bad values are published without the value, so only another status is a change
        new = (differs & (status & _BAD == 0)) | (status != self._shown_status[tags])
        tags, shown, status = tags[new], shown[new], status[new]
        if not len(tags):
            return 0
        self._shown[tags], self._shown_status[tags] = shown, status
        times = self._times(tags)
        is_text = self._is_text[tags]
        for k in np.flatnonzero(is_text).tolist():
            self._shown_texts[int(tags[k])] = texts[int(tags[k])]
        if self._truth is not None:
            numbers = ~is_text
            self._truth.numbers("opcua", tags[numbers], times[numbers], shown[numbers], status[numbers])
            for k in np.flatnonzero(is_text).tolist():
                tag = int(tags[k])
                self._truth.text("opcua", tag, int(times[k]), texts[tag], int(status[k]))
        if self._server.publishes_in_bulk:
            self._server.publish(Samples(tags.astype(np.int32), times, shown, status))
            return len(tags)
        columns = zip(tags.tolist(), shown.tolist(), times.tolist(), status.tolist(), strict=True)
        for count, (tag, value, time, code) in enumerate(columns):
            await self._server.write(tag, texts[tag] if self._is_text[tag] else value, time, code)
            if count % _WRITES_PER_PAUSE == _WRITES_PER_PAUSE - 1:
                await asyncio.sleep(0)
        return len(tags)

    def due(self, tick: int) -> NDArray[np.int64]:
        """The tags due in this tick."""
        due: NDArray[np.int64] = self.tags[(tick + self._phase) % self._ticks == 0]
        return due

    def _times(self, tags: NDArray[np.int64]) -> NDArray[np.int64]:
        cycle = now_us() & ~1
        older = 2 * self._random.integers(0, self._jitter, len(tags)) if self._jitter else 0
        times: NDArray[np.int64] = np.maximum(cycle - older, self._time[tags] + 2)
        self._time[tags] = times
        jump = self._faults.get("opcua", "clock_jump")
        return times if jump is None else times + int(jump.value * 1e6) | 1

    def _status(self, tags: NDArray[np.int64]) -> NDArray[np.uint32]:
        status = np.zeros(len(tags), np.uint32)
        for fault in self._faults.of_kind("bad_status"):
            status[np.isin(tags, fault.tags)] = int(fault.value)
        return status
