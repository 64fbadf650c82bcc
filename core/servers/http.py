"""HTTP server of all plantlog processes, with limits on connections and on the time of a request.

A request that is not complete in time closes its connection; a TLS handshake counts as a part of its header. If there
are too many connections, from one address or in total, the one that has been incomplete for the longest time is
evicted: a client that sends its request at once is served, however many others never do.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

from aiohttp import web

from core import metrics
from core.addresses import is_loopback, port_advice
from core.errors import OperationError
from core.servers.server_tls import ServerTls
from core.tls import reason

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_MAX_CONNECTIONS = 400  # connections of a server
_MAX_PER_ADDRESS = 100  # of them, of one address
_HEADER_SECONDS = 10.0  # from its first byte, or the connection's beginning, until a request's header is there
_GOODBYE_SECONDS = 5.0  # for a client to answer the end of TLS
_BODY_SECONDS = 60.0  # from there until its body is there
_WRITE_SECONDS = 60.0  # that a client may take to read a response
_IDLE_SECONDS = 75.0  # between two requests
_CHECK_SECONDS = 1.0
_BACKLOG = 128

_HEADER, _IDLE, _BODY = range(3)  # what a connection waits for, in the order of eviction
_MAX_SECONDS = {_HEADER: _HEADER_SECONDS, _BODY: _BODY_SECONDS}  # aiohttp itself closes those that are idle


@asynccontextmanager
async def serve(
    app: web.Application, host: str, port: int, tls: ServerTls | None = None, **options: Any
) -> AsyncIterator[int]:
    """Serve on ``host:port`` while the block runs; yields the port. ``options`` are passed to aiohttp's AppRunner.

    ``tls``: for HTTPS. Raises OperationError where the port is taken.
    """
    limiter = _ConnectionLimiter(tls)
    app.middlewares.insert(0, limiter.track)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=_IDLE_SECONDS, **options)
    await runner.setup()
    assert runner.server is not None
    inner = runner.server
    loop = asyncio.get_running_loop()
    closing = loop.create_task(limiter.close_late())
    try:
        try:
            listening = await loop.create_server(
                lambda: _Connection(inner(), limiter), host or None, port, backlog=_BACKLOG
            )
        except OSError as error:
            cause = str(error.strerror).rpartition(": ")[2]  # asyncio repeats the address before it
            raise OperationError(f"cannot listen on port {port} of {host}: {cause}{port_advice(port)}") from error
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            listening.close()
    finally:
        closing.cancel()
        await runner.cleanup()
        limiter.close_all()


def check_host(host: str) -> Callable[..., Any]:
    """Middleware that accepts only an IP address, a loopback name, ``host`` or this machine's name as Host header.

    Another name may be part of a DNS rebinding attack through a browser in the plant.
    """
    names = {host.lower(), socket.gethostname().lower()}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if (name := host_of(request)) not in names and not _is_address(name) and not is_loopback(name):
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
    """Return whether the request comes from another site. Links are allowed; scripts, frames and forms are not."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    navigates = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET"
    return site not in ("none", "same-origin") and not navigates


