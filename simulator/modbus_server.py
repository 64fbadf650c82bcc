"""A Modbus TCP device over a socket (MODBUS Messaging on TCP/IP V1.0b): reads from register images, set-point writes.

Our own few lines instead of pymodbus' server, because a fault needs the wire: silence, a wrong exception, a connection
closed between request and answer; and because each answer's values go to the ground truth as they are sent.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from simulator.faults import Faults
from simulator.registers import Registers

_TABLES = {1: "coil", 2: "discrete", 3: "holding", 4: "input"}
_LIMITS = {1: 2000, 2: 2000, 3: 125, 4: 125}
_MOST_WRITTEN = 123  # registers
ILLEGAL_FUNCTION, ILLEGAL_ADDRESS, ILLEGAL_VALUE = 1, 2, 3

Answered = Callable[[str, str, int, int], None]  # device, table, start, count
Written = Callable[[int, float], None]  # a set point's tag, value


class ModbusDevice:
    """One device on one port."""

    def __init__(self, name: str, registers: Registers, faults: Faults, answered: Answered, written: Written) -> None:
        self.name = name
        self._registers = registers
        self._serving: set[asyncio.Task[None]] = set()
        self._faults = faults
        self._answered = answered
        self._written = written
        self._connections: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError where the port is taken."""
        self._server = await asyncio.start_server(self._serve, host, port)

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
            self.close_connections()
            if self._serving:
                await asyncio.wait(self._serving)
            await self._server.wait_closed()

    def close_connections(self) -> None:
        """Drop whoever is connected."""
        for writer in list(self._connections):
            writer.close()

    def garble(self) -> None:
        """Send whoever is connected bytes that nobody asked for."""
        for writer in list(self._connections):
            if not writer.is_closing():
                writer.write(os.urandom(32))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        try:
            while not self._faults.get(self.name, "close_connections"):
                header = await reader.readexactly(7)
                transaction, protocol, length, unit = struct.unpack(">HHHB", header)
                if protocol != 0 or not 2 <= length <= 254:
                    return
                request = await reader.readexactly(length - 1)
                if self._faults.get(self.name, "stop_answering"):
                    continue
                answer = self._answer(request)
                writer.write(struct.pack(">HHHB", transaction, 0, len(answer) + 1, unit) + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._connections.discard(writer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _answer(self, request: bytes) -> bytes:
        function = request[0]
        fault = self._faults.get(self.name, "exception")
        if fault is not None:
            return bytes((function | 0x80, int(fault.value)))
        if function in _TABLES and len(request) == 5:
            return self._read(function, *struct.unpack(">HH", request[1:]))
        if function == 6 and len(request) == 5:
            return self._write(request, struct.unpack(">H", request[1:3])[0], [struct.unpack(">H", request[3:])[0]])
        if function == 16 and len(request) >= 6:
            start, count, size = struct.unpack(">HHB", request[1:6])
            if not 1 <= count <= _MOST_WRITTEN or size != 2 * count or len(request) != 6 + size:
                return bytes((function | 0x80, ILLEGAL_VALUE))
            return self._write(request, start, list(struct.unpack(f">{count}H", request[6:])))
        return bytes((function | 0x80, ILLEGAL_FUNCTION))

    def _read(self, function: int, start: int, count: int) -> bytes:
        table = _TABLES[function]
        if not 1 <= count <= _LIMITS[function]:
            return bytes((function | 0x80, ILLEGAL_VALUE))
        legal = self._registers.legal[table][start : start + count]
        if len(legal) < count or not legal.all():
            return bytes((function | 0x80, ILLEGAL_ADDRESS))
        words = self._registers.image[table][start : start + count]
        self._answered(self.name, table, start, count)
        if function <= 2:
            content = np.packbits(words.astype(np.uint8), bitorder="little").tobytes()
        else:
            content = words.astype(">u2").tobytes()
        return bytes((function, len(content))) + content

    def _write(self, request: bytes, start: int, words: list[int]) -> bytes:
        """Only set points can be written, whole and within their range."""
        values = self._registers.written(start, words)
        if values is None:
            return bytes((request[0] | 0x80, ILLEGAL_ADDRESS))
        if not all(self._registers.accepts(tag, value) for tag, value in values):
            return bytes((request[0] | 0x80, ILLEGAL_VALUE))
        for tag, value in values:
            self._written(tag, value)
        return request[:5]
