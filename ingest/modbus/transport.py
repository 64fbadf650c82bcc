"""Connections, one per address, shared by all its sources and unit ids: many gateways accept only one.

Requests are served in order of arrival: each source reads one block at a time, so that a slow unit delays the others
by its own timeout at most. A response must match the request's unit id and transaction id, which no later request has,
even on a new connection. Serial gateways may give a late response the id of the next request; so a unit that timed out
is not polled again until its response arrives or another timeout passes.

RTU has no transaction ids. A late response is recognised by its unit id, function code or length, or because no request
to its unit is outstanding. Over TCP it could be late by any time, so that a request without a response ends the
connection.

Some devices close the connection after a response: the next request then uses a new one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.addresses import unreachable
from core.config.addresses.modbus_address import ModbusAddress, ModbusTlsOptions, parse
from core.timeouts import within
from ingest.modbus.failures import BAD_TIMEOUT, ConnectionLost, FramingError, RequestTimeout, UnitTaken
from ingest.modbus.frame import FUNCTIONS, Frame, TcpFramer, registers
from ingest.modbus.plan import Read
from ingest.modbus.protocol import ModbusProtocol, RtuProtocol
from ingest.modbus.serial_port import open_serial
from ingest.modbus.tls import TlsProtocol

log = logging.getLogger(__name__)

_MAX_SINGLE_ANSWERS = 3  # consecutive connections with one answer each: the device closes after each answer
_MAX_WAITS = 2  # time-outs of waiting for a unit that another master keeps polling
_OTHER_MASTER_SECONDS = 60.0  # for which another master is reported
# Between two frames of a serial line (MODBUS over Serial Line V1.02, 2.5.1.1)
_SILENT_CHARACTERS = 3.5
_FAST = 19200  # baud; above it the silence is fixed
_FAST_SILENCE = 0.00175  # s


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """The response to one read."""

    registers: NDArray[np.uint16]  # or 0/1 per requested bit
    at: int  # µs
    took: float  # s


@dataclass(slots=True)
class _PendingResponse:
    """A response that a unit may still send: late, or to another master of the line. Times are the loop's s."""

    time_out: float  # s
    own_until: float = 0.0  # a late response to us
    other_until: float = 0.0  # a response to another master
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def until(self) -> float:
        """End of waiting for it."""
        return max(self.own_until, self.other_until)

    def response(self, now: float) -> None:
        """Note that the unit responded. If two responses are due, this may be either."""
        if self.own_until <= now or self.other_until <= now:
            self.own_until = self.other_until = 0.0
            self.arrived.set()


