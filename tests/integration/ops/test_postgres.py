"""The native server: private, closed, tuned, and honest about what is missing."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from core.errors import DatabaseError
from core.paths import State
from ops.appliance.database import Database
from ops.postgres.bootstrap import bootstrap, maintenance_dsn
from ops.postgres.cluster import provision
from ops.postgres.server import Server
from tests.database import connected


def test_a_server_without_timescaledb_loaded_says_what_to_do(server: str, tmp_path: Path) -> None:
    """``server`` is asked for because it sees to the programs being there."""
    assert server
    with (
        Server(tmp_path, ("-c", "shared_preload_libraries=")) as bare,
        pytest.raises(DatabaseError, match="installed but not loaded: add timescaledb to shared_preload_libraries"),
    ):
        asyncio.run(bootstrap(bare.owner_dsn, {}))


def test_database_leaves_the_port_of_another_process(server: str, tmp_path: Path) -> None:
    """One that is in use, or that the plant's file gives to a process that has not started yet."""
    assert server
    database = Database(State(tmp_path), provision(tmp_path, lambda line: None))
    assert database.cluster is not None
    lines: list[str] = []
    chosen = database.cluster.port
    database.ensure_free_port(lines.append, [chosen + 1])
    assert (database.cluster.port, lines) == (chosen, [])
    database.ensure_free_port(lines.append, [chosen])
    moved = database.cluster.port
    assert moved != chosen
    assert lines == [f"port {chosen} is that of another process; the database moves to 127.0.0.1:{moved}/plantlog"]
    with socket.create_server(("127.0.0.1", moved)):
        database.ensure_free_port(lines.append, [])
    assert database.cluster.port != moved
    assert lines[1].startswith(f"port {moved} is in use by python")


@pytest.mark.slow
def test_private_server_is_inaccessible_and_survives_a_kill(server: str, tmp_path: Path) -> None:
    assert server

    async def prepare(dsn: str) -> tuple[str, str, str]:
        await bootstrap(dsn, {"reader": "secret-of-the-test"})
        async with connected(dsn) as connection:
            await connection.execute("INSERT INTO plant.source (name, kind, address) VALUES ('kept', 'push', '')")
            listening = await connection.fetchval("SHOW listen_addresses")
            wal = await connection.fetchval("SHOW wal_compression")
            return listening, wal, await connection.fetchval("SHOW data_checksums")

    async def count_sources(dsn: str) -> int:
        async with connected(dsn) as connection:
            return int(await connection.fetchval("SELECT count(*) FROM plant.source WHERE name = 'kept'"))

    with Server(tmp_path) as private:
        assert asyncio.run(prepare(private.owner_dsn)) == ("127.0.0.1", "lz4", "on")
        wrong = private.owner_dsn.replace("://plantlog_owner:", "://plantlog_owner:x")
        with pytest.raises(asyncpg.InvalidPasswordError):
            asyncio.run(count_sources(wrong))
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
            asyncio.run(_without_password(private.owner_dsn))
        private.stop(signal.SIGKILL)
        private.start()
        assert asyncio.run(count_sources(private.owner_dsn)) == 1
        mounts = Path("/proc/mounts").read_text()
        assert str(tmp_path) not in mounts, "the server's mounts are its own"
    for secret in (tmp_path / "secrets").iterdir():
        assert secret.stat().st_mode & 0o777 == 0o600
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int((tmp_path / "postgres" / "port").read_text()))) != 0


async def _without_password(dsn: str) -> None:
    user, _, rest = maintenance_dsn(dsn).removeprefix("postgresql://").partition("@")
    connection = await asyncpg.connect(f"postgresql://{user.split(':')[0]}@{rest}", passfile="/nonexistent")
    await connection.close()


def test_server_with_a_taken_port_moves(server: str, tmp_path: Path) -> None:
    """Another server answers where this one wanted to: it was there first."""
    taken = str(urlsplit(server).port)
    moved = Server(tmp_path)
    (tmp_path / "postgres" / "port").write_text(taken)
    for path in (tmp_path / "secrets").glob("*.dsn"):
        path.write_text(re.sub(r":\d+/", f":{taken}/", path.read_text()))

    async def own() -> str:
        async with connected(maintenance_dsn(moved.owner_dsn)) as connection:
            return str(await connection.fetchval("SHOW port"))

    with moved:
        assert asyncio.run(own()) == str(urlsplit(moved.owner_dsn).port) != taken
        assert len({urlsplit(path.read_text()).port for path in (tmp_path / "secrets").glob("*.dsn")}) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run it as somebody else")
def test_private_server_is_unprivileged_and_memory_limited(server: str, tmp_path: Path) -> None:
    """Also on a cluster that belonged to the id of the binaries' own ``postgres``, which is another account's here."""
    assert server
    with Server(tmp_path) as private:
        if not private._cluster.binaries.private:
            pytest.skip("the system's own user postgres")
    cluster = tmp_path / "postgres" / "cluster"
    for path in (*cluster.rglob("*"), cluster):
        os.chown(path, 100, 100, follow_symlinks=False)
    with Server(tmp_path) as private:
        assert private._process is not None
        status = Path(f"/proc/{private._process.pid}/status").read_text()
        uid = int(re.findall(r"^Uid:\s+(\d+)", status, re.MULTILINE)[0])
        assert uid == pwd.getpwnam("plantlog-postgres").pw_uid != 0
        assert {path.lstat().st_uid for path in cluster.rglob("*")} == {uid}
        limits = Path(f"/proc/{private._process.pid}/limits").read_text()
        assert "unlimited" not in re.findall(r"Max address space.*", limits)[0]
