"""Publish responses that overtake each other, while the server has forgotten what it sent first."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from asyncua import ua
from asyncua.common.utils import ServiceError

from core.errors import DecodeError
from ingest.opcua.decode.message import publish_response
from ingest.status import SourceStatus
from tests.integration.ingest.test_opcua_collector import collecting
from tests.integration.ingest.test_opcua_recovery import OPTIONS, OURS, Server, lasting, serving, values
from tests.memory_appender import MemoryAppender
from tests.ports import free_port
from tests.waiting import until

_HEADER = 24  # bytes before the body of a message without security (OPC 10000-6, 6.7.2)


class Reordering:
    """A relay that holds the next publish response with data until it is told to release it behind later ones."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.holds = False
        self.held: bytes | None = None
        self._number = 0  # of the last chunk to the client
        self._client: asyncio.StreamWriter

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._client = writer
        upstream, server = await asyncio.open_connection("127.0.0.1", self._port)
        requests = asyncio.create_task(self._forward(reader, server))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await upstream.readexactly(8)
                chunk = head + await upstream.readexactly(struct.unpack_from("<I", head, 4)[0] - 8)
                if self.holds and _has_data(chunk):
                    self.holds, self.held = False, chunk
                else:
                    self._send(chunk)
        requests.cancel()
        server.close()
        writer.close()

    async def _forward(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            server.write(data)
        server.close()

    def _send(self, chunk: bytes) -> None:
        """Chunks are numbered in the order in which they are sent."""
        if chunk[:3] == b"MSG":
            self._number += 1
            chunk = chunk[:16] + struct.pack("<I", self._number) + chunk[20:]
        elif chunk[:3] == b"OPN":
            self._number = struct.unpack_from("<I", chunk, 12 + 3 * 4 + _POLICY_BYTES)[0]
        self._client.write(chunk)

    def release(self) -> None:
        assert self.held is not None
        self._send(self.held)
        self.held = None


_POLICY_BYTES = len("http://opcfoundation.org/UA/SecurityPolicy#None")  # beside three lengths, in the header of OPN


def _has_data(chunk: bytes) -> bool:
    try:
        return bool(publish_response(chunk[_HEADER:]).notification.data_changes)
    except DecodeError:
        return False


@asynccontextmanager
async def reordering(
    folder: Path, **options: float
) -> AsyncIterator[tuple[Server, Reordering, MemoryAppender, SourceStatus]]:
    """A server that republishes nothing, behind a relay, and a collector that has its first values."""
    async with serving(folder, history=0) as server:
        relay, port = Reordering(int(server.address.rpartition(":")[2].strip("/"))), free_port()

        def forgotten(_: Any) -> Any:
            raise ServiceError(ua.StatusCodes.BadMessageNotAvailable)

        server.server._subscriptions.republish = forgotten  # type: ignore[method-assign, assignment]
        address = f"opc.tcp://127.0.0.1:{port}/"
        async with (
            await asyncio.start_server(relay.serve, "127.0.0.1", port),
            collecting(address, OURS, folder / "pki", **{**OPTIONS, **options}) as (spool, status),
        ):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await spool.until(lambda: values(spool) == server.written)
            yield server, relay, spool, status


async def hold_one(server: Server, relay: Reordering) -> None:
    """Write until a message with values is held, and later ones are not."""
    relay.holds = True
    while relay.held is None:
        await server.write(5)


async def test_message_that_is_late_is_no_gap(tmp_path: Path) -> None:
    """Its request is under way when the next message comes."""
    async with reordering(tmp_path, time_out=60.0) as (server, relay, spool, status):
        await hold_one(server, relay)
        await server.write(20)
        relay.release()
        await server.write(5)
        await spool.until(lambda: values(spool) == server.written)
        assert (status.missed, status.reconnects, lasting(spool)) == (0, 0, [])
        assert not [gap for gap in spool.gaps() if gap.reason == "not_available"]


async def test_gap_of_a_message_that_comes_after_all_is_withdrawn(tmp_path: Path) -> None:
    async with reordering(tmp_path, time_out=0.5, keep_alive=5.0) as (server, relay, spool, status):
        await hold_one(server, relay)
        await server.write(10)
        await spool.until(lambda: "not_available" in lasting(spool))
        relay.release()
        await server.write(5)
        await spool.until(lambda: values(spool) == server.written)
        await until(lambda: lasting(spool) == [])
        assert (status.missed, status.reconnects) == (1, 0)
