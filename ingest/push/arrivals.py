"""Arrival times of lines that have no time, such that a retry gets those of the first attempt.

Nothing in HTTP tells a retry from a device that sends ``level value=20`` twice because the level is 20 twice. So a
body is a retry of an equal one only as long as its sender may not have the answer: the answer was not sent, or its
bytes were not acknowledged (TCP). What is remembered is on disk with the samples, for the case that the process is
killed between both.
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

from ingest import metrics
from ingest.appender import Appender, Notes
from ingest.clock import ArrivalClock, Look, Step, machine
from ingest.errors import SpoolError

_REMEMBERED = 1024  # bodies of a source
_SECONDS = 3600.0
_ACKNOWLEDGED_SECONDS = 10.0


@dataclass(slots=True)
class _Body:
    arrival: int  # µs
    seen: float  # time.monotonic(), of the last attempt


class Arrivals:
    """The bodies of one source whose senders may not have the answer."""

    def __init__(
        self, source: str, source_id: int, spool: Appender, skew_limit: float = 5.0, look: Look = machine
    ) -> None:
        self._source = source
        self._spool = spool
        self._prefix = f"push:{source_id}:body:"
        self._note = f"push:{source_id}:arrived"  # µs, the last time that a line was given
        self._clock = ArrivalClock(skew_limit, int(spool.notes.get(self._note, 0)), look)
        now = time.monotonic()
        self._bodies: OrderedDict[str, _Body] = OrderedDict(
            (name, _Body(arrival, now))
            for arrival, name in sorted((int(v), n) for n, v in spool.notes.items() if n.startswith(self._prefix))
        )
        self._gone: set[str] = set()  # notes that are to be removed
        self._tidying: asyncio.Task[None] | None = None

    def note_of(self, body: bytes) -> str:
        """What a body is known by."""
        return self._prefix + hashlib.blake2b(body, digest_size=16).hexdigest()

    def configure(self, skew_limit: float) -> None:
        """Another limit (s) beyond which our clock was set."""
        self._clock.allow(skew_limit)

    def now(self) -> int:
        """µs, after the times of all bodies so far and before those of all that come."""
        return self._clock.now()

    def follow(self) -> Step | None:
        """How our clock was set since the last call, where it was. To be asked before :meth:`time_of`."""
        return self._clock.follow()

    def first(self, note: str) -> int | None:
        """When a body first came (µs); None: it is no retry."""
        body = self._bodies.get(note)
        return None if body is None else body.arrival

    def time_of(self, note: str, lines: int) -> tuple[int, Notes]:
        """When a body with so many lines without a time first came (µs), and the notes to store with it."""
        self._forget_old()
        body = self._bodies.get(note)
        if body is not None:
            metrics.push_retries.labels(source=self._source).inc()
            body.seen = time.monotonic()
            self._bodies.move_to_end(note)
        else:
            body = self._bodies[note] = _Body(self._clock.now(lines), time.monotonic())
        self._gone.discard(note)
        return body.arrival, {note: str(body.arrival), self._note: str(self._clock.last)}

    def forget(self, note: str) -> None:
        """The sender has the answer: an equal body is a new one."""
        if self._bodies.pop(note, None) is None:
            return
        self._gone.add(note)
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.create_task(self._tidy())

    async def close(self) -> None:
        """Return when what was forgotten is off the disk."""
        if self._tidying is not None:
            await self._tidying

    async def _tidy(self) -> None:
        while self._gone:
            gone, self._gone = self._gone, set()
            try:
                await self._spool.note(dict.fromkeys(gone))
            except SpoolError:  # the disk refuses: with the next one
                self._gone |= gone - self._bodies.keys()
                return

    def _forget_old(self) -> None:
        limit = time.monotonic() - _SECONDS
        while self._bodies:
            note, body = next(iter(self._bodies.items()))
            if body.seen > limit and len(self._bodies) < _REMEMBERED:
                return
            self.forget(note)


async def acknowledged(transport: asyncio.BaseTransport | None) -> bool:
    """Whether the other side's TCP says, within a while, that it has all that was sent."""
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
