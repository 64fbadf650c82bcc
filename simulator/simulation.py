"""The running simulator: one process, published via OPC UA and Modbus, with its ground truth."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.timestamps import now_us
from simulator.export import devices
from simulator.faults import Faults
from simulator.modbus_server import ModbusDevice
from simulator.opcua_server import OpcuaServer
from simulator.publish import Publisher
from simulator.registers import Registers
from simulator.tags import Plant
from simulator.truth import MAX_BYTES, TruthWriter

log = logging.getLogger(__name__)

_FAULT_LOOK = 0.05  # s
_GARBAGE_SECONDS = 1.0


class Simulator:
    """Runs a plant until stopped.

    ``truth_bytes``: maximum size of a file of the ground truth; 0: none is recorded. ``jitter`` (s): maximum age of a
    source time relative to its cycle.
    """

    def __init__(
        self,
        plant: Plant,
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
