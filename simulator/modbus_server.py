"""A Modbus TCP device over a socket (MODBUS Messaging on TCP/IP V1.0b): reads from register images, set-point writes.

Own code instead of pymodbus' server because faults need control of the wire: silence, a wrong exception, a connection
closed between request and answer; and because the values of each answer go to the ground truth as sent.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from functools import partial

import numpy as np

from simulator.faults import Faults
from simulator.registers import Registers

_TABLES = {1: "coil", 2: "discrete", 3: "holding", 4: "input"}
_LIMITS = {1: 2000, 2: 2000, 3: 125, 4: 125}
_MOST_WRITTEN = 123  # registers
_HEADER = struct.Struct(">HHHB")  # MBAP: transaction, protocol, length from the unit on, unit
ILLEGAL_FUNCTION, ILLEGAL_ADDRESS, ILLEGAL_VALUE = 1, 2, 3

OnAnswer = Callable[[str, str, int, int], None]  # device, table, start, count
OnWrite = Callable[[int, float], None]  # a set point's tag, value


class ModbusDevice:
    """One device on one port."""

    def __init__(self, name: str, registers: Registers, faults: Faults, on_answer: OnAnswer, on_write: OnWrite) -> None:
        self.name = name
        self._registers = registers
        self._faults = faults
        self._on_answer = on_answer
        self._on_write = on_write
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the port is in use."""
        connection = partial(_Connection, self._connections, self._replies, self._closes)
        self._server = await asyncio.get_running_loop().create_server(connection, host, port)

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
            closing = [connection.closed.wait() for connection in self._connections]
            self.close_connections()
            await asyncio.gather(*closing)
            await self._server.wait_closed()

    def close_connections(self) -> None:
        """Disconnect all clients."""
        for connection in list(self._connections):
            connection.transport.close()

    def garble(self) -> None:
        """Send unsolicited bytes to all clients."""
        for connection in list(self._connections):
            if not connection.transport.is_closing():
                connection.transport.write(os.urandom(32))

    def _closes(self) -> bool:
        return self._faults.get(self.name, "close_connections") is not None

    def _replies(self, request: bytes) -> bytes | None:
        """The answer; None: no answer."""
        return None if self._faults.get(self.name, "stop_answering") else self._answer(request)

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
        if not self._registers.readable(table, start, count):
            return bytes((function | 0x80, ILLEGAL_ADDRESS))
        words = self._registers.image[table][start : start + count]
        self._on_answer(self.name, table, start, count)
        if function <= 2:
            content = np.packbits(words.astype(np.uint8), bitorder="little").tobytes()
        else:
            content = words.astype(">u2").tobytes()
        return bytes((function, len(content))) + content

    def _write(self, request: bytes, start: int, words: list[int]) -> bytes:
        """Write registers: whole set points only, within their range."""
        values = self._registers.written(start, words)
        if values is None:
            return bytes((request[0] | 0x80, ILLEGAL_ADDRESS))
        if not all(self._registers.accepts(tag, value) for tag, value in values):
            return bytes((request[0] | 0x80, ILLEGAL_VALUE))
        for tag, value in values:
            self._on_write(tag, value)
        return request[:5]


class _Connection(asyncio.Protocol):
    """A client connection. Without streams and tasks, which would take longer than an answer."""

    transport: asyncio.Transport

    def __init__(
        self,
        others: set[_Connection],
        replies: Callable[[bytes], bytes | None],
        closes: Callable[[], bool],
    ) -> None:
        self.closed = asyncio.Event()
        self._others = others
        self._replies = replies
        self._closes = closes
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register with the device."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._others.add(self)
        if self._closes():
            transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        """Unregister from the device."""
        self._others.discard(self)
        self.closed.set()

    def data_received(self, data: bytes) -> None:
        """Answer each complete request."""
        self._received += data
        while len(self._received) >= _HEADER.size and not self.transport.is_closing():
            transaction, protocol, length, unit = _HEADER.unpack_from(self._received)
            end = _HEADER.size - 1 + length
            if protocol != 0 or not 2 <= length <= 254:
                self.transport.close()
                return
            if len(self._received) < end:
                return
            request, self._received = self._received[_HEADER.size : end], self._received[end:]
            answer = self._replies(request)
            if answer is not None:
                self.transport.write(_HEADER.pack(transaction, 0, len(answer) + 1, unit) + answer)
            if self._closes():
                self.transport.close()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read its answers."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading."""
        self.transport.resume_reading()
