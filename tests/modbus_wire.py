"""A Modbus TCP server whose every byte the test decides."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

# (request frame, its number) → [(delay s or what is waited for, bytes)]
Answer = Callable[[bytes, int], Sequence[tuple[float | asyncio.Event, bytes]]]
CLOSE = b""  # among the bytes to answer with
# Of struct, by the type of a tag
FORMATS = {
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}
ORDERS = ("ABCD", "CDAB", "BADC", "DCBA")


@asynccontextmanager
async def misbehaving_device(answer: Answer, port: int = 0) -> AsyncIterator[int]:
    """Answers one request after the other with what ``answer`` says; gives its port."""
    number = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        try:
            while True:
                frame = await reader.readexactly(12)
                number += 1
                for delay, content in answer(frame, number):
                    await (delay.wait() if isinstance(delay, asyncio.Event) else asyncio.sleep(delay))
                    if content == CLOSE:
                        return
                    writer.write(content)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def asked(frame: bytes) -> tuple[int, range]:
    """Function and registers of a request."""
    function, start, count = struct.unpack(">BHH", frame[7:12])
    return function, range(start, start + count)


def response(frame: bytes, pdu: bytes) -> bytes:
    """``pdu`` as the answer to ``frame``."""
    return frame[:4] + struct.pack(">HB", len(pdu) + 1, frame[6]) + pdu


def good_response(frame: bytes, value: int) -> bytes:
    """Every register has ``value``."""
    function, registers = asked(frame)
    words = struct.pack(">H", value) * len(registers)
    return response(frame, bytes((function, len(words))) + words)


def exception_response(frame: bytes, code: int) -> bytes:
    """An exception."""
    return response(frame, bytes((frame[7] | 0x80, code)))
