"""``up`` while the database is away, as after a power cut if the database's machine returns last."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from core.timestamps import now_us
from ops.postgres.server import Server
from tests.e2e.appliance import Appliance, running
from tests.pair import SECOND, Pair, own_server, running_pair, states
from tests.ports import free_ports
from tests.waiting import until

PORT = free_ports(13)
_SAID = re.compile(
    r"the configuration is unchanged: collectors start and keep everything in the spool; the writer connects as soon as"
    r" the database responds\n! .* start database +the database at 127\.0\.0\.1:\d+/\w+ does not respond\n"
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server of PLANTLOG_DSN."""
    with own_server(tmp_path, monkeypatch) as server:
        yield server


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Member 1 writes."""
    with running_pair(tmp_path, monkeypatch) as pair:
        yield pair


@asynccontextmanager
async def stopped(server: Server) -> AsyncIterator[None]:
    """The server is away inside the block."""
    server.stop()
    try:
        yield
    finally:
        await asyncio.to_thread(server.start)  # which runs a loop of its own


def refused(appliance: Appliance, *arguments: str) -> str:
    """Error of an ``up`` that must fail."""
    with pytest.raises(AssertionError) as raised:
        appliance.plantlog("up", *arguments)
    return str(raised.value)


async def until_spooled(appliance: Appliance, us: int) -> None:
    """Wait until samples later than ``us`` wait in the spools of both protocols."""

    def newest(protocol: str) -> int:
        with closing(sqlite3.connect(f"file:{appliance.root}/spool/{protocol}.sqlite?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT max(first_time) FROM batch").fetchone()[0] or 0)

    await until(lambda: min(newest("opcua"), newest("modbus")) > us, every=0.2)


async def test_collectors_start_while_the_database_is_away(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "state", "--port", str(PORT)) as appliance:
        appliance.plantlog("down")
        async with stopped(server):
            new = Appliance(tmp_path / "new")
            assert "without the database, because the last `up` registered no configuration" in refused(
                new, "--port", str(PORT)
            )
            new.plantlog("down", "--wipe", "--yes")
            monkeypatch.delenv("PLANTLOG_DSN")
            output = refused(appliance, "--channels", "50")
            assert "ConnectionRefusedError" in output
            assert "because the configuration was changed since the last `up`" in output
            output = appliance.plantlog("up")
            assert _SAID.search(output), output
            assert "does not respond; samples wait in the spool" in output
            assert {process["state"] for process in appliance.status()["processes"]} == {"RUNNING"}
            began = now_us()
            await until_spooled(appliance, began + 5 * SECOND)
            assert _SAID.search(appliance.plantlog("up")), "safe to repeat"
            ended = now_us()
        result = await appliance.compared(began, ended)
        stored = result["all"]
        # On a busy machine a poll may come too late: then it is on record.
        assert (stored.invented, stored.altered, stored.duplicated, stored.missing_silent) == (0, 0, 0, 0), result
        assert result["opcua"].published == result["opcua"].stored > 0, result
        assert "does not respond" not in appliance.plantlog("up")


async def test_both_members_of_a_pair_start_while_the_database_is_away(pair: Pair) -> None:
    pair.copy_identity()
    pair.up(2)
    await pair.until_complete(2)
    async with stopped(pair.server):
        for member in (1, 2):
            pair.kill(member)
        for member in (1, 2):
            assert _SAID.search(pair.up(member))
        began = now_us()
        assert [states(appliance)["load2"] for appliance in pair.members] == ["connected", "standby"]
        for appliance in pair.members:
            await until_spooled(appliance, began + 5 * SECOND)
        ended = now_us()
    await pair.check(began, ended, 2)
    await pair.until_complete(1)
