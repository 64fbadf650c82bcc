"""Requests and responses of a connection. :class:`RtuProtocol` also keeps the silence between frames of a line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from core.errors import DecodeError, SourceError
from core.timeouts import Watchdog, unread_seconds
from ingest.modbus.failures import ConnectionLost, FramingError, RequestTimeout, UnitTaken
from ingest.modbus.frame import Frame, TcpFramer
from ingest.modbus.plan import Read
from ingest.modbus.rtu import NO_TRANSACTION, OTHER_MASTER, RtuFramer

_BUFFER_BYTES = 4096  # a response has at most 260
_PROMPT_SECONDS = 0.001  # after the request: until then, no response can have lain unread
_NO_UNITS = (0, 255)  # unit ids in responses of gateways and devices without one
_ADAPTER_DELAY = 0.02  # s, by which USB adapters and gateways may delay received bytes


class ModbusProtocol(asyncio.BufferedProtocol):
    """A connection. The receive callback sends the next request; the task is woken only at the end."""

    def __init__(self, framer: TcpFramer | RtuFramer, late: Callable[[int], bool], transactions: Iterator[int]) -> None:
        """``late`` is called with the unit id of each unexpected response, and returns whether one was due."""
        self._late = late
        self._transactions = transactions  # ids
        self._loop = asyncio.get_running_loop()
        self._received = memoryview(bytearray(_BUFFER_BYTES))  # a view: asyncio writes to slices of it (over TLS)
        self._framer = framer
        self._expected = (-1, -1)  # transaction and unit id
        self._any_transaction = False  # the response may have another transaction id
        self._other = ""  # description of the last response since the request with other ids
        self._follow: Callable[[bytes], Read | None] | None = None
        self._done: asyncio.Future[None] | None = None
        self._watchdog: Watchdog | None = None
        self._transport: asyncio.WriteTransport | None = None
        self.lost: SourceError | None = None
        self.answers = 0
        self.requested_at = 0.0  # loop's s
        self.answered_at = 0.0  # loop's s, of the arrival, not of reading it
        self.received = False  # bytes came since the last request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that the connection is open."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Buffer that receives bytes."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were received."""
        self.received = True
        try:
            for frame in self._framer.feed(bytes(self._received[:nbytes])):
                self._handle(frame)
        except FramingError as error:
            self._fail(error)
            self.close()

    def _handle(self, frame: Frame) -> None:
        if self._follow is None or not self._is_expected(frame):
            self._handle_unexpected(frame)
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

    def _is_expected(self, frame: Frame) -> bool:
        transaction, unit_id = self._expected
        is_response = frame.transaction == transaction or (
            self._any_transaction and frame.transaction != NO_TRANSACTION
        )
        return is_response and frame.unit_id == unit_id

    def _handle_unexpected(self, frame: Frame) -> None:
        """Handle a response with other ids than the last request."""
        was_due = self._late(frame.unit_id)
        if self._follow is None or frame.transaction == NO_TRANSACTION:
            return
        transaction, unit_id = self._expected
        self._other = (
            f"a response from unit {frame.unit_id} with transaction id {frame.transaction} arrived, "
            f"expected unit {unit_id} and transaction id {transaction}"
        )
        if frame.transaction == transaction and frame.unit_id in _NO_UNITS and not was_due:
            self._finish(DecodeError(self._other))  # at once: other units need not wait for a time-out

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection ended; ``exc``: the reason, if known."""
        self._fail(exc if isinstance(exc, ConnectionLost) else ConnectionLost("connection closed by the device"))

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

    async def exchange(
        self, read: Read, time_out: float, follow: Callable[[bytes], Read | None], any_transaction: bool = False
    ) -> None:
        """Send ``read``, then each read that ``follow`` returns for a response PDU, until it returns None.

        ``any_transaction``: a response may have another transaction id.

        Raises RequestTimeout, DecodeError, ConnectionLost, FramingError, and what ``follow`` raises.
        """
        self.received = False
        if self.lost is not None:
            raise self.lost
        self._done, self._follow = self._loop.create_future(), follow
        self._any_transaction = any_transaction
        self._watchdog = Watchdog(time_out, partial(self._time_out, time_out))
        try:
            self._send(read)
            await self._done
        finally:
            self._follow = None
            self._watchdog.cancel()

    def _time_out(self, seconds: float) -> None:
        other = f": {self._other}" if self._other else ""
        self._finish(RequestTimeout(f"no response within {seconds:g} s{other}", unreadable=bool(other)))

    def _send(self, read: Read) -> None:
        assert self._transport is not None and self._watchdog is not None
        transaction = next(self._transactions) & 0xFFFF
        self._expected, self._other = (transaction, read.unit_id), ""
        self.received = False
        self.requested_at = self._loop.time()
        self._watchdog.reset()
        self._transport.write(self._framer.request(transaction, read))

    def close(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()


class RtuProtocol(ModbusProtocol):
    """A serial line, or a gateway to one (MODBUS over Serial Line V1.02, 2.5.1.1).

    ``silence`` (s) separates two frames. A request waits until the line was silent for so long, and longer after bytes
    that were no response.
    """

    def __init__(
        self,
        silence: float,
        late: Callable[[int], bool],
        transactions: Iterator[int],
        other_master: Callable[[Frame, bool, str], None],
    ) -> None:
        """``other_master`` is called with the request of another master, whether the unit is to respond to us, too,
        and a description."""
        self._other_master = other_master
        self._rtu = RtuFramer()
        super().__init__(self._rtu, late, transactions)
        self._silence = silence
        self._received_at = 0.0  # loop's s
        self._due: Read | None = None  # waits for silence
        self._timer: asyncio.TimerHandle | None = None

    def buffer_updated(self, nbytes: int) -> None:
        """Receive bytes; those that are no response end with the next silence."""
        self._received_at = self._loop.time()
        super().buffer_updated(nbytes)
        if self._rtu.unfinished:
            self._await_silence()

    async def exchange(
        self, read: Read, time_out: float, follow: Callable[[bytes], Read | None], any_transaction: bool = False
    ) -> None:
        """Exchange a request and its response. RequestTimeout names the bytes that arrived instead of a response."""
        try:
            await super().exchange(read, time_out, follow, any_transaction)
        except RequestTimeout as error:
            noise = "the line is never silent" if self._due is not None else self._rtu.unreadable
            if noise:
                raise RequestTimeout(f"{error}: {noise}", unreadable=True) from None
            raise
        finally:
            self._due = None
            self._rtu.abandon()
            if self._rtu.unfinished:
                self._await_silence()

    def _send(self, read: Read) -> None:
        assert self._watchdog is not None
        self._watchdog.reset()
        self._due = read
        self._await_silence()

    def _await_silence(self) -> None:
        """Continue once the line is silent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        silence = self._silence + (_ADAPTER_DELAY if self._rtu.unfinished else 0.0)
        left = self._received_at + silence - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._await_silence)
            return
        for frame in list(self._rtu.silent()):
            if frame.transaction == OTHER_MASTER:
                self._handle_other_master(frame)
            else:
                self._handle(frame)
        if self._due is not None:
            read, self._due = self._due, None
            super()._send(read)

    def _handle_other_master(self, frame: Frame) -> None:
        """Handle a request of another master: its response must not be taken for ours, nor may we send before it."""
        is_ours_pending = self._due is None and self._follow is not None and frame.unit_id == self._expected[1]
        self._other_master(frame, is_ours_pending, self._rtu.unreadable)
        if self._due is not None:
            if frame.unit_id == self._due.unit_id:
                self._due = None
                self._finish(UnitTaken(self._rtu.unreadable))
        elif is_ours_pending and not self._rtu.expects:
            self._finish(RequestTimeout(f"no response: {self._rtu.unreadable}", unreadable=True))

    def close(self) -> None:
        """Abort the connection."""
        if self._timer is not None:
            self._timer.cancel()
        super().close()
