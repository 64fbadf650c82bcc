"""How every process of plantlog answers HTTP: connections are bounded, and nobody keeps one by saying nothing.

A request that does not come whole in its time ends its connection. Where there are too many connections, of one address
or in all, the one that has waited longest to be worth an answer makes room for the next: who says what he wants at once
is heard, however many there are who never do.
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
from ingest.config.contradictions import is_loopback

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_MOST = 400  # connections of a server
_MOST_OF_ONE = 100  # of them, of one address
_HEADER_SECONDS = 10.0  # from its first byte, or the connection's beginning, until a request's header is there
_BODY_SECONDS = 60.0  # from there until its body is there
_TAKEN_SECONDS = 60.0  # for which a client may leave an answer lying
_IDLE_SECONDS = 75.0  # between two requests
_LOOK_SECONDS = 1.0
_BACKLOG = 128

_HEADER, _IDLE, _BODY = range(3)  # what a connection waits for, in the order in which they make room
_LONGEST = {_HEADER: _HEADER_SECONDS, _BODY: _BODY_SECONDS}  # aiohttp itself closes those that are idle


@asynccontextmanager
async def serve(app: web.Application, host: str, port: int, **options: Any) -> AsyncIterator[int]:
    """Answer on ``host:port`` while the block runs; gives the port. ``options`` are those of aiohttp's AppRunner.

    Raises OSError where the port is taken.
    """
    doors = _Doors()
    app.middlewares.insert(0, doors.answered)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=_IDLE_SECONDS, **options)
    await runner.setup()
    assert runner.server is not None
    inner = runner.server
    loop = asyncio.get_running_loop()
    looking = loop.create_task(doors.look())
    try:
        listening = await loop.create_server(lambda: _Connection(inner(), doors), host or None, port, backlog=_BACKLOG)
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            listening.close()
    finally:
        looking.cancel()
        await runner.cleanup()


def by_name(host: str) -> Callable[..., Any]:
    """A middleware that answers those alone who call this server by an address, a loopback name, ``host``, or ours.

    Any other name may be somebody else's that he let point here (DNS rebinding), to read with a browser of this plant.
    """
    ours = {host.lower(), socket.gethostname().lower()}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if (name := host_of(request)) not in ours and not _is_address(name) and not is_loopback(name):
            return web.json_response({"error": f"no server is called {name!r} here: ask for its address"}, status=403)
        if foreign(request):
            return web.json_response({"error": "asked for by another site"}, status=403)
        return await handler(request)

    return check


def host_of(request: web.Request) -> str:
    """The name or address, without a port, by which the server is asked."""
    host = request.host.lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def foreign(request: web.Request) -> bool:
    """Whether another site's page asks: it may link here, but has no scripts, frames and forms with us."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    navigates = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET"
    return site not in ("none", "same-origin") and not navigates


class _Doors:
    """The connections of one server."""

    def __init__(self) -> None:
        self._open: dict[Any, _Connection] = {}  # by transport

    def enter(self, connection: _Connection) -> bool:
        """Let a connection in; False: all others are being answered, and there is no room."""
        same = [other for other in self._open.values() if other.address == connection.address]
        full = same if len(same) >= _MOST_OF_ONE else [*self._open.values()] if len(self._open) >= _MOST else []
        waiting = [(rank, other.since, other) for other in full if (rank := other.rank()) is not None]
        if waiting:
            _, _, last = min(waiting, key=lambda one: one[:2])
            self._close(last, "room")
        elif full:
            metrics.http_closed.labels(why="full").inc()
            return False
        self._open[connection.transport] = connection
        return True

    def leave(self, connection: _Connection) -> None:
        """It has ended."""
        self._open.pop(connection.transport, None)

    @web.middleware
    async def answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Know which request a connection is about."""
        connection = self._open.get(request.transport)
        if connection is None:  # closed meanwhile
            return await handler(request)
        connection.begin(request)
        try:
            return await handler(request)
        finally:
            connection.end()

    async def look(self) -> None:
        """Close what is too late, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            for connection in [one for one in self._open.values() if one.late(now)]:
                self._close(connection, "late")

    def _close(self, connection: _Connection, why: str) -> None:
        metrics.http_closed.labels(why=why).inc()
        self.leave(connection)
        connection.transport.abort()


class _Connection(asyncio.Protocol):
    """One connection: what it waits for, and since when. aiohttp's own protocol does all else."""

    transport: asyncio.Transport

    def __init__(self, inner: asyncio.Protocol, doors: _Doors) -> None:
        self._inner = inner
        self._doors = doors
        self._request: web.Request | None = None  # that is being answered
        self._heading = True  # a header is coming
        self._left_lying: float | None = None  # since when an answer is not taken
        self._in = False
        self.since = time.monotonic()
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = network(peer[0]) if peer else ""
        self._in = self._doors.enter(self)
        if self._in:
            self._inner.connection_made(transport)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._request is None and not self._heading:
            self._heading, self.since = True, time.monotonic()
        if self._in:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._in else None

    def pause_writing(self) -> None:
        self._left_lying = time.monotonic()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._left_lying = None
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._doors.leave(self)
        if self._in:
            self._inner.connection_lost(error)

    def begin(self, request: web.Request) -> None:
        """A request's header is there."""
        self._request, self._heading, self.since = request, False, time.monotonic()

    def end(self) -> None:
        """It was answered; what is left of its body is of no interest, and must end as a header must."""
        self._heading = self._request is not None and not self._request.content.is_eof()
        self._request, self.since = None, time.monotonic()

    def rank(self) -> int | None:
        """How soon it makes room for another; None: never, it is being answered."""
        if self._request is None:
            return _HEADER if self._heading else _IDLE
        return None if self._request.content.is_eof() else _BODY

    def late(self, now: float) -> bool:
        """Whether it had all the time that there is for what it waits for."""
        if self._left_lying is not None and now - self._left_lying > _TAKEN_SECONDS:
            return True
        rank = self.rank()
        return rank in _LONGEST and now - self.since > _LONGEST[rank]


def network(address: str) -> str:
    """What counts as one address: of IPv6 the 64 bits that a host has for itself."""
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
