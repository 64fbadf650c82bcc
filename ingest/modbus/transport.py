"""One connection to one Modbus TCP address, for all sources and unit ids there: many gateways take no second one.

Requests go in turn, first come, first served: each source asks for one block at a time, so that a slow unit delays the
others by its own time-out at most. No answer is taken for another: it must have the request's transaction id, which no
later request has, also on a new connection, and its unit id. Gateways to serial lines may give a late answer the id of
the request that came since; so a unit that timed out is not asked again before its answer came, or one more time-out.

Some devices close the connection after an answer: the next request then goes over a new one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.awake import unread, within
from ingest.errors import SourceError
from ingest.modbus.failures import BAD_TIMEOUT, ConnectionLost, Garbled, TimedOut
from ingest.modbus.frame import Frame, Framer, registers, request
from ingest.modbus.plan import Read

log = logging.getLogger(__name__)

_SINGLE = 3  # connections one after another with one answer each: the device closes after each answer


class _Link(asyncio.Protocol):
    """One TCP connection."""

    def __init__(self, late: Callable[[int], None]) -> None:
        self._late = late
        self._framer = Framer()
        self._expected = (-1, -1)  # transaction and unit id
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self.lost: SourceError | None = None
        self.answers = 0
        self.answered_at = 0.0  # loop's s, when it came, not when we read it
        self.heard = False  # something came since the last request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard = True
        try:
            for frame in self._framer.feed(data):
                self._arrived(frame)
        except Garbled as error:
            self._end(error)
            self.close()

    def _arrived(self, frame: Frame) -> None:
        expected = self._answer is not None and not self._answer.done()
        if expected and (frame.transaction, frame.unit_id) == self._expected:
            assert self._answer is not None and self._transport is not None
            self.answers += 1
            self.answered_at = asyncio.get_running_loop().time() - unread(self._transport)
            self._answer.set_result(frame.pdu)
        else:
            self._late(frame.unit_id)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionLost("connection closed by the device"))

    def _end(self, error: SourceError) -> None:
        self.lost = self.lost or error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self.lost)

    def ask(self, transaction: int, read: Read) -> asyncio.Future[bytes]:
        """The PDU that answers ``read``, when it comes; or ConnectionLost or Garbled."""
        self.heard = False
        if self.lost is not None:
            raise self.lost
        assert self._transport is not None
        self._expected = (transaction, read.unit_id)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request(transaction, read))
        return self._answer

    def close(self) -> None:
        """Close at once, whatever waits to be sent."""
        if self._transport is not None:
            self._transport.abort()


@dataclass(slots=True)
class _Owed:
    """An answer that timed out may still come."""

    until: float  # loop's s
    came: asyncio.Event = field(default_factory=asyncio.Event)


class Line:
    """The connection to one ``tcp://host:port``, shared by its devices."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._port = int(port)
        self._turn = asyncio.Lock()
        self._users: set[Device] = set()
        self._link: _Link | None = None
        self._asker: Device | None = None
        self._transaction = random.randrange(0x10000)  # goes on over connections
        self._owed: dict[int, _Owed] = {}  # by unit id
        self._single = 0
        self.closes = False  # the device closes the connection after each answer
        self.waited = 0.0  # s for which devices were waited for: what they said and we had not read yet does not count

    async def join(self, user: Device) -> bool:
        """Connect, where nobody is. Returns whether the connection is a new one. Raises ConnectionLost."""
        async with self._turn:
            fresh = self._link is None or self._link.lost is not None
            if fresh:
                await self._connect(user.time_out)
            self._users.add(user)
            return fresh

    def leave(self, user: Device, silent_since: float) -> None:
        """Close, where nobody else is there, or nobody was answered since then (loop's s; 0: the user was)."""
        self._users.discard(user)
        if self._link is not None and (not self._users or self._link.answered_at < silent_since):
            self._link.close()
            self._link = None

    async def ask(self, user: Device, read: Read) -> bytes:
        """The PDU that answers ``read``. Raises TimedOut, Garbled or ConnectionLost."""
        loop = asyncio.get_running_loop()
        owed = self._owed.pop(read.unit_id, None)
        if owed is not None and owed.until > loop.time():
            with suppress(TimeoutError), self._waiting():
                async with asyncio.timeout_at(owed.until):
                    await owed.came.wait()
        async with self._turn:
            self._asker = user
            link = self._link
            if link is not None and not (self.closes and link.answers):
                try:
                    return await self._exchange(link, user, read)
                except (ConnectionLost, Garbled):
                    if link.heard or not link.answers:
                        raise
                self._single = self._single + 1 if link.answers == 1 else 0
                user.reconnected()
                if self._single >= _SINGLE:
                    self.closes = True
                    log.info("%s closes the connection after each answer: one connection a request", self.address)
            return await self._exchange(await self._connect(user.time_out), user, read)

    async def _exchange(self, link: _Link, user: Device, read: Read) -> bytes:
        self._transaction = (self._transaction + 1) & 0xFFFF
        asked = asyncio.get_running_loop().time()
        try:
            pdu = await within(user.time_out, link.ask(self._transaction, read))
        except TimeoutError:
            self.waited += user.time_out
            self._owed[read.unit_id] = _Owed(asyncio.get_running_loop().time() + user.time_out)
            raise TimedOut(f"no answer within {user.time_out:g} s") from None
        self.waited += link.answered_at - asked
        return pdu

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self.waited += asyncio.get_running_loop().time() - began

    async def _connect(self, time_out: float) -> _Link:
        """Make a new connection, within the deadline."""
        if self._link is not None:
            self._link.close()
            self._link = None
        link = _Link(self._late)
        try:
            loop = asyncio.get_running_loop()
            with self._waiting():
                await within(time_out, loop.create_connection(lambda: link, self._host.strip("[]"), self._port))
        except TimeoutError as error:
            raise ConnectionLost("connect: no answer in time", BAD_TIMEOUT) from error
        except (OSError, ValueError) as error:  # ValueError: a name that can't be one of a host
            raise ConnectionLost(f"connect: {error}") from error
        self._link = link
        self._owed.clear()
        return link

    def _late(self, unit_id: int) -> None:
        """An answer of this unit came that nobody waits for."""
        if self._asker is not None:
            self._asker.late()
        if unit_id in self._owed:
            self._owed[unit_id].came.set()


