"""The running simulator: one process state, published by OPC UA and answered over Modbus, with its ground truth."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingest.batch import now_us
from simulator.export import devices
from simulator.faults import Faults
from simulator.modbus_server import ModbusDevice
from simulator.opcua_server import OpcuaServer
from simulator.registers import Registers
from simulator.tags import Plant
from simulator.truth import TruthWriter

log = logging.getLogger(__name__)

_TICK = 0.1  # s between steps of the process
_WRITES_AT_ONCE = 250  # values between two looks at the sockets
_FAULT_LOOK = 0.05  # s


class Simulator:
    """Runs a plant until stopped."""

    def __init__(self, plant: Plant, state: Path, secure: bool, speed: float, keep_truth: bool) -> None:
        self.plant = plant
        self.faults = Faults()
        self.published = 0
        self._speed = speed
        tags = plant.tags
        self._opcua = np.array([i for i, tag in enumerate(tags) if tag.opcua is not None], np.int64)
        periods = np.array([tags[i].period for i in self._opcua])
        # Spread over the period, so that values come as evenly as sensors' do; equal ticks share one timestamp.
        self._ticks = np.maximum(1, np.round(periods / _TICK)).astype(np.int64)
        self._phase = np.arange(len(self._opcua)) % self._ticks
        self._is_text = np.array([tag.kind == "text" for tag in tags], bool)
        self._is_float = np.array([tag.opcua == "Float" for tag in tags], bool)
        self._shown = np.full(len(tags), np.nan)  # the last value that the OPC UA server got
        self._shown_status = np.zeros(len(tags), np.uint32)
        self._server = OpcuaServer(tags, state / "pki", secure) if len(self._opcua) else None
        self._registers = {
            name: Registers(
                tags, [i for i, t in enumerate(tags) if t.register is not None and t.register.device == name]
            )
            for name in devices(tags)
        }
        self.devices = [
            ModbusDevice(n, r, self.faults, self._answered, self._written) for n, r in self._registers.items()
        ]
        names = [tag.name for tag in tags]
        self._truth = TruthWriter(state / "truth", names, now_us()) if keep_truth else None
        self._texts: dict[int, str] = {}
        self._answered_texts: dict[int, str] = {}
        self._frozen: dict[str, float] = {}
        self._last_time = 0

    async def run(self, host: str, opcua_port: int, modbus_port: int, stop: asyncio.Event) -> None:
        """Serve until ``stop``. Raises OSError where a port is taken."""
        self._update(self.plant.numbers())
        for number, device in enumerate(self.devices):
            await device.start(host, modbus_port + number)
        if self._server is not None:
            await self._server.start(host, opcua_port)
        watching = asyncio.create_task(self._watch_faults(host, opcua_port))
        log.info("serving %d tags: OPC UA on %d, Modbus from %d", len(self.plant.tags), opcua_port, modbus_port)
        try:
            await self._publish(stop)
        finally:
            watching.cancel()
            for device in self.devices:
                await device.stop()
            if self._server is not None:
                await self._server.stop()
            if self._truth is not None:
                self._truth.close()

    async def _publish(self, stop: asyncio.Event) -> None:
        due, tick = time.monotonic(), 0
        while not stop.is_set():
            await self._take_written()
            self.plant.step(_TICK * self._speed)
            values = self.plant.numbers()
            self._update(values)
            await self._publish_due(tick, values)
            tick += 1
            due += _TICK
            wait = due - time.monotonic()
            if wait < -5:
                log.warning("%.1f s behind: this machine can't publish as much as was asked for", -wait)
                due = time.monotonic()
            await asyncio.sleep(max(0.0, wait))

    async def _publish_due(self, tick: int, values: NDArray[np.float64]) -> None:
        if self._server is None or self.faults.get("opcua", "close_connections"):
            return
        due = self._opcua[(tick + self._phase) % self._ticks == 0]
        jump = self.faults.get("opcua", "clock_jump")
        # A later time for each tick, also when a clock is set back: a tag never has two values for one time.
        self._last_time = max(now_us(), self._last_time + 1) if jump is None else self._last_time
        at = self._last_time if jump is None else now_us() + int(jump.value * 1e6)
        bad = self.faults.get("opcua", "bad_status")
        status = np.full(len(due), int(bad.value) if bad is not None else 0, np.uint32)
        for fault in self.faults.of_kind("bad_status"):
            status[[k for k, i in enumerate(due) if self.plant.tags[i].name == fault.target]] = int(fault.value)
        for i in due[self._is_text[due]].tolist():
            await self._publish_text(i, at, int(status[due == i][0]))
        shown = np.where(self._is_float[due], values[due].astype(np.float32), values[due])
        # A server reports a change of value or status (OPC 10000-4, 7.22.2); the same again is no sample.
        changed = ~self._is_text[due] & ((shown != self._shown[due]) | (status != self._shown_status[due]))
        due, shown, status = due[changed], shown[changed], status[changed]
        self._shown[due], self._shown_status[due] = shown, status
        for k, (i, value) in enumerate(zip(due.tolist(), shown.tolist(), strict=True)):
            await self._server.write(i, value, at, int(status[k]))
            if k % _WRITES_AT_ONCE == _WRITES_AT_ONCE - 1:
                await asyncio.sleep(0)
        self.published += len(due)
        if self._truth is not None and len(due):
            self._truth.numbers("opcua", due, at, shown, status)

    async def _take_written(self) -> None:
        """Set points that an OPC UA client wrote: the process takes them, and the write itself was published."""
        if self._server is None or self.faults.get("opcua", "close_connections"):
            return
        for tag, value, at, status in await self._server.written():
            self.plant.write(self.plant.tags[tag].signal, value)
            self._shown[tag], self._shown_status[tag] = value, status
            if self._truth is not None:
                self._truth.numbers("opcua", np.array([tag]), at, np.array([value]), status)

    async def _publish_text(self, tag: int, at: int, status: int) -> None:
        text = self.plant.text(tag)
        if self._texts.get(tag) == text or self._server is None:
            return
        self._texts[tag] = text
        await self._server.write(tag, text, at, status)
        if self._truth is not None:
            self._truth.text("opcua", tag, at, text, status)

    def _update(self, values: NDArray[np.float64]) -> None:
        for fault in self.faults.of_kind("freeze"):
            for i, tag in enumerate(self.plant.tags):
                if tag.name == fault.target:
                    values[i] = self._frozen.setdefault(tag.name, float(values[i]))
        texts = {
            i: self.plant.text(i)
            for i, tag in enumerate(self.plant.tags)
            if tag.kind == "text" and tag.register is not None
        }
        for registers in self._registers.values():
            registers.update(values, texts)

    def _answered(self, device: str, table: str, start: int, count: int) -> None:
        """A read was answered: what it carried is published."""
        registers = self._registers[device]
        tags = registers.covered(table, start, count)
        self.published += len(tags)
        if self._truth is None:
            return
        at = now_us()
        texts = [int(i) for i in tags if int(i) in registers.texts]
        for i in texts:
            if self._answered_texts.get(i) != registers.texts[i]:
                self._answered_texts[i] = registers.texts[i]
                self._truth.text("modbus", i, at, registers.texts[i])
        numbers = tags[~np.isin(tags, texts)] if texts else tags
        self._truth.numbers("modbus", numbers, at, registers.decoded[numbers])

    def _written(self, device: str, address: int, words: list[int]) -> None:
        """A master wrote holding registers: set points take it."""
        for tag in self.plant.tags:
            register = tag.register
            if register is None or register.device != device or not tag.signal.endswith("_sp"):
                continue
            if register.table == "holding" and register.address == address and register.type == "int16":
                self.plant.write(tag.signal, (words[0] - 65536 * (words[0] > 32767)) / register.divisor)
            elif register.table == "holding" and register.address == address and len(words) == 2:
                ordered = words[::-1] if register.word_order in ("CDAB", "DCBA") else words
                raw = np.array(ordered, np.uint16)
                raw = raw.byteswap() if register.word_order in ("BADC", "DCBA") else raw
                self.plant.write(tag.signal, float(raw.astype(">u2").view(">f4")[0]))

    async def _watch_faults(self, host: str, opcua_port: int) -> None:
        closed = silent = False
        while True:
            await asyncio.sleep(_FAULT_LOOK)
            for device in self.devices:
                if self.faults.get(device.name, "close_connections"):
                    device.close_connections()
            if self._server is None:
                continue
            now_closed = self.faults.get("opcua", "close_connections") is not None
            if now_closed != closed:
                closed = now_closed
                await (self._server.stop() if closed else self._server.start(host, opcua_port))
            now_silent = self.faults.get("opcua", "stop_answering") is not None
            if now_silent or silent:
                self._server.pause(now_silent)
            silent = now_silent
            if not self.faults.of_kind("freeze"):
                self._frozen.clear()
