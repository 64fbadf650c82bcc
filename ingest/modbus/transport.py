"""One connection per Modbus TCP address, shared by all its sources and unit ids: many gateways accept only one.

Requests are served in order of arrival: each source reads one block at a time, so that a slow unit delays the
others by its own timeout at most. A response must match the request's unit id and transaction id, which no
later request has, even on a new connection. Serial gateways may give a late response the id of
the next request; so a unit that timed out is not polled again until its response arrives or another timeout passes.

Some devices close the connection after a response: the next request then uses a new one.
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

from ingest.addresses import unreachable
from ingest.errors import SourceError
from ingest.modbus.failures import BAD_TIMEOUT, ConnectionLost, FramingError, RequestTimeout
from ingest.modbus.frame import Frame, Framer, registers, request
from ingest.modbus.plan import Read
from ingest.timeouts import Watchdog, unread_seconds, within

log = logging.getLogger(__name__)

_RECEIVED = 4096  # bytes at once; an answer has 260 at most
_PROMPT_SECONDS = 0.001  # s; an answer that was read this soon did not lie there unread
_MAX_SINGLE_ANSWERS = 3  # connections one after another with one answer each: the device closes after each answer


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The response to one read."""

    registers: NDArray[np.uint16]  # or 0/1 per requested bit
    at: int  # µs
    took: float  # s


