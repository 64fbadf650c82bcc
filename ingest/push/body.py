"""Request bodies: reading with a limit of their decompressed size, and a queue that processes one at a time."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from aiohttp import web

_SECONDS = 30.0  # for all of a body
_MEMBERS = 100  # of a gzip file; each costs time even if it is empty
_GZIP = 16 + zlib.MAX_WBITS


class BodyRefused(Exception):  # noqa: N818  (a response, not a fault)
    """A body is rejected with the HTTP ``status``; ``retry_after``: seconds until a retry may succeed."""

    def __init__(self, status: int, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after


async def read(request: web.Request, max_bytes: int) -> bytes:
    """The body of a request, decompressed. Raises BodyRefused."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    encoding = "gzip" if encoding == "x-gzip" else encoding  # RFC 9110, 8.4.1.3
    if encoding not in ("identity", "gzip"):
        raise BodyRefused(415, f"content encoding {encoding!r}; legal: gzip, identity")
    if request.content_length is not None and request.content_length > max_bytes:
        raise _too_large(max_bytes)
    gzip = GzipReader(max_bytes) if encoding == "gzip" else None
    parts: list[bytes] = []
    size = received = 0
    try:
        async with asyncio.timeout(_SECONDS):
            async for chunk in request.content.iter_any():
                received += len(chunk)
                part = chunk if gzip is None else gzip.feed(chunk)
                size += len(part)
                if max(size, received) > max_bytes:
                    raise _too_large(max_bytes)
                parts.append(part)
    except TimeoutError:
        raise BodyRefused(408, f"the body was not received within {_SECONDS:g} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise BodyRefused(400, f"the body is incomplete: {error}") from error
    if gzip is not None:
        gzip.finish()
    return b"".join(parts)


def _too_large(max_bytes: int) -> BodyRefused:
    return BodyRefused(413, f"the body is larger than max_body, which is {max_bytes} bytes (inflated)")


class GzipReader:
    """Bounded gzip decompression (RFC 1952): never holds more than ``max_bytes`` + 1."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._members = 1
        self._member = zlib.decompressobj(_GZIP)

    def feed(self, packed: bytes) -> bytes:
        """Decompress a chunk. Raises BodyRefused if the total exceeds ``max_bytes``, or for invalid gzip data."""
        parts: list[bytes] = []
        while packed:
            if self._member.eof:
                self._members += 1
                if self._members > _MEMBERS:
                    raise BodyRefused(400, f"more than {_MEMBERS} gzip members")
                self._member = zlib.decompressobj(_GZIP)
            try:
                part = self._member.decompress(packed, self._max_bytes - self._size + 1)
            except zlib.error as error:
                raise BodyRefused(400, f"not gzip: {error}") from error
            parts.append(part)
            self._size += len(part)
            if self._size > self._max_bytes:
                raise _too_large(self._max_bytes)
            packed = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return b"".join(parts)

    def finish(self) -> None:
        """End the data. Raises BodyRefused if they are truncated."""
        if not self._member.eof:
            raise BodyRefused(400, "the gzip data is truncated")


_MAX_PER_GATEWAY = 8  # bodies of one gateway at once: limits memory
_SLOW_SECONDS = 0.5  # if a body waits longer, each gateway is limited to one
_MAX_WAIT_SECONDS = 2.0  # maximum wait of a body; client timeouts are 5 s (Telegraf) or 10 s (InfluxDB)
_RETRY_AFTER_SECONDS = 1  # Retry-After

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")


class BodyQueue:
    """The bodies of all gateways of a process, in order of arrival.

    Python processes one body at a time, however many threads there are, and each thread delays the event loop, which
    needs the interpreter lock: with six busy threads it responds 20 times per second, rejections included. So there is
    one. If a body is stored after its client has timed out, the client does not know and repeats it: under overload,
    most work would be wasted. So a body that would wait too long is rejected before any work is done.
    """

    def __init__(self) -> None:
        self._next_lock = asyncio.Lock()  # held by the next body to start
        self._work_lock = asyncio.Lock()
        self._waiting_since: dict[object, float] = {}  # time.monotonic() of waiting bodies, in order

    def check_room(self, in_progress: int) -> None:
        """Check that a gateway with ``in_progress`` bodies may send another one. Raises BodyRefused.

        If the queue is slow, each gateway may send one.
        """
        first = next(iter(self._waiting_since.values()), None)
        is_slow = first is not None and time.monotonic() - first > _SLOW_SECONDS
        if in_progress >= (1 if is_slow else _MAX_PER_GATEWAY):
            bodies = "1 body is" if in_progress == 1 else f"{in_progress} bodies are"
            raise BodyRefused(503, f"{bodies} already being processed", _RETRY_AFTER_SECONDS)

    async def run_first(self, work: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """Run the first step for a body in a thread. Raises BodyRefused if it would have to wait too long."""
        body = object()
        self._waiting_since[body] = time.monotonic()
        try:
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                await self._next_lock.acquire()
        except TimeoutError:
            message = f"the server is busy: the body waited for {_MAX_WAIT_SECONDS:g} s"
            raise BodyRefused(503, message, _RETRY_AFTER_SECONDS) from None
        finally:
            del self._waiting_since[body]
        try:
            return await self.run_next(work, *arguments)
        finally:
            self._next_lock.release()

    async def run_next(self, work: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """Run another step for a started body, before any other body except the next one."""
        async with self._work_lock:
            return await asyncio.to_thread(work, *arguments)
