"""The relay in front of a simulated server."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from simulator.relay import Relay
from tests.ports import free_ports
from tests.waiting import PATIENCE


@pytest.mark.parametrize("reads_while_paused", [False, True])
async def test_what_a_client_sends_at_once_reaches_the_server(
    reads_while_paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``reads_while_paused``: as Python before 3.11.4 does, where a connection is paused as soon as it is made."""

    def add_reader(transport: Any, fd: int, callback: Any, *arguments: Any) -> None:
        if not transport.is_closing():
            transport._loop._add_reader(fd, callback, *arguments)

    if reads_while_paused:
        monkeypatch.setattr("asyncio.selector_events._SelectorTransport._add_reader", add_reader)
    received = asyncio.Queue[bytes]()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.put_nowait(await reader.read())
        writer.close()

    port, relay = free_ports(1), Relay()
    async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        await relay.start(("127.0.0.1", port), server.sockets[0].getsockname())
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"hello")  # before the relay knows of it
            client.shutdown(socket.SHUT_WR)
            assert await asyncio.wait_for(received.get(), PATIENCE) == b"hello"
        await relay.stop()
