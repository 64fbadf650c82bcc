"""Traffic of a registration of many channels, and of a process that reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from core.registry import Registry
from ops.registration.register import register
from tests.database import Database
from tests.integration.ops.test_register import plant, state_in

_CHANNELS = 2000
_NAME = 200  # bytes


@dataclass
class _Wire:
    """Connection that counts the bytes it carries."""

    dsn: str
    sent: int = 0
    received: int = 0


@asynccontextmanager
async def _counted(dsn: str) -> AsyncIterator[_Wire]:
    """The same database over a wire that counts."""
    server = urlsplit(dsn)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, field: str) -> None:
        while data := await reader.read(65_536):
            setattr(wire, field, getattr(wire, field) + len(data))
            writer.write(data)
            await writer.drain()
        writer.close()

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(server.hostname, server.port)
        await asyncio.gather(pump(reader, back, "sent"), pump(there, writer, "received"))

    listening = await asyncio.start_server(joined, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    wire = _Wire(dsn.replace(f":{server.port}/", f":{port}/"))
    yield wire
    listening.close()
    await listening.wait_closed()


async def test_channels_are_sent_once_and_only_ids_come_back(database: Database, tmp_path: Path) -> None:
    state = state_in(tmp_path)
    names = [f"{n:04}".rjust(_NAME, "x") for n in range(_CHANNELS)]
    described = plant(tmp_path / "p", "".join(f"{name},holding:{n},,,,,,,,\n" for n, name in enumerate(names)))
    for _ in range(2):  # new, and known already
        async with _counted(database.owner_dsn) as wire:
            registered = await register(described, wire.dsn, state)
        assert _CHANNELS * _NAME < wire.sent < 2 * _CHANNELS * _NAME
        assert wire.received < _CHANNELS * _NAME / 4
    assert list(registered.difference.lines()) == []
    assert list(registered.registry.channels["plc"]) == names


async def test_a_process_reads_the_ids_of_its_own_sources_alone(tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    Registry({"ours": 1, "theirs": 2}, {"ours": {"a": 3}, "theirs": {"b": 4}}, {"theirs": {"made": 5}}).save(path)
    head, ours, _ = path.read_text().splitlines()
    path.write_text("\n".join((head, ours, "what is not read need not be JSON")))
    assert Registry.load(path, {"ours"}).channels == {"ours": {"a": 3}}
    assert list(Registry.load(path, ()).pairs()) == [("made", 5)]
