"""A connection to one Modbus TCP device: one request at a time, each with a deadline, and no answer taken for another.

The connection is kept after a time-out, so that one silent block costs the others nothing. What comes late is dropped:
by its transaction id, which no later request has, also on a new connection. Gateways to serial lines may give a late
answer the id of the request that came since; so the next request waits for the late one, for one more time-out at most.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from ingest.errors import SourceError
from ingest.modbus.failures import BAD_TIMEOUT, ConnectionLost, Garbled, TimedOut
from ingest.modbus.frame import Frame, Framer, registers, request
from ingest.modbus.plan import Read


class _Link(asyncio.Protocol):
    """One TCP connection."""

    def __init__(self, unit_id: int, late: Callable[[], None]) -> None:
        self._unit_id = unit_id
        self._late = late
        self._framer = Framer()
        self._transaction = -1
        self._answer: asyncio.Future[bytes] | None = None
        self._lost: SourceError | None = None
        self._transport: asyncio.WriteTransport | None = None
        self.settled = asyncio.Event()  # what timed out has come late, or will not come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._framer.feed(data):
                self._arrived(frame)
        except Garbled as error:
            self._end(error)
            self.close()

    def _arrived(self, frame: Frame) -> None:
        expected = self._answer is not None and not self._answer.done()
        if expected and (frame.transaction, frame.unit_id) == (self._transaction, self._unit_id):
            assert self._answer is not None
            self._answer.set_result(frame.pdu)
        else:
            self._late()
            self.settled.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionLost("connection closed by the device"))

    def _end(self, error: SourceError) -> None:
        self._lost = self._lost or error
        self.settled.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._lost)

    async def ask(self, transaction: int, frame: bytes) -> bytes:
        """The PDU that answers ``frame``. Raises ConnectionLost or Garbled."""
        if self._lost is not None:
            raise self._lost
        assert self._transport is not None
        self.settled.clear()
        self._transaction = transaction
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return await self._answer

    def close(self) -> None:
        """Close at once, whatever waits to be sent."""
        if self._transport is not None:
            self._transport.abort()


class TcpDevice:
    """Reads registers from one unit id behind ``tcp://host:port``. ``late`` is called for each answer dropped."""

    def __init__(self, address: str, unit_id: int, time_out: float, late: Callable[[], None]) -> None:
        self._host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._port = int(port)
        self._unit_id = unit_id
        self._time_out = time_out
        self._late = late
        self._transaction = random.randrange(0x10000)  # goes on over connections
        self._owed_until = 0.0  # loop's s; till then an answer may come that timed out
        self._link: _Link | None = None

    async def connect(self) -> None:
        """Make a new connection, within the deadline. Raises ConnectionLost."""
        self.close()
        link = _Link(self._unit_id, self._late)
        try:
            async with asyncio.timeout(self._time_out):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: link, self._host.strip("[]"), self._port)
        except TimeoutError as error:
            raise ConnectionLost("connect: no answer in time", BAD_TIMEOUT) from error
        except (OSError, ValueError) as error:  # ValueError: a name that can't be one of a host
            raise ConnectionLost(f"connect: {error}") from error
        self._link = link
        self._owed_until = 0.0

    async def read(self, read: Read) -> NDArray[np.uint16]:
        """Registers (or 0/1 for each bit), as many as ``read`` asks for.

        Raises TimedOut, ExceptionAnswer or DecodeError where just this read failed; Garbled where a new connection is
        needed; ConnectionLost.
        """
        if self._link is None:
            raise ConnectionLost("not connected")
        link = self._link
        loop = asyncio.get_running_loop()
        if self._owed_until > loop.time():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._owed_until):
                    await link.settled.wait()
        self._owed_until = 0.0
        self._transaction = (self._transaction + 1) & 0xFFFF
        try:
            async with asyncio.timeout(self._time_out):
                pdu = await link.ask(self._transaction, request(self._transaction, self._unit_id, read))
        except TimeoutError:
            self._owed_until = loop.time() + self._time_out
            raise TimedOut(f"no answer within {self._time_out:g} s") from None
        return registers(read, pdu)

    def close(self) -> None:
        """Close; what may still come is not read."""
        if self._link is not None:
            self._link.close()
            self._link = None