class _Protocol(asyncio.BufferedProtocol):
    """One TCP connection. The next request is sent from the receive callback; the task is woken only at the end."""

    def __init__(self, late: Callable[[int], None], transactions: Iterator[int]) -> None:
        self._late = late
        self._transactions = transactions  # their ids
        self._loop = asyncio.get_running_loop()
        self._received = bytearray(_RECEIVED)
        self._framer = Framer()
        self._expected = (-1, -1)  # transaction and unit id
        self._follow: Callable[[bytes], Read | None] | None = None
        self._done: asyncio.Future[None] | None = None
        self._watchdog: Watchdog | None = None
        self._transport: asyncio.WriteTransport | None = None
        self.lost: SourceError | None = None
        self.answers = 0
        self.requested_at = 0.0  # loop's s
        self.answered_at = 0.0  # loop's s, when it came, not when we read it
        self.received = False  # something came since the last request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        self.received = True
        try:
            for frame in self._framer.feed(bytes(memoryview(self._received)[:nbytes])):
                self._arrived(frame)
        except FramingError as error:
            self._fail(error)
            self.close()

    def _arrived(self, frame: Frame) -> None:
        if self._follow is None or (frame.transaction, frame.unit_id) != self._expected:
            self._late(frame.unit_id)
            return
        self.answers += 1
        self.answered_at = self._loop.time()
        if self.answered_at - self.requested_at > _PROMPT_SECONDS:
            assert self._transport is not None
            self.answered_at -= unread_seconds(self._transport)
        try:
            following = self._follow(frame.pdu)
        except SourceError as error:
            self._finish(error)
        else:
            if following is None:
                self._finish()
            else:
                self._send(following)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionLost("connection closed by the device"))

    def _fail(self, error: SourceError) -> None:
        self.lost = self.lost or error
        self._finish(self.lost)

    def _finish(self, error: SourceError | None = None) -> None:
        """End the exchange, with an error or without."""
        self._follow = None
        if self._done is None or self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)

    async def exchange(self, read: Read, time_out: float, follow: Callable[[bytes], Read | None]) -> None:
        """Send ``read``, then each read that ``follow`` returns for a response PDU, until it returns None.

        Raises RequestTimeout, ConnectionLost, FramingError, and what ``follow`` raises.
        """
        self.received = False
        if self.lost is not None:
            raise self.lost
        self._done, self._follow = self._loop.create_future(), follow
        timed_out = RequestTimeout(f"no response within {time_out:g} s")
        self._watchdog = Watchdog(time_out, lambda: self._finish(timed_out))
        try:
            self._send(read)
            await self._done
        finally:
            self._follow = None
            self._watchdog.cancel()

    def _send(self, read: Read) -> None:
        assert self._transport is not None and self._watchdog is not None
        transaction = next(self._transactions) & 0xFFFF
        self._expected = (transaction, read.unit_id)
        self.received = False
        self.requested_at = self._loop.time()
        self._watchdog.reset()
        self._transport.write(request(transaction, read))

    def close(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()


@dataclass(slots=True)
class _PendingAnswer:
    """A response that timed out but may still arrive."""

    until: float  # loop's s
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class Connection:
    """The connection to one ``tcp://host:port``, shared by its devices (unit ids)."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._port = int(port)
        self._lock = asyncio.Lock()
        self._devices: set[Device] = set()
        self._protocol: _Protocol | None = None
        self._current_device: Device | None = None
        self._waiters = 0  # by so many
        self._transactions = itertools.count(random.randrange(0x10000))  # continues across connections
        self._pending_answers: dict[int, _PendingAnswer] = {}  # by unit id
        self._single_answers = 0
        self.requested_at = 0.0  # loop's s, the last request
        self.closes_after_answer = False  # the device closes the connection after each answer
        self.waited_seconds = 0.0  # s spent waiting for devices, without time in which received data lay unread

    async def join(self, device: Device) -> bool:
        """Connect if needed; return whether the connection is new. Raises ConnectionLost."""
        async with self._in_turn():
            is_new = self._protocol is None or self._protocol.lost is not None
            if is_new:
                await self._connect(device.time_out)
            self._devices.add(device)
            return is_new

    def leave(self, device: Device, silent_since: float) -> None:
        """Close the connection if unused, or silent since ``silent_since`` (loop s; 0: this device was answered)."""
        self._devices.discard(device)
        if self._protocol is not None and (not self._devices or self._protocol.answered_at < silent_since):
            self._protocol.close()
            self._protocol = None

    async def read(self, device: Device, reads: Sequence[Read], answers: list[Answer]) -> None:
        """Read one after another and append the responses to ``answers``, which holds those of the first reads.

        Raises RequestTimeout, ExceptionResponse, DecodeError or ConnectionLost if the next read fails.
        """
        while len(answers) < len(reads):
            await self._until_answered(reads[len(answers)].unit_id)
            async with self._in_turn():
                self._current_device = device
                protocol = self._protocol
                if protocol is None or (self.closes_after_answer and protocol.answers):
                    protocol = await self._connect(device.time_out)
                try:
                    await self._exchange(protocol, device, reads, answers)
                except (ConnectionLost, FramingError):
                    if protocol.received or not protocol.answers:
                        raise
                    self._single_answers = self._single_answers + 1 if protocol.answers == 1 else 0
                    if self._single_answers >= _MAX_SINGLE_ANSWERS:
                        self.closes_after_answer = True
                        log.info(
                            "%s closes the connection after each response: using one connection per request",
                            self.address,
                        )
                    device.reconnected()
                    await self._connect(device.time_out)

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        self._waiters += 1
        try:
            async with self._lock:
                yield
        finally:
            self._waiters -= 1

    async def _until_answered(self, unit_id: int) -> None:
        """Wait for a pending response of a unit, up to its limit."""
        pending = self._pending_answers.pop(unit_id, None)
        if pending is not None and pending.until > asyncio.get_running_loop().time():
            with suppress(TimeoutError), self._waiting():
                async with asyncio.timeout_at(pending.until):
                    await pending.arrived.wait()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self.waited_seconds += asyncio.get_running_loop().time() - began

    async def _exchange(
        self, protocol: _Protocol, device: Device, reads: Sequence[Read], answers: list[Answer]
    ) -> None:
        """Read until another device waits for the connection, or a new connection is needed."""

        def follow(pdu: bytes) -> Read | None:
            found = registers(reads[len(answers)], pdu)
            took = protocol.answered_at - protocol.requested_at
            answers.append(Answer(found, device.clock(), took))
            self.waited_seconds += took
            if len(answers) == len(reads) or self._waiters > 1 or self.closes_after_answer:
                return None
            following = reads[len(answers)]
            return None if following.unit_id in self._pending_answers else following

        try:
            await protocol.exchange(reads[len(answers)], device.time_out, follow)
        except RequestTimeout:
            self.waited_seconds += device.time_out
            self._pending_answers[reads[len(answers)].unit_id] = _PendingAnswer(
                asyncio.get_running_loop().time() + device.time_out
            )
            raise
        finally:
            self.requested_at = protocol.requested_at

    async def _connect(self, time_out: float) -> _Protocol:
        """Open a new connection, within the deadline."""
        if self._protocol is not None:
            self._protocol.close()
            self._protocol = None
        protocol = _Protocol(self._late, self._transactions)
        try:
            loop = asyncio.get_running_loop()
            with self._waiting():
                await within(time_out, loop.create_connection(lambda: protocol, self._host.strip("[]"), self._port))
        except TimeoutError as error:
            raise ConnectionLost("connect: timed out", BAD_TIMEOUT) from error
        except (OSError, ValueError) as error:  # ValueError: an invalid host name
            raise ConnectionLost(f"connect: {unreachable(self.address, error)}") from error
        self._protocol = protocol
        self._pending_answers.clear()
        return protocol

    def _late(self, unit_id: int) -> None:
        """An unexpected response of this unit arrived."""
        if self._current_device is not None:
            self._current_device.late()
        if unit_id in self._pending_answers:
            self._pending_answers[unit_id].arrived.set()


class Connections:
    """The connections of a process, by address."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    def get(self, address: str) -> Connection:
        """The connection to ``tcp://host:port``."""
        return self._connections.setdefault(address, Connection(address))


class Device:
    """Reads registers for one source over a shared connection.

    ``clock``: time (µs) of each response. ``late`` is called for each response dropped, ``reconnected`` for each
    new connection that a request needed.
    """

    def __init__(
        self,
        connection: Connection,
        time_out: float,
        clock: Callable[[], int],
        late: Callable[[], None],
        reconnected: Callable[[], None],
    ) -> None:
        self.connection = connection
        self.time_out = time_out
        self.clock = clock
        self.late = late
        self.reconnected = reconnected
        self._silent_since = 0.0  # loop's s, of the first request that was not answered; 0: the last one was

    async def connect(self) -> bool:
        """Join the shared connection; return whether it is new. Raises ConnectionLost."""
        self._silent_since = 0.0
        return await self.connection.join(self)

    async def read(self, reads: Sequence[Read], answers: list[Answer]) -> None:
        """Read one after another and append the responses to the empty list ``answers``.

        Raises RequestTimeout, ExceptionResponse or DecodeError if only the next read
        failed; FramingError if a new connection is needed; ConnectionLost.
        """
        silent_since, self._silent_since = self._silent_since, 0.0
        try:
            await self.connection.read(self, reads, answers)
        except RequestTimeout:
            self._silent_since = silent_since if silent_since and not answers else self.connection.requested_at
            raise

    def close(self) -> None:
        """Leave the shared connection; pending responses are dropped."""
        self.connection.leave(self, self._silent_since)
