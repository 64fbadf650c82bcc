"""An appliance with a backup repository, for tests that lose its disks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from core.batch import Gap, GapBatch, SampleBatch
from core.config import snapshot
from core.config.files import digest
from core.config.model import BackupOptions, Plant, SpoolOptions, WriterOptions
from core.paths import State
from core.registry import Registry
from core.timestamps import now_us
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from ops.backup.repository import back_up, configure
from ops.postgres.archive import ArchiveSettings
from ops.postgres.bootstrap import bootstrap
from ops.postgres.cluster import Cluster, provision
from ops.postgres.server import Server
from tests.database import add_channels, add_sources, connected
from tests.integration.ingest.test_spool_disk import MIB, run
from tests.samples import T0, batch
from tests.spooling import drained
from tests.waiting import until

PASSPHRASE = "correct-horse-battery-staple"


def archive(repository: Path, passphrase: str = PASSPHRASE) -> ArchiveSettings:
    return ArchiveSettings(str(repository), passphrase, 30, 2**34)


def sample(value: float) -> SampleBatch:
    now = now_us()
    return replace(batch([(1, now - T0, value, 0)]), received_at=now)


@dataclass(slots=True)
class Site:
    """A state folder with its server, and a repository beside it."""

    state: State
    cluster: Cluster
    server: Server
    options: BackupOptions
    second_written: datetime | None = None

    @property
    def repository(self) -> Path:
        return Path(str(self.options.repository))

    @property
    def passphrase(self) -> Path:
        assert self.options.passphrase_file is not None
        return self.options.passphrase_file

    async def spool(self, *batches: SampleBatch | GapBatch) -> None:
        spool = Spool(self.state.spool / "modbus.sqlite", MIB)
        for spooled in batches:
            await spool.append(spooled, {"heard:1": str(spooled.received_at), "kept": "note"})
        await spool.close()

    async def write(self, *batches: SampleBatch | GapBatch) -> None:
        """Through spool and writer into the database and the journal."""
        await self.spool(*batches)
        await drained(Writer(self.state.spool, self.state.dsn("ingest"), WriterOptions(), SpoolOptions(max_bytes=MIB)))

    async def archive(self) -> None:
        """Bring all write-ahead log into the repository."""
        async with connected(self.state.dsn("owner")) as owner:
            segment = await owner.fetchval("SELECT pg_walfile_name(pg_switch_wal())")
            archived = "SELECT a.last_archived_wal >= $1 FROM pg_stat_archiver AS a"
            await until(lambda: owner.fetchval(archived, segment))


async def values(state: State) -> list[float]:
    async with connected(state.dsn("reader")) as reader:
        return [row["value"] for row in await reader.fetch("SELECT s.value FROM plant.samples AS s ORDER BY 1")]


async def fetchval(state: State, query: str, *parameters: Any) -> Any:
    async with connected(state.dsn("owner")) as owner:
        return await owner.fetchval(query, *parameters)


def options_of(disk: Path) -> BackupOptions:
    (disk / "repository").mkdir()
    return BackupOptions(repository=str(disk / "repository"), passphrase_file=disk.with_name("passphrase"))


@contextmanager
def tmpfs(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={256 * MIB}", "plantlog-test", folder)
    try:
        yield folder
    finally:
        run("umount", "--lazy", folder)


@contextmanager
def running(folder: Path, options: BackupOptions) -> Iterator[Site]:
    """Appliance with a full backup, and samples that are only in the write-ahead log in the repository."""
    state = State(folder / "state")
    state.claim()
    state.installation.write_text(str(uuid4()))
    Registry({}, {}).save(state.registry)
    (state.pki / "own").mkdir(exist_ok=True)
    (state.pki / "own" / "cert.der").write_bytes(b"trusted")
    (folder / "passphrase").write_text(f"{PASSPHRASE}\n")
    cluster = provision(state.root, print)
    settings = "autovacuum=off timescaledb.max_background_workers=0 archive_timeout=0"
    private = Server(state.root, [part for setting in settings.split() for part in ("-c", setting)])
    made = Site(state, cluster, private, options)
    file = folder / "plant.toml"
    file.write_text("as it was")
    snapshot.save(state.root, file, {str(file): str(digest(file))}, Plant(name="p", sources=(), backup=made.options))
    assert configure(state, cluster, made.options, print) == []
    with private:
        asyncio.run(filled(made))
        yield made


async def filled(site: Site) -> None:
    roles = ("ingest", "reader", "maintenance")
    await bootstrap(site.state.dsn("owner"), {role: re.findall(":([^:]*)@", site.state.dsn(role))[0] for role in roles})
    async with connected(site.state.dsn("owner")) as owner:
        await add_sources(owner, "plc", kind="modbus")
        await add_channels(owner, [1, 2])
    begun = GapBatch(1, now_us(), (Gap(now_us(), None, "disconnected", None, "gone"),))
    await site.write(sample(1), begun)
    backup = await back_up(site.state, full=True)
    await until(lambda: datetime.now(UTC) > backup.ended + timedelta(seconds=1))  # pgBackRest's times are whole seconds
    ended = GapBatch(1, now_us(), (replace(begun.gaps[0], to_time=now_us()), Gap(now_us(), None, "refused", (2,))))
    await site.write(sample(2), ended)
    site.second_written = datetime.now(UTC)
    await site.write(sample(3))
    await site.archive()
