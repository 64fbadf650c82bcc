"""The running simulator: one process, published via OPC UA and Modbus, with its ground truth and its HTTP control."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web
from aiohttp.typedefs import Handler
from numpy.typing import NDArray

from core.errors import OperationError
from core.samples import Samples
from core.servers.http import check_host
from core.status_codes import BAD
from core.timestamps import now_us
from simulator.export import devices
from simulator.faults import SECONDS, Fault, Faults
from simulator.modbus_server import ModbusDevice
from simulator.opcua_server import OpcuaServer
from simulator.registers import Registers
from simulator.scenarios import SCENARIOS, ScenarioPlant
from simulator.scenarios import SECONDS as SCENARIO_SECONDS
from simulator.tags import SimPlant
from simulator.truth import MAX_BYTES, TruthWriter

log = logging.getLogger(__name__)

_FAULT_LOOK = 0.05  # s
_GARBAGE_SECONDS = 1.0
_WRITES_PER_PAUSE = 250  # values between two turns of the event loop


class Simulator:
    """Runs a plant until stopped.

    ``truth_bytes``: maximum size of a file of the ground truth; 0: none is recorded. ``jitter`` (s): maximum age of a
    source time relative to its cycle.
    """

    def __init__(
        self,
        plant: SimPlant,
        state: Path,
        secure: bool,
        speed: float,
        truth_bytes: int = MAX_BYTES,
        jitter: float = 0.0,
        history: int | None = None,
    ) -> None:
        self.plant = plant
        tags = plant.tags
        self.faults = Faults(tags)
        self.published = 0
        self._speed = speed
        self._truth = None
        if truth_bytes:
            self._truth = TruthWriter(state / "truth", [tag.name for tag in tags], now_us(), truth_bytes)
        self._server = self._publisher = None
        if any(tag.opcua is not None for tag in tags):
            self._server = OpcuaServer(tags, state / "pki", secure, self._set_point_written, history)
            self._publisher = Publisher(plant, self._server, self.faults, self._truth, jitter)
        self._registers = {name: Registers(tags, members) for name, members in devices(tags).items()}
        self.devices = [
            ModbusDevice(n, r, self.faults, self._answered, self._register_written) for n, r in self._registers.items()
        ]
        self._text_tags = [i for i, tag in enumerate(tags) if tag.kind == "text"]
        self._answered_texts: dict[int, str] = {}
        self._publishing = asyncio.Lock()  # serialises operator writes and the cycle

    async def run(self, host: str, opcua_port: int, modbus_port: int, stop: asyncio.Event) -> None:
        """Serve until ``stop``. Raises OSError if a port is in use."""
        watching: asyncio.Task[None] | None = None
        try:
            values, texts = self._read_sensors()
            self._update_registers(values, texts)
            for number, device in enumerate(self.devices):
                await device.start(host, modbus_port + number)
            if self._server is not None and self._publisher is not None:
                await self._server.build(host, opcua_port)
                first = await self._publisher.publish(self._publisher.tags, values, texts)
                await self._server.start(host, opcua_port)
                self.published += first
            watching = asyncio.create_task(self._watch_faults())
            log.info("serving %d tags: OPC UA on %d, Modbus from %d", len(self.plant.tags), opcua_port, modbus_port)
            await self._cycle(stop)
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait([watching])
            for device in self.devices:
                await device.stop()
            if self._server is not None:
                await self._server.stop()
            if self._truth is not None:
                self._truth.close()

    async def _cycle(self, stop: asyncio.Event) -> None:
        due, tick = time.monotonic(), 0
        while not stop.is_set():
            async with self._publishing:
                self.plant.step(self.plant.tick * self._speed)
                values, texts = self._read_sensors()
                self._update_registers(values, texts)
                if self._publisher is not None:
                    self.published += await self._publisher.publish(self._publisher.due(tick), values, texts)
            tick += 1
            due += self.plant.tick
            wait = due - time.monotonic()
            if wait < -5:
                log.warning("%.1f s behind schedule: this machine cannot publish at the requested rate", -wait)
                due = time.monotonic()
            await asyncio.sleep(max(0.0, wait))

    def _read_sensors(self) -> tuple[NDArray[np.float64], dict[int, str]]:
        """Sensor readings: values (n,) and texts of all tags, frozen ones unchanged."""
        values = self.plant.numbers().copy()
        texts = {i: self.plant.text(i) for i in self._text_tags}
        for fault in self.faults.of_kind("freeze"):
            if not fault.frozen:
                fault.frozen.update({i: texts.get(i, float(values[i])) for i in fault.tags.tolist()})
            for i, value in fault.frozen.items():
                if isinstance(value, str):
                    texts[i] = value
                else:
                    values[i] = value
        return values, texts

    def _update_registers(self, values: NDArray[np.float64], texts: dict[int, str]) -> None:
        for registers in self._registers.values():
            registers.update(values, texts)

    def _answered(self, device: str, table: str, start: int, count: int) -> None:
        """A read was answered: record its values as published."""
        registers = self._registers[device]
        tags = registers.covered(table, start, count)
        self.published += len(tags)
        if self._truth is None:
            return
        at = now_us()
        texts = [int(i) for i in tags if int(i) in registers.texts] if registers.texts else []
        for i in texts:
            if self._answered_texts.get(i) != registers.texts[i]:
                self._answered_texts[i] = registers.texts[i]
                self._truth.text("modbus", i, at, registers.texts[i])
        numbers = tags[~np.isin(tags, texts)] if texts else tags
        self._truth.numbers("modbus", numbers, at, registers.decoded[numbers])

    def _register_written(self, tag: int, value: float) -> None:
        """A Modbus client wrote a set point; the next answer contains it."""
        self.plant.write(self.plant.tags[tag].signal, value)
        self._update_registers(*self._read_sensors())

    async def _set_point_written(self, tag: int, value: float) -> None:
        """An OPC UA client wrote a set point: publish it immediately, so that the client reads what it wrote."""
        async with self._publishing:
            self.plant.write(self.plant.tags[tag].signal, value)
            if self._publisher is not None:
                self.published += await self._publisher.publish(np.array([tag]), *self._read_sensors())

    async def _watch_faults(self) -> None:
        refused = forgotten = False
        garbled = 0.0
        while True:
            garbles = time.monotonic() - garbled >= _GARBAGE_SECONDS
            for device in self.devices:
                if self.faults.get(device.name, "close_connections"):
                    device.close_connections()
                if garbles and self.faults.get(device.name, "garbage"):
                    device.garble()
            if self._server is not None:
                now_refused = self.faults.get("opcua", "close_connections") is not None
                if now_refused != refused:
                    refused = now_refused
                    await self._server.refuse(refused)
                now_forgotten = self.faults.get("opcua", "forget_subscriptions") is not None
                if now_forgotten and not forgotten:
                    await self._server.forget()
                forgotten = now_forgotten
                lost = self.faults.get("opcua", "lose_messages")
                self._server.transit.loss = "no" if lost is None else "gone" if lost.value else "sent again"
                if garbles and self.faults.get("opcua", "garbage"):
                    self._server.garble()
                self._server.pause(self.faults.get("opcua", "stop_answering") is not None)
            garbled = time.monotonic() if garbles else garbled
            await asyncio.sleep(_FAULT_LOOK)


class Publisher:
    """Publishes the plant's OPC UA tags. Servers report changes of value or status (OPC 10000-4, 7.22.2); unchanged
    values are not samples.

    A tag's source times only increase, except for a fault that makes its clock jump: then odd, else even, so
    that no tag ever has two values at the same time.
    """

    def __init__(
        self,
        plant: SimPlant,
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
        new = (differs & (status & BAD == 0)) | (status != self._shown_status[tags])
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
        for count, (tag, value, time_us, code) in enumerate(columns):
            await self._server.write(tag, texts[tag] if self._is_text[tag] else value, time_us, code)
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


def control_application(simulator: Simulator, host: str) -> web.Application:
    """``POST /fault``, ``POST /scenario``, ``POST /clear``, ``GET /state``."""
    plant = simulator.plant

    async def fault(request: web.Request) -> web.Response:
        payload = await _payload(request, ("target", "fault"), ("seconds", "value"))
        begun = simulator.faults.add(
            str(payload["target"]), payload["fault"], payload.get("seconds", SECONDS), payload.get("value")
        )
        return web.json_response(_fault_json(begun))

    async def scenario(request: web.Request) -> web.Response:
        payload = await _payload(request, ("scenario",), ("seconds",))
        if not isinstance(plant, ScenarioPlant):
            raise OperationError(f"only the demo plant has scenarios, and this one is {plant.name}")
        plant.begin(str(payload["scenario"]), payload.get("seconds", SCENARIO_SECONDS))
        return web.json_response(_scenarios_json(plant))

    async def clear(_: web.Request) -> web.Response:
        simulator.faults.clear()
        if isinstance(plant, ScenarioPlant):
            plant.clear()
        return web.json_response({})

    async def state(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "plant": plant.name,
                "tags": len(plant.tags),
                "published": simulator.published,
                "faults": [_fault_json(f) for f in simulator.faults.active()],
                **(_scenarios_json(plant) if isinstance(plant, ScenarioPlant) else {}),
            }
        )

    app = web.Application(middlewares=[check_host(host), _refusals])
    posts = (web.post("/fault", fault), web.post("/scenario", scenario), web.post("/clear", clear))
    app.add_routes([*posts, web.get("/state", state)])
    return app


async def _payload(request: web.Request, required: Sequence[str], optional: Sequence[str]) -> dict[str, Any]:
    """The object in a request. Raises OperationError."""
    try:
        payload = await request.json()
    except json.JSONDecodeError as error:
        raise OperationError(f"not JSON: {error}") from error
    if not isinstance(payload, dict) or not set(required) <= payload.keys():
        names = f"{', '.join(required)}, and optionally {' and '.join(optional)}"
        raise OperationError(f"legal: a JSON object with {names}")
    return payload


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer with the text of an OperationError."""
    try:
        return await handler(request)
    except OperationError as error:
        return web.json_response({"error": str(error)}, status=400)


def _scenarios_json(plant: ScenarioPlant) -> dict[str, object]:
    left = {scenario.name: round(scenario.end - plant.time, 1) for scenario in plant.active()}
    # JSON has no infinity: one that was there from the start ends with the plant.
    return {
        "scenarios": [
            {"scenario": name, "happens": SCENARIOS[name], "seconds": seconds if math.isfinite(seconds) else None}
            for name, seconds in left.items()
        ]
    }


def _fault_json(fault: Fault) -> dict[str, object]:
    return {
        "target": fault.target,
        "fault": fault.fault,
        "value": fault.value,
        "seconds": round(fault.seconds_left, 1),
    }
