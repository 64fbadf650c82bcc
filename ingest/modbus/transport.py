"""One connection to one Modbus TCP address, for all sources and unit ids there: many gateways take no second one.

Requests go in turn, first come, first served: each source asks for one block at a time, so that a slow unit delays the
others by its own time-out at most. No answer is taken for another: it must have the request's transaction id, which no
later request has, also on a new connection, and its unit id. Gateways to serial lines may give a late answer the id of
the request that came since; so a unit that timed out is not asked again before its answer came, or one more time-out.

Some devices close the connection after an answer: the next request then goes over a new one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.awake import Patience, unread, within
from ingest.errors import SourceError
from ingest.modbus.failures import BAD_TIMEOUT, ConnectionLost, Garbled, TimedOut
from ingest.modbus.frame import Frame, Framer, registers, request
from ingest.modbus.plan import Read

log = logging.getLogger(__name__)

_RECEIVED = 4096  # bytes at once; an answer has 260 at most
_AT_ONCE = 0.001  # s; an answer that was read this soon did not lie there unread
_SINGLE = 3  # connections one after another with one answer each: the device closes after each answer


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What came for one read."""

    registers: NDArray[np.uint16]  # or 0/1 for each bit, as many as were asked for
    at: int  # µs
    took: float  # s


class _Link(asyncio.BufferedProtocol):
    """One TCP connection. The next request is sent where an answer is received; the task is woken at the end."""

    def __init__(self, late: Callable[[int], None], transactions: Iterator[int]) -> None:
        self._late = late
        self._transactions = transactions  # their ids
        self._loop = asyncio.get_running_loop()
        self._received = bytearray(_RECEIVED)
        self._framer = Framer()
        self._expected = (-1, -1)  # transaction and unit id
        self._follow: Callable[[bytes], Read | None] | None = None
        self._end: asyncio.Future[None] | None = None
        self._patience: Patience | None = None
        self._transport: asyncio.WriteTransport | None = None
        self.lost: SourceError | None = None
        self.answers = 0
        self.asked_at = 0.0  # loop's s
        self.answered_at = 0.0  # loop's s, when it came, not when we read it
        self.heard = False  # something came since the last request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = True
        try:
            for frame in self._framer.feed(bytes(memoryview(self._received)[:nbytes])):
                self._arrived(frame)
        except Garbled as error:
            self._fail(error)
            self.close()

    def _arrived(self, frame: Frame) -> None:
        if self._follow is None or (frame.transaction, frame.unit_id) != self._expected:
            self._late(frame.unit_id)
            return
        self.answers += 1
        self.answered_at = self._loop.time()
        if self.answered_at - self.asked_at > _AT_ONCE:
            assert self._transport is not None
            self.answered_at -= unread(self._transport)
        try:
            following = self._follow(frame.pdu)
        except SourceError as error:
            self._over(error)
        else:
            if following is None:
                self._over()
            else:
                self._send(following)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionLost("connection closed by the device"))

    def _fail(self, error: SourceError) -> None:
        self.lost = self.lost or error
        self._over(self.lost)

    def _over(self, error: SourceError | None = None) -> None:
        """Nothing more is to be had; why, where that is an error."""
        self._follow = None
        if self._end is None or self._end.done():
            return
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)

    async def ask(self, read: Read, time_out: float, follow: Callable[[bytes], Read | None]) -> None:
        """Ask for ``read``, and then for what ``follow`` makes of each answer's PDU, until that is nothing.

        Raises TimedOut, ConnectionLost, Garbled, and what ``follow`` raises.
        """
        self.heard = False
        if self.lost is not None:
            raise self.lost
        self._end, self._follow = self._loop.create_future(), follow
        silent = TimedOut(f"no answer within {time_out:g} s")
        self._patience = Patience(time_out, lambda: self._over(silent))
        try:
            self._send(read)
            await self._end
        finally:
            self._follow = None
            self._patience.end()

    def _send(self, read: Read) -> None:
        assert self._transport is not None and self._patience is not None
        transaction = next(self._transactions) & 0xFFFF
        self._expected = (transaction, read.unit_id)
        self.heard = False
        self.asked_at = self._loop.time()
        self._patience.begin_anew()
        self._transport.write(request(transaction, read))

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
        self._wanted = 0  # by so many
        self._transactions = itertools.count(random.randrange(0x10000))  # goes on over connections
        self._owed: dict[int, _Owed] = {}  # by unit id
        self._single = 0
        self.asked_at = 0.0  # loop's s, the last request
        self.closes = False  # the device closes the connection after each answer
        self.waited = 0.0  # s for which devices were waited for: what they said and we had not read yet does not count

    async def join(self, user: Device) -> bool:
        """Connect, where nobody is. Returns whether the connection is a new one. Raises ConnectionLost."""
        async with self._in_turn():
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

    async def ask(self, user: Device, reads: Sequence[Read], answers: list[Answer]) -> None:
        """Add the answers to ``reads``, one after another, to ``answers``, which has those to the first of them.

        Raises TimedOut, ExceptionAnswer, DecodeError or ConnectionLost where the next one can't be had.
        """
        while len(answers) < len(reads):
            await self._until_answered(reads[len(answers)].unit_id)
            async with self._in_turn():
                self._asker = user
                link = self._link
                if link is None or (self.closes and link.answers):
                    link = await self._connect(user.time_out)
                try:
                    await self._exchange(link, user, reads, answers)
                except (ConnectionLost, Garbled):
                    if link.heard or not link.answers:
                        raise
                    self._single = self._single + 1 if link.answers == 1 else 0
                    if self._single >= _SINGLE:
                        self.closes = True
                        log.info("%s closes the connection after each answer: one connection a request", self.address)
                    user.reconnected()
                    await self._connect(user.time_out)

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        self._wanted += 1
        try:
            async with self._turn:
                yield
        finally:
            self._wanted -= 1

    async def _until_answered(self, unit_id: int) -> None:
        """Wait for what a unit owes, but not longer than it may take."""
        owed = self._owed.pop(unit_id, None)
        if owed is not None and owed.until > asyncio.get_running_loop().time():
            with suppress(TimeoutError), self._waiting():
                async with asyncio.timeout_at(owed.until):
                    await owed.came.wait()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self.waited += asyncio.get_running_loop().time() - began

    async def _exchange(self, link: _Link, user: Device, reads: Sequence[Read], answers: list[Answer]) -> None:
        """Read on until somebody else wants the line, or it takes another connection."""

        def follow(pdu: bytes) -> Read | None:
            found = registers(reads[len(answers)], pdu)
            took = link.answered_at - link.asked_at
            answers.append(Answer(found, user.clock(), took))
            self.waited += took
            if len(answers) == len(reads) or self._wanted > 1 or self.closes:
                return None
            following = reads[len(answers)]
            return None if following.unit_id in self._owed else following

        try:
            await link.ask(reads[len(answers)], user.time_out, follow)
        except TimedOut:
            self.waited += user.time_out
            self._owed[reads[len(answers)].unit_id] = _Owed(asyncio.get_running_loop().time() + user.time_out)
            raise
        finally:
            self.asked_at = link.asked_at

    async def _connect(self, time_out: float) -> _Link:
        """Make a new connection, within the deadline."""
        if self._link is not None:
            self._link.close()
            self._link = None
        link = _Link(self._late, self._transactions)
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

    ``clock`` gives the time (µs) of each answer. ``late`` is called for each answer dropped, ``reconnected`` for each
    new connection that a request needed.
    """

    def __init__(
        self,
        line: Line,
        time_out: float,
        clock: Callable[[], int],
        late: Callable[[], None],
        reconnected: Callable[[], None],
    ) -> None:
        self.line = line
        self.time_out = time_out
        self.clock = clock
        self.late = late
        self.reconnected = reconnected
        self._silent_since = 0.0  # loop's s, of the first request that was not answered; 0: the last one was

    async def connect(self) -> bool:
        """Be on the line. Returns whether its connection is a new one. Raises ConnectionLost."""
        self._silent_since = 0.0
        return await self.line.join(self)

    async def read(self, reads: Sequence[Read], answers: list[Answer]) -> None:
        """Make ``reads`` one after another, and add what comes to ``answers``, which is empty.

        Raises what ends that: TimedOut, ExceptionAnswer or DecodeError where just the read behind those answered
        failed; Garbled where a new connection is needed; ConnectionLost.
        """
        silent_since, self._silent_since = self._silent_since, 0.0
        try:
            await self.line.ask(self, reads, answers)
        except TimedOut:
            self._silent_since = silent_since if silent_since and not answers else self.line.asked_at
            raise

    def close(self) -> None:
        """Leave the line; what may still come is not read."""
        self.line.leave(self, self._silent_since)
