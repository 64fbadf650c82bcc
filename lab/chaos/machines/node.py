"""A database server of its own, which can be the standby of another one, and is restored from a backup repository."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import asyncpg
import psutil

from core.config.model import BackupOptions
from core.errors import OperationError
from core.paths import State
from ops.backup import repository
from ops.backup.restore import restore
from ops.postgres.binaries import find
from ops.postgres.cluster import Cluster
from ops.postgres.mounted import existing
from ops.postgres.server import Server
from schema.queries import load

_WAL_KEEP = "wal_keep_size=1GB"
_OPTIONS = ("-c", "hot_standby=on", "-c", _WAL_KEEP)
_END_SECONDS = 30.0
_REPLICATION = "host replication all 127.0.0.1/32 scram-sha-256\n"


class Node:
    """The server in the folder ``state``: stopped at first."""

    def __init__(self, state: Path) -> None:
        self._state = State(state)
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        """Creates it where it is missing."""
        if self._server is None:
            self._server = Server(self._state.root, _OPTIONS)
        return self._server

    @property
    def dsn(self) -> str:
        """DSN of the owner."""
        return self._state.dsn("owner")

    @property
    def address(self) -> str:
        """Host and port."""
        return urlsplit(self.dsn).netloc.rpartition("@")[2]

    @property
    def port(self) -> int:
        """Port of the node, on loopback."""
        return int(self.address.rpartition(":")[2])

    def at_address(self, dsn: str) -> str:
        """DSN of the login and database at this server alone."""
        parts = urlsplit(dsn)
        return urlunsplit(
            parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{self.address}", query="", fragment="")
        )

    def start(self) -> None:
        """Start, and let the other one replicate."""
        self.server.start()
        with (existing(self._state.root).data / "pg_hba.conf").open("a") as file:
            file.write(_REPLICATION)
        self._run("pg_ctl", "reload", "--pgdata={data}")

    def kill(self) -> None:
        """SIGKILL: what it has not sent to the other one is only on its disk."""
        if self._server is None:
            return
        sessions = self.processes()[1:]
        self._server.stop(signal.SIGKILL)
        for session in sessions:
            with suppress(psutil.NoSuchProcess):
                session.kill()
        psutil.wait_procs(sessions, _END_SECONDS)

    def stop(self) -> None:
        """Stop the node cleanly."""
        self.server.stop()

    def processes(self) -> list[psutil.Process]:
        """The server, which is our child, and its sessions."""
        with suppress(OSError, ValueError, psutil.NoSuchProcess):
            pid = int((self._cluster().data / "postmaster.pid").read_text().split("\n", 1)[0])
            parent = psutil.Process(pid)
            if parent.ppid() == os.getpid():
                return [parent, *parent.children(recursive=True)]
        return []

    def promote(self) -> None:
        """Make it the primary, on a new timeline."""
        self._run("pg_ctl", "promote", "--pgdata={data}")

    def clone(self, primary: Node, port: int | None = None) -> None:
        """Make it, which is stopped, a new standby of another one. ``port``: of a relay before that one."""
        cluster = self._cluster()
        if not cluster.data.parent.exists():
            self._state.claim()
            shutil.copytree(primary._state.dsn_file("owner").parent, self._state.dsn_file("owner").parent)
            cluster.data.parent.mkdir(parents=True)
            with suppress(FileNotFoundError):  # they share the repository
                shutil.copy(primary._state.installation, self._state.installation)
            cluster.change_owner(cluster.data.parent)
            cluster.move()
        self.lose_data()
        cluster.archive = primary._cluster().archive
        self._run("pg_basebackup", "--pgdata={data}", "--checkpoint=fast", "--dbname", primary._conninfo())
        self._follow(primary, port)

    def rewind(self, primary: Node, port: int | None = None) -> None:
        """Make a former primary, which is stopped or was killed, a standby of its successor."""
        settings = self._cluster().data / "postgresql.auto.conf"
        settings.write_text(f"{_WAL_KEEP}\n")  # of the recovery by pg_rewind, else it ends by removing what is needed
        self._run("pg_rewind", "--target-pgdata={data}", "--source-server", f"{primary._conninfo()} dbname=postgres")
        self._follow(primary, port)

    def lose_data(self) -> None:
        """Remove the data directory of a server that is stopped."""
        shutil.rmtree(self._cluster().data, ignore_errors=True)

    def archive_to(self, folder: Path, passphrase_file: Path, installation: UUID) -> None:
        """Archive and back up to a repository from the next start on. Raises OperationError."""
        self._state.claim()
        self._state.installation.write_text(f"{installation}\n")  # backups are of an installation
        cluster = self.server_cluster()
        options = BackupOptions(repository=str(folder), passphrase_file=passphrase_file)
        if problems := repository.configure(self._state, cluster, options, lambda line: None):
            raise OperationError(problems[0])

    def back_up(self) -> datetime:
        """Make a backup; when it ended. Raises OperationError."""
        asyncio.run(self._checkpoint())
        return asyncio.run(repository.back_up(self._state, full=False)).ended

    async def _checkpoint(self) -> None:
        """pgBackRest reads the timeline of the last checkpoint, which may be minutes later than a promotion."""
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(load("failover")["checkpoint"])
        finally:
            await connection.close()

    def restore(self, at: datetime) -> None:
        """Make it, which is stopped, what it was at a time. Raises OperationError."""
        archive = self._cluster().archive
        assert archive is not None
        self.lose_data()
        restore(self._state, archive, at, lambda line: None)

    def server_cluster(self) -> Cluster:
        """Cluster of the node, created where it is missing."""
        assert self.server is not None
        return self._cluster()

    def _follow(self, primary: Node, port: int | None) -> None:
        data = self._cluster().data
        settings = f"primary_conninfo = '{primary._conninfo(port)}'\nrecovery_target_timeline = 'latest'\n"
        (data / "postgresql.auto.conf").write_text(settings)
        (data / "standby.signal").touch()
        self._cluster().change_owner(data / "postgresql.auto.conf", data / "standby.signal")

    def _conninfo(self, port: int | None = None) -> str:
        parts = urlsplit(self.dsn)
        return f"host=127.0.0.1 port={port or parts.port} user={parts.username} password={parts.password}"

    def _cluster(self) -> Cluster:
        binaries = find(self._state.root)
        assert binaries is not None
        return Cluster(self._state.root, binaries)

    def _run(self, program: str, *arguments: str) -> None:
        cluster = self._cluster()
        data = cluster.path_of_server(cluster.data)
        command: Sequence[str] = cluster.enter(program, *(argument.replace("{data}", data) for argument in arguments))
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if run.returncode:
            raise OperationError(f"{program} exited with {run.returncode}: {run.stdout}{run.stderr}")