class Lines:
    """The lines of a process, by address."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    def to(self, address: str) -> Line:
        """The line to ``tcp://host:port``."""
        return self._lines.setdefault(address, Line(address))


class Device:
    """Reads registers over a line, for one source.

    ``late`` is called for each answer dropped, ``reconnected`` for each new connection that a request needed.
    """

    def __init__(self, line: Line, time_out: float, late: Callable[[], None], reconnected: Callable[[], None]) -> None:
        self.line = line
        self.time_out = time_out
        self.late = late
        self.reconnected = reconnected
        self._silent_since = 0.0  # loop's s, of the first request that was not answered; 0: the last one was

    async def connect(self) -> bool:
        """Be on the line. Returns whether its connection is a new one. Raises ConnectionLost."""
        self._silent_since = 0.0
        return await self.line.join(self)

    async def read(self, read: Read) -> NDArray[np.uint16]:
        """Registers (or 0/1 for each bit), as many as ``read`` asks for.

        Raises TimedOut, ExceptionAnswer or DecodeError where just this read failed; Garbled where a new connection is
        needed; ConnectionLost.
        """
        asked = asyncio.get_running_loop().time()
        try:
            pdu = await self.line.ask(self, read)
        except TimedOut:
            self._silent_since = self._silent_since or asked
            raise
        self._silent_since = 0.0
        return registers(read, pdu)

    def close(self) -> None:
        """Leave the line; what may still come is not read."""
        self.line.leave(self, self._silent_since)
