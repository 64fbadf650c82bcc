"""A Modbus TCP server whose every byte the test decides."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import get_args

from core.config.sources import NUMBERS, WordOrder

# (request frame, its number) → [(delay s or what is waited for, bytes)]
Answer = Callable[[bytes, int], Sequence[tuple[float | asyncio.Event, bytes]]]
CLOSE = b""  # among the bytes to answer with
TYPES = tuple(name for name in NUMBERS if name != "bool")
ORDERS = get_args(WordOrder)


def bits_of(kind: str) -> int:
    """Size of a number, as its type's name says it: 48 of uint48."""
    return int(kind.lstrip("abcdefghijklmnopqrstuvwxyz"))


def encoded(kind: str, value: float) -> bytes:
    """The bytes of ``value``, the most significant one first."""
    if kind.startswith("float"):
        return struct.pack({32: ">f", 64: ">d"}[bits_of(kind)], value)
    return int(value).to_bytes(bits_of(kind) // 8, signed=kind.startswith("int"))


def decoded(kind: str, image: bytes) -> float:
    """The inverse of :func:`encoded`."""
    if kind.startswith("float"):
        return float(struct.unpack({32: ">f", 64: ">d"}[bits_of(kind)], image)[0])
    return float(int.from_bytes(image, signed=kind.startswith("int")))


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


def requested(frame: bytes) -> tuple[int, range]:
    """Function and registers of a request."""
    function, start, count = struct.unpack(">BHH", frame[7:12])
    return function, range(start, start + count)


def response(frame: bytes, pdu: bytes) -> bytes:
    """``pdu`` as the answer to ``frame``."""
    return frame[:4] + struct.pack(">HB", len(pdu) + 1, frame[6]) + pdu


def good_response(frame: bytes, value: int) -> bytes:
    """Every register has ``value``."""
    function, registers = requested(frame)
    words = struct.pack(">H", value) * len(registers)
    return response(frame, bytes((function, len(words))) + words)


def exception_response(frame: bytes, code: int) -> bytes:
    """An exception."""
    return response(frame, bytes((frame[7] | 0x80, code)))
