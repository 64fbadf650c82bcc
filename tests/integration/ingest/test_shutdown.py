"""SIGTERM drains in a bounded time, a second one ends at once; what was on disk stays there either way."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from core.batch import SampleBatch
from core.samples import Samples
from core.timestamps import now_us
from ingest.spool.append import Spool
from tests import children
from tests.config_in_force import activate
from tests.peers import listens
from tests.ports import free_ports
from tests.spooling import Spooled
from tests.waiting import PATIENCE, until

BOUND = PATIENCE  # s: a drain has 8; the rest is a slow machine's start


@pytest.fixture
async def black_hole() -> AsyncIterator[int]:
    """A database that takes connections and never says a word; its port."""
    held: list[asyncio.StreamWriter] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for writer in held:
        writer.close()
    await asyncio.sleep(0)


@asynccontextmanager
async def writer_on(state: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """The writer as a process, with one batch in the spool, once it has connected."""
    health = free_ports(4)
    (state / "secrets").mkdir()
    (state / "secrets" / "ingest.dsn").write_text(f"postgresql://nobody:x@127.0.0.1:{port}/none")
    (state / "plant.toml").write_text(
        f'[plant]\nname = "demo"\n[health]\nport = {health}\n[[source]]\nname = "plc"\nkind = "modbus"\n'
        'address = "tcp://127.0.0.1:502"\ntags = "tags.csv"\n'
    )
    (state / "tags.csv").write_text("name,address\na,holding:0\n")
    spool = Spool(state / "spool" / "modbus.sqlite", 1024**2)
    await spool.append(batch())
    await spool.close()
    activate(state, state / "plant.toml")
    async with children.running("ingest", "writer", "--state", state, stderr=asyncio.subprocess.PIPE) as process:
        await until(lambda: listens(health + 2), every=0.05)
        yield process


def batch() -> SampleBatch:
    one = np.ones(1)
    return SampleBatch(1, now_us(), Samples(one.astype(np.int32), np.array([now_us()]), one, np.zeros(1, np.uint32)))


def spooled_batches(state: Path) -> int:
    return Spooled(state / "spool" / "modbus.sqlite").depth()[0]


async def test_impossible_drain_ends_by_itself(tmp_path: Path, black_hole: int) -> None:
    async with writer_on(tmp_path, black_hole) as process:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(BOUND):
            _, output = await process.communicate()
    assert process.returncode == 0
    assert b"stopped before the spools were empty" in output
    assert spooled_batches(tmp_path) == 1


async def test_second_signal_ends_the_drain_at_once(tmp_path: Path, black_hole: int) -> None:
    async with writer_on(tmp_path, black_hole) as process:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(BOUND):
            while b"stopping" not in await read_line(process):
                pass
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(BOUND):
            _, output = await process.communicate()
    assert process.returncode == 1
    assert b"stopped before the spools were empty" not in output, "it drained to the end of its time"
    assert spooled_batches(tmp_path) == 1


async def read_line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stderr is not None
    line = await process.stderr.readline()
    assert line, "it ended before it said that it stops"
    return line
