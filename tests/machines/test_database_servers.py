"""`plantlog admin database`: a monitor and two nodes, in order and in disorder."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from core.config.model import SpoolOptions, WriterOptions
from core.paths import State
from ingest.writer.writer import Writer
from ops.postgres.bootstrap import bootstrap
from schema.queries import load
from tests.command import in_a_process, plantlog
from tests.database import PASSWORDS, add_channels, add_sources, connected
from tests.folders import enterable_tmp_path  # noqa: F401  (a fixture)
from tests.managed import Servers, servers
from tests.ports import free_port
from tests.truth import CHANNELS, Plant, expect_truth, running_plant, writing
from tests.waiting import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="servers of several machines require root")


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Servers]:
    async with servers(tmp_path) as made:
        yield made


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    (tmp_path / "spool").mkdir()
    async with running_plant(tmp_path / "spool") as made:
        yield made


async def test_switchover_loses_nothing_and_mistakes_are_named(nodes: Servers, plant: Plant, tmp_path: Path) -> None:
    await nodes.until_both()
    assert await nodes.states() == {"a": "primary", "b": "secondary"}
    await bootstrap(nodes.dsn(nodes.a), PASSWORDS)
    async with connected(nodes.dsn(nodes.a)) as owner:
        await add_sources(owner, "a")
        await add_channels(owner, range(CHANNELS))
    async with connected(nodes.dsn(nodes.a, login=f"plantlog_maintenance:{PASSWORDS['maintenance']}")) as maintenance:
        assert await maintenance.fetchval(load("maintenance")["count_standbys"]) == 1
    dsn = nodes.dsn(nodes.a, nodes.b, login=f"plantlog_ingest:{PASSWORDS['ingest']}")
    options = WriterOptions(connections=2, time_out=5.0)
    writer = Writer(tmp_path / "spool", dsn, options, SpoolOptions(max_bytes=512 * 1024**2))
    async with writing(writer), plant.feeding(10_000):
        await until(lambda: writer.written > 10_000)
        result = await in_a_process(nodes.b, "admin", "database", "switchover")
        assert result.code == 0, result
        after = writer.written
        await until(lambda: writer.written > after + 10_000)
    await expect_truth(nodes.dsn(nodes.b), plant)
    await nodes.until_both()
    assert await nodes.states() == {"a": "secondary", "b": "primary"}
    await _expect_encryption_and_passwords(nodes)
    await _expect_mistakes_to_be_named(nodes, tmp_path)
    # Without the monitor nothing stops; another one takes its place.
    nodes.power_off(nodes.monitor)
    assert "does not respond" in (await in_a_process(nodes.a, "admin", "database", "status")).err
    await expect_truth(nodes.dsn(nodes.b), plant)


async def test_servers_of_1_0_are_taken_over(nodes: Servers) -> None:
    """1.0 ran each under an id of its own, in a name space where its folder was /var/lib/postgresql."""
    await nodes.until_both()
    async with connected(nodes.dsn(nodes.a)) as owner:
        await owner.execute("CREATE TABLE kept AS SELECT 1 AS number")
    await nodes.stop()
    for number, state in enumerate((nodes.monitor, nodes.a, nodes.b)):
        _make_former(state, 60_800 + number)
    for state in (nodes.monitor, nodes.a, nodes.b):
        await nodes.restart(state)
    await nodes.until_both()
    name_of = {state: name for name, state in (await nodes.states()).items()}
    primary, standby = (nodes.dsn(getattr(nodes, name_of[state])) for state in ("primary", "secondary"))
    async with connected(primary) as owner, connected(standby) as reader:
        await owner.execute("INSERT INTO kept VALUES (2)")
        await until(lambda: _holds(reader, [1, 2]))


async def _holds(connection: asyncpg.Connection[asyncpg.Record], numbers: list[int]) -> bool:
    rows = await connection.fetch("SELECT number FROM kept ORDER BY number")
    return [number for (number,) in rows] == numbers


def _make_former(state: Path, uid: int) -> None:
    """Leave a server's folder as 1.0 did."""
    cluster, home = state / "postgres" / "cluster", Path("var/lib/postgresql")
    place = (cluster / "data").relative_to("/")
    for kind in ("config", "share"):
        present, former = (cluster / kind / "pg_autoctl" / path for path in (place, home / "data"))
        former.parent.mkdir(parents=True)
        present.rename(former)
        shutil.rmtree(cluster / kind / "pg_autoctl" / place.parts[0])
    settings = {"pg_ctl": "/usr/lib/postgresql/17/bin/pg_ctl", "host": f"/{home}"}
    for file in (
        cluster / "config" / "pg_autoctl" / home / "data" / "pg_autoctl.cfg",
        cluster / "data" / "postgresql-auto-failover-standby.conf",
    ):
        text = file.read_text().replace(str(cluster), f"/{home}") if file.exists() else ""
        for name, value in settings.items():
            text = re.sub(f"(?m)^{name} = .*", f"{name} = {value}", text)
        file.write_text(text)
    (cluster / ".pg_service.conf").unlink()
    for path in (cluster, *cluster.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
    for folder in (state, cluster.parent):
        folder.chmod(0o700)


async def _expect_encryption_and_passwords(nodes: Servers) -> None:
    host, port = urlsplit(nodes.dsn(nodes.b)).netloc.rpartition("@")[2].split(":")
    startup = b"\0\x03\0\0user\0plantlog_owner\0database\0plantlog\0\0"
    with socket.create_connection((host, int(port)), source_address=("127.0.0.9", 0), timeout=30) as plain:
        plain.sendall((len(startup) + 4).to_bytes(4) + startup)
        assert b'no pg_hba.conf entry for host "127.0.0.9"' in plain.recv(1000)
    health = nodes.dsn(nodes.b, login="pgautofailover_monitor:pgautofailover_monitor")
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await asyncpg.connect(health)
    async with connected(nodes.dsn(nodes.a)) as standby:
        primary = await standby.fetchval("SELECT conninfo FROM pg_stat_wal_receiver")
        ca = nodes.a / "postgres" / "cluster" / "ca.crt"
        assert {"sslmode=verify-full", f"sslrootcert={ca}"} <= set(primary.split())
    for state in (nodes.monitor, nodes.a, nodes.b):
        for file in (State(state).pki / "tls").iterdir():
            assert file.stat().st_mode & 0o077 == 0, file


async def _expect_mistakes_to_be_named(nodes: Servers, folder: Path) -> None:
    monitor = nodes.monitor_dsn
    secret = monitor.split(":")[2].split("@")[0]
    new = folder / "new"
    node = ("admin", "database", "node", "--port", free_port())
    for state, words, told in [
        (new, node, "--address and --monitor (or PLANTLOG_MONITOR) are missing"),
        (new, (*node, "--address", "192.0.2.1", "--monitor", monitor), "--address 192.0.2.1: Cannot assign"),
        (
            new,
            (*node, "--address", "127.0.0.5", "--monitor", "postgresql://x"),
            "is not what `plantlog admin database mo",
        ),
        (
            new,
            (*node, "--address", "127.0.0.5", "--monitor", monitor.replace(secret, "w" * 32)),
            "is another one than the DSN is of, or its secret is wrong",
        ),
        (nodes.a, (*node, "--address", "127.0.0.3"), "a node at port"),
        (nodes.a, ("admin", "database", "monitor"), "is a node"),
        (nodes.a, ("up",), "is a server of a database on several machines"),
        (nodes.a, ("status",), "`plantlog admin database status` shows it"),
        (nodes.a, ("admin", "database", "remove", "127.0.0.9"), "127.0.0.9:5432 is not a node"),
    ]:
        result = await plantlog(state, *words)
        assert result.code == 1, result
        assert told in result.err, result
        assert secret not in result.err, result
