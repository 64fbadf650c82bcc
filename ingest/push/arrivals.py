"""Arrival times for lines without a timestamp: a retry gets the times of the first attempt.

HTTP cannot distinguish a retry from a device that sends ``level value=20`` twice because the level is 20 twice. So a
body is a retry of an equal one only while its sender may not have the response: the response was not sent, or its
bytes were not acknowledged (TCP). This state is stored with the samples, so that a killed process does not lose it.

A gateway with a buffer, such as Telegraf, sends these lines again with newer ones after them. So if a body begins with
such an unanswered body, that part is a retry, and the rest is a body of its own.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import struct
import termios
import time
from collections import OrderedDict
from dataclasses import dataclass

from core import metrics
from core.clock import ArrivalClock, ClockStep, ReadClocks, machine_clocks
from core.errors import SpoolError
from ingest.appender import Appender, Notes
from ingest.notes import Note
from ingest.push.line_protocol import Precision

_MAX_BODIES = 1024  # kept for a source
_MAX_AGE = 3600.0  # s, of a body that is kept
_ACKNOWLEDGED_SECONDS = 10.0


@dataclass(slots=True)
class _SeenBody:
    arrival: int  # µs
    size: int  # bytes
    seen: float  # time.monotonic(), of the last attempt

    @classmethod
    def from_note(cls, text: str, seen: float) -> _SeenBody:
        """Parse a note: arrival and size, or the arrival alone."""
        arrival, *size = map(int, text.split())
        return cls(arrival, sum(size), seen)

    def __str__(self) -> str:
        return f"{self.arrival} {self.size}"


class Arrivals:
    """Bodies of one source whose senders may not have received the response."""

    def __init__(
        self,
        source: str,
        source_id: int,
        spool: Appender,
        skew_limit: float = 5.0,
        read_clocks: ReadClocks = machine_clocks,
    ) -> None:
        self._source = source
        self._spool = spool
        self._prefix = f"push:{source_id}:body:"
        self._note = Note.PUSH.of(source_id, "arrived")  # µs, the last arrival time that was assigned
        self._clock = ArrivalClock(skew_limit, int(spool.notes.get(self._note, 0)), read_clocks)
        now = time.monotonic()
        self._bodies: OrderedDict[str, _SeenBody] = OrderedDict(
            (name, body)
            for name, body in sorted(
                ((n, _SeenBody.from_note(v, now)) for n, v in spool.notes.items() if n.startswith(self._prefix)),
                key=lambda item: item[1].arrival,
            )
        )
        self._to_remove: set[str] = set()  # notes of forgotten bodies
        self._cleanup: asyncio.Task[None] | None = None

    def note_name(self, body: bytes, precision: Precision = "ns") -> str:
        """The name of a body's note."""
        hashed = _hash(precision)
        hashed.update(body)
        return self._prefix + hashed.hexdigest()

    def beginning(self, body: bytes, precision: Precision = "ns") -> int:
        """Size of the longest unanswered body that this one begins with; 0: none."""
        longest, end, hashed = 0, 0, _hash(precision)
        for size in sorted({known.size for known in self._bodies.values() if 0 < known.size < len(body)}):
            hashed.update(memoryview(body)[end:size])
            end = size
            if b"\n" in body[size - 1 : size + 1] and self._prefix + hashed.hexdigest() in self._bodies:
                longest = size
        return longest

    def configure(self, skew_limit: float) -> None:
        """Set the limit (s) beyond which a clock difference counts as a step."""
        self._clock.set_limit(skew_limit)

    def now(self) -> int:
        """A time (µs) after those of all bodies so far and before all later ones."""
        return self._clock.now()

    def detect_step(self) -> ClockStep | None:
        """The clock step since the last call; None: none. To be called before :meth:`time_of`."""
        return self._clock.detect_step()

    def first(self, note: str) -> int | None:
        """Arrival (µs) of the first attempt; None: not a retry."""
        body = self._bodies.get(note)
        return None if body is None else body.arrival

    def time_of(self, note: str, lines: int, size: int = 0) -> tuple[int, Notes]:
        """Arrival (µs) of the first attempt of a body with ``lines`` untimed lines, and the notes to store.

        ``size``: of the body in bytes; 0: others do not begin with it.
        """
        self._forget_old()
        body = self._bodies.get(note)
        if body is not None:
            metrics.push_retries.labels(source=self._source).inc()
            body.seen = time.monotonic()
            self._bodies.move_to_end(note)
        else:
            body = self._bodies[note] = _SeenBody(self._clock.now(lines), size, time.monotonic())
        self._to_remove.discard(note)
        return body.arrival, {note: str(body), self._note: str(self._clock.last)}

    def forget(self, note: str) -> None:
        """Forget a body whose sender has the response: an equal one is new from now on."""
        if self._bodies.pop(note, None) is None:
            return
        self._to_remove.add(note)
        if self._cleanup is None or self._cleanup.done():
            self._cleanup = asyncio.create_task(self._clean_up())

    async def close(self) -> None:
        """Wait until obsolete notes are deleted."""
        if self._cleanup is not None:
            await self._cleanup

    async def _clean_up(self) -> None:
        while self._to_remove:
            removed, self._to_remove = self._to_remove, set()
            try:
                await self._spool.note(dict.fromkeys(removed))
            except SpoolError:  # disk error: retried with the next one
                self._to_remove |= removed - self._bodies.keys()
                return

    def _forget_old(self) -> None:
        limit = time.monotonic() - _MAX_AGE
        while self._bodies:
            note, body = next(iter(self._bodies.items()))
            if body.seen > limit and len(self._bodies) < _MAX_BODIES:
                return
            self.forget(note)


def _hash(precision: Precision) -> hashlib.blake2b:
    return hashlib.blake2b(precision.encode() + b"\n", digest_size=16)


async def acknowledged(transport: asyncio.BaseTransport | None) -> bool:
    """Wait until the peer's TCP has acknowledged everything that was sent. False: not within a limited time."""
    wait = 0.001
    deadline = time.monotonic() + _ACKNOWLEDGED_SECONDS
    while transport is not None and not transport.is_closing():
        unsent = transport.get_write_buffer_size() if isinstance(transport, asyncio.WriteTransport) else 0
        if not unsent and not _unacknowledged(transport):
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(wait)
        wait = min(2 * wait, 0.25)
    return False


def _unacknowledged(transport: asyncio.BaseTransport) -> int:
    """Bytes in the socket's send queue (tcp(7), SIOCOUTQ)."""
    size = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    return int(struct.unpack("i", size)[0])
