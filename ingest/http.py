"""HTTP server of all plantlog processes, with limits on connections and on the time of a request.

A request that is not complete in time closes its connection. If there are too many connections, from one address
or in total, the one that has been incomplete for the longest time is evicted: a client that sends its request at once
is served, however many others never do.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

from aiohttp import web

from ingest import metrics
from ingest.addresses import is_loopback

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_MAX_CONNECTIONS = 400  # connections of a server
_MAX_PER_ADDRESS = 100  # of them, of one address
_HEADER_SECONDS = 10.0  # from its first byte, or the connection's beginning, until a request's header is there
_BODY_SECONDS = 60.0  # from there until its body is there
_WRITE_SECONDS = 60.0  # for which a client may leave an answer lying
_IDLE_SECONDS = 75.0  # between two requests
_CHECK_SECONDS = 1.0
_BACKLOG = 128

_HEADER, _IDLE, _BODY = range(3)  # what a connection waits for, in the order in which they make room
_MAX_SECONDS = {_HEADER: _HEADER_SECONDS, _BODY: _BODY_SECONDS}  # aiohttp itself closes those that are idle


@asynccontextmanager
async def serve(app: web.Application, host: str, port: int, **options: Any) -> AsyncIterator[int]:
    """Serve on ``host:port`` while the block runs; yields the port. ``options`` are passed to aiohttp's AppRunner.

    Raises OSError where the port is taken.
    """
    limiter = _ConnectionLimiter()
    app.middlewares.insert(0, limiter.track)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=_IDLE_SECONDS, **options)
    await runner.setup()
    assert runner.server is not None
    inner = runner.server
    loop = asyncio.get_running_loop()
    closing = loop.create_task(limiter.close_late())
    try:
        listening = await loop.create_server(
            lambda: _Connection(inner(), limiter), host or None, port, backlog=_BACKLOG
        )
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            listening.close()
    finally:
        closing.cancel()
        await runner.cleanup()


def check_host(host: str) -> Callable[..., Any]:
    """Middleware that accepts only an IP address, a loopback name, ``host`` or this machine's name as Host header.

    Another name may be part of a DNS rebinding attack through a browser in the plant.
    """
    ours = {host.lower(), socket.gethostname().lower()}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if (name := host_of(request)) not in ours and not _is_address(name) and not is_loopback(name):
            return web.json_response({"error": f"unknown host name {name!r}: use the server's address"}, status=403)
        if is_cross_site(request):
            return web.json_response({"error": "cross-site request refused"}, status=403)
        return await handler(request)

    return check


def host_of(request: web.Request) -> str:
    """Host name or address of the request, without port."""
    host = request.host.lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def is_cross_site(request: web.Request) -> bool:
    """Whether the request comes from another site. Links are allowed; scripts, frames and forms are not."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    navigates = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET"
    return site not in ("none", "same-origin") and not navigates


class _ConnectionLimiter:
    """The connections of one server."""

    def __init__(self) -> None:
        self._open: dict[Any, _Connection] = {}  # by transport

    def admit(self, connection: _Connection) -> bool:
        """Admit a connection; False: the limit is reached, and all others are being answered."""
        same = [other for other in self._open.values() if other.address == connection.address]
        full = (
            same
            if len(same) >= _MAX_PER_ADDRESS
            else [*self._open.values()]
            if len(self._open) >= _MAX_CONNECTIONS
            else []
        )
        waiting = [(rank, other.since, other) for other in full if (rank := other.eviction_rank()) is not None]
        if waiting:
            _, _, last = min(waiting, key=lambda one: one[:2])
            self._close(last, "room")
        elif full:
            metrics.http_closed.labels(reason="full").inc()
            return False
        self._open[connection.transport] = connection
        return True

    def remove(self, connection: _Connection) -> None:
        """It has ended."""
        self._open.pop(connection.transport, None)

    @web.middleware
    async def track(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Middleware that links a request to its connection."""
        connection = self._open.get(request.transport)
        if connection is None:  # closed meanwhile
            return await handler(request)
        connection.begin(request)
        try:
            return await handler(request)
        finally:
            connection.end()

    async def close_late(self) -> None:
        """Close connections that are too slow, until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = time.monotonic()
            for connection in [one for one in self._open.values() if one.late(now)]:
                self._close(connection, "late")

    def _close(self, connection: _Connection, why: str) -> None:
        metrics.http_closed.labels(reason=why).inc()
        self.remove(connection)
        connection.transport.abort()


class _Connection(asyncio.Protocol):
    """One connection: what it waits for, and since when. Everything else is done by aiohttp's protocol."""

    transport: asyncio.Transport

    def __init__(self, inner: asyncio.Protocol, limiter: _ConnectionLimiter) -> None:
        self._inner = inner
        self._limiter = limiter
        self._request: web.Request | None = None  # that is being answered
        self._in_header = True  # a header is coming
        self._blocked_since: float | None = None  # since when an answer is not taken
        self._admitted = False
        self.since = time.monotonic()
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = client_network(peer[0]) if peer else ""
        self._admitted = self._limiter.admit(self)
        if self._admitted:
            self._inner.connection_made(transport)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._request is None and not self._in_header:
            self._in_header, self.since = True, time.monotonic()
        if self._admitted:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._admitted else None

    def pause_writing(self) -> None:
        self._blocked_since = time.monotonic()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._blocked_since = None
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._limiter.remove(self)
        if self._admitted:
            self._inner.connection_lost(error)

    def begin(self, request: web.Request) -> None:
        """A request's header is there."""
        self._request, self._in_header, self.since = request, False, time.monotonic()

    def end(self) -> None:
        """It was answered; what is left of its body is of no interest, and must end as a header must."""
        self._in_header = self._request is not None and not self._request.content.is_eof()
        self._request, self.since = None, time.monotonic()

    def eviction_rank(self) -> int | None:
        """Eviction order; None: not evictable, it is being answered."""
        if self._request is None:
            return _HEADER if self._in_header else _IDLE
        return None if self._request.content.is_eof() else _BODY

    def late(self, now: float) -> bool:
        """Whether it exceeded the time limit of its state."""
        if self._blocked_since is not None and now - self._blocked_since > _WRITE_SECONDS:
            return True
        rank = self.eviction_rank()
        return rank in _MAX_SECONDS and now - self.since > _MAX_SECONDS[rank]


def client_network(address: str) -> str:
    """The address for per-client limits: for IPv6 the /64 network."""
    with suppress(ValueError):
        ip = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(ip, ipaddress.IPv6Address):
            return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))
    return address


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
