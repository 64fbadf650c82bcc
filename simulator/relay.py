"""TCP relays in front of servers: pass bytes unchanged, until a fault holds them, garbles them or cuts connections.

An OPC UA server keeps its sessions and subscriptions meanwhile, as in a network failure.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

_HOST = "127.0.0.1"


class Relay:
    """Listens for clients and connects each to a server on another port of this machine."""

    def __init__(self) -> None:
        self._ends: set[_End] = set()
        self._server: asyncio.Server | None = None
        self._listen: tuple[str, int] = ("", 0)
        self._to: tuple[str, int] = ("", 0)
        self.silent = False

    async def start(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        """Listen. Raises OSError where the port is taken."""
        self._listen, self._to = listen, to
        await self.accept()

    async def accept(self) -> None:
        """Accept connections, also again after :meth:`refuse`."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: _End(self, None), *self._listen)

    def refuse(self) -> None:
        """Cut every connection and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for end in list(self._ends):
            end.transport.abort()

    def silence(self, silent: bool) -> None:
        """Hold data of both sides, or release it; connections stay open and new ones are accepted."""
        self.silent = silent
        for end in list(self._ends):
            end.update_flow()

    def garble(self) -> None:
        """Send invalid bytes to each client."""
        for end in list(self._ends):
            if end.accepted and not end.transport.is_closing():
                end.transport.write(os.urandom(64))

    async def restore(self) -> None:
        """Pass bytes as if nothing had ever been done to it."""
        self.silence(False)
        await self.accept()

    async def stop(self) -> None:
        """Refuse connections, and wait until all are closed."""
        self.refuse()
        gone = [end.gone.wait() for end in self._ends]
        await asyncio.gather(*gone)

    def add(self, end: _End) -> None:
        """Add a new connection."""
        self._ends.add(end)
        if end.other is None:  # from a client: connect to the server
            end.connecting = asyncio.create_task(self._connect(end))

    def remove(self, end: _End) -> None:
        """Remove a closed connection."""
        self._ends.discard(end)

    async def _connect(self, client: _End) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: _End(self, client), *self._to)
        except OSError:
            client.transport.abort()


class _End(asyncio.Protocol):
    """One end of a relayed connection; ``other`` sends what it receives."""

    transport: asyncio.Transport

    def __init__(self, relay: Relay, other: _End | None) -> None:
        self._relay = relay
        self.other = other
        self.accepted = other is None  # a client's end
        self.connecting: asyncio.Task[None] | None = None
        self.full = False  # the peer reads slower than we write
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.other is not None:
            self.other.other = self
        self._relay.add(self)
        # Python before 3.11.4 begins to read after this call, even where it pauses.
        asyncio.get_running_loop().call_soon(self.update_flow)
        if self.other is not None:
            if self.other.gone.is_set():
                self.transport.abort()
            self.other.update_flow()

    def update_flow(self) -> None:
        """Read from this end only if the other end can send."""
        if self.transport.is_closing():
            return
        if self._relay.silent or self.other is None or self.other.full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        self.full = True
        if self.other is not None:
            self.other.update_flow()

    def resume_writing(self) -> None:
        self.full = False
        if self.other is not None:
            self.other.update_flow()

    def connection_lost(self, error: Exception | None) -> None:
        self._relay.remove(self)
        self.gone.set()
        if self.other is not None:
            self.other.transport.close()


@asynccontextmanager
async def running_relays(
    ports: Mapping[str, tuple[int, int]], hosts: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Relay]]:
    """Relays by name, each from the first port to the second, passing bytes inside the block.

    ``hosts``: addresses that some listen at, in place of 127.0.0.1.
    """
    relays: dict[str, Relay] = {}
    try:
        for name, (listen, to) in ports.items():
            relays[name] = Relay()
            await relays[name].start(((hosts or {}).get(name, _HOST), listen), (_HOST, to))
        yield relays
    finally:
        await asyncio.gather(*(relay.stop() for relay in relays.values()))