class _ConnectionLimiter:
    """The connections of one server."""

    def __init__(self, tls: ServerTls | None) -> None:
        self.tls = tls
        self._open: dict[Any, _Connection] = {}  # by transport

    def admit(self, connection: _Connection) -> bool:
        """Admit a connection; False: the limit is reached, and all others are being answered."""
        candidates = [other for other in self._open.values() if other.address == connection.address]
        if len(candidates) < _MAX_PER_ADDRESS:
            candidates = [*self._open.values()] if len(self._open) >= _MAX_CONNECTIONS else []
        waiting = [(rank, other.since, other) for other in candidates if (rank := other.eviction_rank()) is not None]
        if waiting:
            _, _, evicted = min(waiting, key=lambda candidate: candidate[:2])
            self._close(evicted, "room")
        elif candidates:
            metrics.http_closed.labels(reason="full").inc()
            return False
        self.add(connection)
        return True

    def add(self, connection: _Connection) -> None:
        """Add a connection that has a transport."""
        self._open[connection.transport] = connection

    def remove(self, connection: _Connection) -> None:
        """Remove a connection that has ended."""
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
        """Close connections that are too slow, and look for a new certificate, until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            if self.tls is not None:
                self.tls.refresh()
            now = time.monotonic()
            for connection in [connection for connection in self._open.values() if connection.is_late(now)]:
                self._close(connection, "late")

    def close_all(self) -> None:
        """Close all connections: the server ends."""
        for connection in [*self._open.values()]:
            connection.transport.abort()

    def _close(self, connection: _Connection, cause: str) -> None:
        metrics.http_closed.labels(reason=cause).inc()
        self.remove(connection)
        connection.transport.abort()


class _Connection(asyncio.Protocol):
    """A connection with its state, and the time since it has been in it. aiohttp's protocol does everything else.

    TLS begins here, and not in ``create_server``, which would tell of a connection only after its handshake.
    """

    transport: asyncio.Transport  # that of TLS after the handshake

    def __init__(self, inner: asyncio.Protocol, limiter: _ConnectionLimiter) -> None:
        self._inner = inner
        self._limiter = limiter
        self._request: web.Request | None = None  # that is being answered
        self._in_header = True  # a header is coming
        self._blocked_since: float | None = None  # since the client reads no more of a response
        self._open = False  # for aiohttp: after the handshake
        self._early: list[bytes] = []  # data that came with the end of the handshake
        self._handshake: asyncio.Task[None] | None = None
        self.since = time.monotonic()
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = client_network(peer[0]) if peer else ""
        if not self._limiter.admit(self):
            transport.abort()
        elif self._limiter.tls is None:
            self._begin()
        else:
            transport.pause_reading()  # until TLS takes over
            self._handshake = asyncio.get_running_loop().create_task(self._secure(self._limiter.tls.context))

    def _begin(self) -> None:
        self._open = True
        self._inner.connection_made(self.transport)

    async def _secure(self, context: ssl.SSLContext) -> None:
        """Begin with TLS; its time limit is that of the header."""
        try:
            secured: asyncio.Transport | None = await asyncio.get_running_loop().start_tls(
                self.transport, self, context, server_side=True, ssl_shutdown_timeout=_GOODBYE_SECONDS
            )
        except OSError as error:
            self._limiter.remove(self)
            self._note(error)
            return
        self._limiter.remove(self)
        if secured is None or secured.is_closing():  # lost meanwhile
            return
        self.transport = secured
        self._limiter.add(self)
        self._begin()
        for data in self._early:
            self.data_received(data)
        self._early.clear()

    def _note(self, error: Exception | None) -> None:
        """Log why the TLS handshake with a client failed, on either side."""
        if isinstance(error, ssl.SSLError):
            metrics.http_closed.labels(reason="tls").inc()
            log.warning("TLS with %s failed: %s", self.address, reason(error))

    def data_received(self, data: bytes) -> None:
        if not self._open:
            self._early.append(data)
            return
        if self._request is None and not self._in_header:
            self._in_header, self.since = True, time.monotonic()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._open else None

    def pause_writing(self) -> None:
        self._blocked_since = time.monotonic()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._blocked_since = None
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._limiter.remove(self)
        self._note(error)
        if self._open:
            self._inner.connection_lost(error)

    def begin(self, request: web.Request) -> None:
        """Begin a request, whose header is there."""
        self._request, self._in_header, self.since = request, False, time.monotonic()

    def end(self) -> None:
        """End a request that was answered; the rest of its body must end as a header must."""
        self._in_header = self._request is not None and not self._request.content.is_eof()
        self._request, self.since = None, time.monotonic()

    def eviction_rank(self) -> int | None:
        """Eviction order; None: not evictable, it is being answered."""
        if self._request is None:
            return _HEADER if self._in_header else _IDLE
        return None if self._request.content.is_eof() else _BODY

    def is_late(self, now: float) -> bool:
        """Return whether it has exceeded the time limit of its state."""
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
