"""The writer where the database has two addresses, or its network swallows packets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from core.config.model import WriterOptions
from core.database import connect
from ingest.writer.writer import Writer
from ops.postgres.bootstrap import bootstrap
from ops.postgres.server import Server
from simulator.relay import Relay
from tests.database import PASSWORDS, Database, connected, drop, logins_of
from tests.integration.ingest.test_database_failures import (
    ROWS,
    counted,
    failures,
    own_server,
    registered_channels,
    set_for_writer,
    until_failed,
    until_rows,
    writing,
)
from tests.ports import free_port
from tests.samples import batch
from tests.spooling import Spooled, spooled
from tests.waiting import PATIENCE, until

__all__ = ["own_server", "registered_channels"]  # fixtures


@pytest.mark.slow
@pytest.mark.usefixtures("registered_channels")
async def test_silent_address_fails_over_to_the_other(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """The connection stands, no packet comes through, and nobody says so: the rows take the other address."""
    async with relayed(database.ingest_dsn) as (relay, through):
        direct = urlsplit(database.ingest_dsn).netloc.rpartition("@")[2]
        dsn = through.replace("/test_", f",{direct}/test_") + "?target_session_attrs=read-write"
        await spooled(tmp_path, ROWS)
        options = WriterOptions(connections=1, time_out=5.0)  # also a busy machine writes a batch of these in that time
        async with writing(tmp_path, dsn, options) as writer:
            await until_rows(owner, 1000)
            relay.silence(True)
            many = [
                batch([(c, 1000 + 1000 * i + t, 0.0, 0) for c in range(100) for t in range(1000)]) for i in range(4)
            ]
            await spooled(tmp_path, *many)  # 17 MB: more than the socket's buffers take
            await until_rows(owner, 401_000)
            await until(lambda: writer.database == "connected")
        assert failures("TimeoutError") > 0
    assert await counted(owner, "samples_raw") == 401_000
    assert await counted(owner, "ingest_batch") == 5


@pytest.mark.slow
@pytest.mark.parametrize("others", [[], ["localhost"], ["127.0.0.1"]], ids=["alone", "two names", "named twice"])
async def test_connecting_that_is_cancelled_leaves_no_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch, others: list[str]
) -> None:
    login, _, place = database.owner_dsn.rpartition("@")
    address, _, name = place.partition("/")
    every = [address, *(f"{other}:{address.rpartition(':')[2]}" for other in others)]
    dsn = f"{login}@{','.join(every)}/{name}"
    made: list[asyncpg.Connection] = []
    original = asyncpg.connect

    async def recorded(*arguments: Any, **options: Any) -> asyncpg.Connection:
        made.append(await original(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(asyncpg, "connect", recorded)
    returned = steps = 0
    while not returned:
        made.clear()
        connecting = asyncio.create_task(connect(dsn, "test"))
        while not made:
            await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait((connecting,))
        if not connecting.cancelled():
            returned += 1
            connecting.result().terminate()
        await until(lambda: all(connection.is_closed() for connection in made))
        steps += 1
    assert steps > 1


@pytest.mark.usefixtures("registered_channels")
async def test_silent_connection_that_recovers(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    async with relayed(database.ingest_dsn) as (relay, dsn):
        await spooled(tmp_path, ROWS)
        async with writing(tmp_path, dsn) as writer:
            await until_rows(owner, 1000)
            relay.silence(True)
            await spooled(tmp_path, batch([(1, 500, 1.0, 0)]))
            await until(lambda: writer.database.startswith("unreachable: TimeoutError"))
            relay.silence(False)
            await until_rows(owner, 1001)
    assert await counted(owner, "samples_raw") == 1001


async def test_writer_stops_despite_a_silent_connection(database: Database, tmp_path: Path) -> None:
    async with relayed(database.ingest_dsn) as (relay, dsn):
        await spooled(tmp_path, ROWS)
        relay.silence(True)
        running = asyncio.create_task(Writer(tmp_path, dsn, WriterOptions(connections=2, time_out=300.0)).run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait((running,), timeout=PATIENCE)
        assert running.cancelled()
    assert Spooled(tmp_path / "opcua.sqlite").depth()[1] == 1000


@asynccontextmanager
async def relayed(dsn: str) -> AsyncIterator[tuple[Relay, str]]:
    """A wire in front of the server, and the DSN that goes through it."""
    address = urlsplit(dsn).netloc.rpartition("@")[2]
    host, _, port = address.rpartition(":")
    free, relay = free_port(), Relay()
    await relay.start(("127.0.0.1", free), (host, int(port)))
    try:
        yield relay, dsn.replace(address, f"127.0.0.1:{free}")
    finally:
        await relay.stop()


@pytest.mark.usefixtures("registered_channels")
async def test_fail_over_to_the_second_address(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    async with relayed(database.ingest_dsn) as (relay, through):
        direct = urlsplit(database.ingest_dsn).netloc.rpartition("@")[2]
        dsn = through.replace("/test_", f",{direct}/test_")
        await spooled(tmp_path, ROWS)
        async with writing(tmp_path, dsn):
            await until_rows(owner, 1000)
            relay.refuse()
            await spooled(tmp_path, batch([(1, 500, 1.0, 0)]))
            await until_rows(owner, 1001)


@pytest.mark.parametrize("attributes", ["", "?target_session_attrs=read-write"])
@pytest.mark.usefixtures("registered_channels")
async def test_read_only_primary_is_waited_out(
    database: Database, owner: asyncpg.Connection, tmp_path: Path, attributes: str
) -> None:
    await set_for_writer(owner, "default_transaction_read_only = on")
    reason = "TargetServerAttributeNotMatched" if attributes else "ReadOnlySQLTransactionError"
    before = failures(reason)
    await spooled(tmp_path, ROWS)
    async with writing(tmp_path, database.ingest_dsn + attributes) as writer:
        await until_failed(reason, before)
        assert writer.database.startswith("unreachable")
        await set_for_writer(owner, "default_transaction_read_only = off")
        await until_rows(owner, 1000)
    assert await counted(owner, "quarantine") == 0


@pytest.mark.usefixtures("registered_channels")
async def test_read_only_server_fails_over_to_the_other(
    own_server: Server, database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """It takes the connection, as a standby does."""
    name = urlsplit(database.owner_dsn).path
    read_only = own_server.owner_dsn.rpartition("/")[0] + name
    await bootstrap(read_only, PASSWORDS)
    async with connected(read_only) as other:
        await other.execute(f"ALTER DATABASE {name[1:]} SET default_transaction_read_only = on")
    direct = urlsplit(database.ingest_dsn).netloc.rpartition("@")[2]
    await spooled(tmp_path, ROWS)
    async with writing(tmp_path, logins_of(read_only).ingest_dsn.replace(name, f",{direct}{name}")):
        await until_rows(owner, 1000)
    await drop(own_server.owner_dsn, name[1:])