class Connection:
    """The connection to one address, shared by its devices (unit ids)."""

    def __init__(self, address: ModbusAddress, pki: Path) -> None:
        self.address = f"{address.scheme}://{address.endpoint}"
        self._address = address
        self._pki = pki
        self._lock = asyncio.Lock()
        self._devices: set[Device] = set()
        self._protocol: ModbusProtocol | None = None
        self._current_device: Device | None = None
        self._waiters = 0  # number of devices that wait for the connection or use it
        self._transactions = itertools.count(random.randrange(0x10000))  # continues across connections
        self._pending_responses: dict[int, _PendingResponse] = {}  # by unit id
        self._single_answers = 0
        self._other_master = "", 0.0  # description of its last request, and its time (loop's s)
        self.certificate_ends: datetime | None = None  # of the certificate that a device showed last
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

    async def read(self, device: Device, reads: Sequence[Read], answers: list[Response]) -> None:
        """Read one after another and append the responses to ``answers``, which holds those of the first reads.

        Raises RequestTimeout, ExceptionResponse, DecodeError or ConnectionLost if the next read fails.
        """
        while len(answers) < len(reads):
            unit_id = reads[len(answers)].unit_id
            await self._until_answered(device, unit_id)
            async with self._in_turn():
                if unit_id in self._pending_responses:  # since another source's request meanwhile
                    continue
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

    async def _until_answered(self, device: Device, unit_id: int) -> None:
        """Wait for a pending response of a unit, up to its limit. Raises ConnectionLost, and RequestTimeout if another
        master goes on asking it."""
        if unit_id not in self._pending_responses:
            return
        if self._protocol is None:
            async with self._in_turn():
                if self._protocol is None:
                    await self._connect(device.time_out)
        pending = self._pending_responses.get(unit_id)
        if pending is None:
            return
        loop = asyncio.get_running_loop()
        limit = loop.time() + _MAX_WAITS * device.time_out
        while not pending.arrived.is_set() and pending.until > loop.time():
            if loop.time() >= limit:
                raise RequestTimeout(f"no response: another master on the line asks unit {unit_id}", unreadable=True)
            with suppress(TimeoutError), self._waiting():
                async with asyncio.timeout_at(min(pending.until, limit)):
                    await pending.arrived.wait()
        if self._pending_responses.get(unit_id) is pending:
            del self._pending_responses[unit_id]

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self.waited_seconds += asyncio.get_running_loop().time() - began

    async def _exchange(
        self, protocol: ModbusProtocol, device: Device, reads: Sequence[Read], answers: list[Response]
    ) -> None:
        """Read until another device waits for the connection, or a new connection is needed."""

        def follow(pdu: bytes) -> Read | None:
            words = registers(reads[len(answers)], pdu)
            took = protocol.answered_at - protocol.requested_at
            answers.append(Response(words, device.clock(), took))
            self.waited_seconds += took
            if len(answers) == len(reads) or self._waiters > 1 or self.closes_after_answer:
                return None
            following = reads[len(answers)]
            return None if following.unit_id in self._pending_responses else following

        try:
            await protocol.exchange(reads[len(answers)], device.time_out, follow, device.any_transaction)
        except UnitTaken:
            return
        except RequestTimeout:
            self.waited_seconds += device.time_out
            self._await_late(reads[len(answers)].unit_id, device.time_out, end=device.any_transaction)
            raise
        except (ConnectionLost, asyncio.CancelledError):
            if self._address.rtu:
                self._await_late(reads[len(answers)].unit_id, device.time_out)
            raise
        finally:
            self.requested_at = protocol.requested_at

    async def _connect(self, time_out: float) -> ModbusProtocol:
        """Open a new connection, within the deadline."""
        if self._protocol is not None:
            self._protocol.close()
            self._protocol = None
        protocol = self._new_protocol()
        try:
            loop, address = asyncio.get_running_loop(), self._address
            if address.scheme == "serial":
                open_serial(address, protocol)
            elif isinstance(protocol, TlsProtocol):
                with self._waiting():
                    self.certificate_ends = await protocol.connect(time_out)
            else:
                with self._waiting():
                    await within(time_out, loop.create_connection(lambda: protocol, address.host, address.port))
        except TimeoutError as error:
            raise ConnectionLost("connect: timed out", BAD_TIMEOUT) from error
        except (OSError, ValueError) as error:  # ValueError: an invalid host name
            raise ConnectionLost(f"connect: {unreachable(self.address, error)}") from error
        self._protocol = protocol
        if not self._address.rtu:
            self._pending_responses.clear()
        elif self._address.scheme == "rtu+tcp":  # a late response of the old connection may come on the new one
            for pending in self._pending_responses.values():
                pending.own_until = loop.time() + pending.time_out
        return protocol

    def _new_protocol(self) -> ModbusProtocol:
        address = self._address
        if address.rtu:
            silence = address.seconds(_SILENT_CHARACTERS) if address.baud <= _FAST else _FAST_SILENCE
            return RtuProtocol(silence, self._late, self._transactions, self._note_other_master)
        if address.tls is not None:
            return TlsProtocol(address, self._pki, self._late, self._transactions)
        return ModbusProtocol(TcpFramer(), self._late, self._transactions)

    def _await_late(self, unit_id: int, time_out: float, end: bool = False) -> None:
        """Send a unit no request until it responds or ``time_out`` passes; ``end``: also close the connection."""
        self._await_own(unit_id, time_out)
        if (end or self._address.scheme == "rtu+tcp") and self._protocol is not None:
            self._protocol.close()
            self._protocol = None

    def _await_own(self, unit_id: int, time_out: float) -> None:
        """Wait for a late response until two time-outs after the request, and one after now."""
        now = asyncio.get_running_loop().time()
        requested_at = now if self._protocol is None else self._protocol.requested_at
        self._pending(unit_id, time_out).own_until = max(now + time_out, requested_at + 2 * time_out)

    def _late(self, unit_id: int) -> bool:
        """Note an unexpected response of a unit; True: one was pending."""
        if self._current_device is not None:
            self._current_device.late()
        was_pending = unit_id in self._pending_responses
        if was_pending:
            self._pending_responses[unit_id].response(asyncio.get_running_loop().time())
        return was_pending

    def _pending(self, unit_id: int, time_out: float) -> _PendingResponse:
        """Pending responses of a unit, to be added to."""
        pending = self._pending_responses.get(unit_id)
        if pending is None or pending.arrived.is_set():
            pending = self._pending_responses[unit_id] = _PendingResponse(time_out)
        return pending

    def _note_other_master(self, frame: Frame, is_ours_pending: bool, text: str) -> None:
        """Note the request of another master to a unit. ``is_ours_pending``: the unit is to respond to us, too."""
        now = asyncio.get_running_loop().time()
        self._other_master = text, now
        if frame.pdu[0] in FUNCTIONS.values():
            time_out = max((device.time_out for device in self._devices), default=1.0)
            self._pending(frame.unit_id, time_out).other_until = now + time_out
            if is_ours_pending:
                self._await_own(frame.unit_id, time_out)

    @property
    def other_master(self) -> str:
        """Description of a recent request of another master of the line; empty: none."""
        text, at = self._other_master
        return text if asyncio.get_running_loop().time() - at < _OTHER_MASTER_SECONDS else ""


