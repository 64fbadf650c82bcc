"""Machines of a database on several machines that fail, while a writer writes."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from core.config.model import SpoolOptions, WriterOptions
from core.paths import State
from ingest.writer.writer import Writer
from ops.appliance import orphans
from ops.postgres.bootstrap import bootstrap
from tests.command import in_a_process
from tests.database import PASSWORDS, add_channels, add_sources, connected
from tests.folders import enterable_tmp_path  # noqa: F401  (a fixture)
from tests.managed import Servers, servers
from tests.processes import command_line
from tests.truth import CHANNELS, expect_truth, restored, running_plant, writing
from tests.waiting import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="servers of several machines require root")


def _receivers(state: Path) -> list[psutil.Process]:
    """The processes by which a standby receives."""
    found = [process for processes in orphans.find(State(state)).values() for process in processes]
    below = {child for process in found for child in process.children(recursive=True)}
    return [process for process in below if "walreceiver" in " ".join(command_line(process))]


async def test_machines_are_lost_one_after_the_other(tmp_path: Path) -> None:
    """The primary, with commits that the standby lacks; the monitor, for good; the next primary, for good."""
    spool = tmp_path / "spool"
    spool.mkdir()
    async with servers(tmp_path) as found, running_plant(spool) as plant:
        await found.until_both()
        await bootstrap(found.dsn(found.a), PASSWORDS)
        async with connected(found.dsn(found.a)) as owner:
            await add_sources(owner, "a")
            await add_channels(owner, range(CHANNELS))
        dsn = found.dsn(found.a, found.b, login=f"plantlog_ingest:{PASSWORDS['ingest']}")
        writer = Writer(spool, dsn, WriterOptions(connections=2, time_out=5.0), SpoolOptions(max_bytes=512 * 1024**2))
        async with writing(writer), plant.feeding(20_000):
            await _lose_primary(found, writer)
            await expect_event(found)
            await found.restart(found.a)
            await found.until_both()
            log = (State(found.a).log / "postgres.log").read_text()
            assert "Rewinding PostgreSQL" in log, log
            assert "trying pg_basebackup instead" not in log, log
            assert await found.states() == {"a": "secondary", "b": "primary"}
            await _replace_monitor(found, tmp_path / "monitor2")
            started = time.monotonic()
            found.power_off(found.b)
            shutil.rmtree(found.b)
            after = writer.written
            await until(lambda: writer.written > after + 10_000)
            print(f"primary lost: written again after {time.monotonic() - started:.1f} s")
        await expect_truth(found.dsn(found.a), plant)
        # A new machine takes the place of the lost one, at another address.
        result = await in_a_process(found.a, "admin", "database", "remove", found.where(found.b))
        assert result.code == 0, result
        found.b = tmp_path / "c"
        await found.add("127.0.0.5", found.b)
        await found.until_both()


async def _lose_primary(found: Servers, writer: Writer) -> None:
    await until(lambda: writer.written > 10_000)
    receivers = _receivers(found.b)
    assert receivers
    for process in receivers:
        process.suspend()
    behind = writer.written
    await until(lambda: writer.written > behind + 100_000)
    started = time.monotonic()
    found.power_off(found.a)
    for process in receivers:
        with suppress(psutil.NoSuchProcess):
            process.resume()
    after = writer.written
    await until(lambda: writer.written > after + 10_000)
    print(f"primary powered off: written again after {time.monotonic() - started:.1f} s")


async def expect_event(found: Servers) -> None:
    """The standby lacked commits, and the journal had them."""
    [event] = await restored(found.dsn(found.b))
    assert event["batches"] > 0  # most was on its way, in the sockets
    assert event["gaps"] == 0
    print(f"batches that the journal gave back: {event['batches']}")


async def _replace_monitor(found: Servers, state: Path) -> None:
    found.power_off(found.monitor)
    shutil.rmtree(found.monitor)
    found.monitor = state
    await found.add("127.0.0.6", state)
    for node in (found.b, found.a):  # the primary first
        result = await in_a_process(node, "admin", "database", "node", "--monitor", found.monitor_dsn)
        assert result.code == 0, result
    await found.until_both()
    assert await found.states() == {"a": "secondary", "b": "primary"}
