"""Reading a request's body: no more of it than is allowed, however small it was packed."""

from __future__ import annotations

import asyncio
import zlib

from aiohttp import web

_SECONDS = 30.0  # for all of a body
_MEMBERS = 100  # of a gzip file; each costs time even if it is empty
_GZIP = 16 + zlib.MAX_WBITS


class Refused(Exception):  # noqa: N818  (an answer, not a fault)
    """A body is not taken; ``status`` is HTTP's word for why, ``after`` says in how many seconds it would be."""

    def __init__(self, status: int, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.after = after


async def read(request: web.Request, max_bytes: int) -> bytes:
    """The body, inflated. Raises Refused."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise Refused(415, f"content encoding {encoding!r}; legal: gzip, identity")
    if request.content_length is not None and request.content_length > max_bytes:
        raise _too_large(max_bytes)
    inflate = Inflate(max_bytes) if encoding == "gzip" else None
    parts: list[bytes] = []
    size = received = 0
    try:
        async with asyncio.timeout(_SECONDS):
            async for chunk in request.content.iter_any():
                received += len(chunk)
                part = chunk if inflate is None else inflate.feed(chunk)
                size += len(part)
                if max(size, received) > max_bytes:
                    raise _too_large(max_bytes)
                parts.append(part)
    except TimeoutError:
        raise Refused(408, f"the body did not come within {_SECONDS:g} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise Refused(400, f"the body broke off: {error}") from error
    if inflate is not None:
        inflate.finish()
    return b"".join(parts)


def _too_large(max_bytes: int) -> Refused:
    return Refused(413, f"the body is larger than max_body, which is {max_bytes} bytes (inflated)")


class Inflate:
    """gzip (RFC 1952), bounded: never holds more than a piece of ``max_bytes`` + 1."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._members = 1
        self._member = zlib.decompressobj(_GZIP)

    def feed(self, packed: bytes) -> bytes:
        """What ``packed`` inflates to. Raises Refused beyond ``max_bytes`` in all, and where it is not gzip."""
        parts: list[bytes] = []
        while packed:
            if self._member.eof:
                self._members += 1
                if self._members > _MEMBERS:
                    raise Refused(400, f"more than {_MEMBERS} gzip members")
                self._member = zlib.decompressobj(_GZIP)
            try:
                part = self._member.decompress(packed, self._max_bytes - self._size + 1)
            except zlib.error as error:
                raise Refused(400, f"not gzip: {error}") from error
            parts.append(part)
            self._size += len(part)
            if self._size > self._max_bytes:
                raise _too_large(self._max_bytes)
            packed = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return b"".join(parts)

    def finish(self) -> None:
        """Raises Refused where the end is missing."""
        if not self._member.eof:
            raise Refused(400, "the gzip file ends too early")