class Connections:
    """Connections of a process, by address. ``pki``: the folder with plantlog's own certificate."""

    def __init__(self, pki: Path = Path("pki")) -> None:
        self._pki = pki
        self._connections: dict[ModbusAddress, Connection] = {}

    def get(self, address: str, tls: ModbusTlsOptions | None = None) -> Connection:
        """The connection to an address as in the configuration."""
        parsed = replace(parse(address), tls=tls)
        return self._connections.setdefault(parsed, Connection(parsed, self._pki))

    def certificates(self) -> dict[str, datetime]:
        """Ends of the certificates that devices showed, by host and port."""
        ends = {address.endpoint: connection.certificate_ends for address, connection in self._connections.items()}
        return {endpoint: at for endpoint, at in ends.items() if at is not None}


class Device:
    """Reads registers for one source over a shared connection.

    ``clock``: time (µs) of each response. ``late`` is called for each response dropped, ``reconnected`` for each
    new connection that a request needed. ``any_transaction``: a response may have another transaction id; a request
    without a response then ends the connection, so that no other one is outstanding.
    """

    def __init__(
        self,
        connection: Connection,
        time_out: float,
        clock: Callable[[], int],
        late: Callable[[], None],
        reconnected: Callable[[], None],
        any_transaction: bool = False,
    ) -> None:
        self.connection = connection
        self.any_transaction = any_transaction
        self.time_out = time_out
        self.clock = clock
        self.late = late
        self.reconnected = reconnected
        self._silent_since = 0.0  # loop's s, of the first unanswered request; 0: the last one was answered

    async def connect(self) -> bool:
        """Join the shared connection; return whether it is new. Raises ConnectionLost."""
        self._silent_since = 0.0
        return await self.connection.join(self)

    async def read(self, reads: Sequence[Read], answers: list[Response]) -> None:
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
