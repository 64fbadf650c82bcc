"""Backups by pgBackRest and their restore: what was on any disk is there again; a bad repository gets a clear error."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from core.batch import Gap, GapBatch, SampleBatch
from core.config import snapshot
from core.config.files import digest
from core.config.model import BackupOptions, Plant, SpoolOptions, WriterOptions
from core.errors import OperationError
from core.paths import State
from core.registry import Registry
from core.timestamps import microseconds, now_us
from ingest.spool.append import Spool
from ingest.spool.file import connect, read_notes
from ingest.writer.writer import Writer
from ops.appliance import programs
from ops.appliance.supervisor import ACTIVE_STATES, Supervisor
from ops.backup.pgbackrest import environment
from ops.backup.rehearse import Proof, rehearse
from ops.backup.repository import back_up, backups, configure, due_file, take_over, verify
from ops.backup.restore import restore
from ops.cli import backup as command
from ops.maintenance.backup import back_up_when_due, rehearse_when_due
from ops.maintenance.job import JobContext, JobResult
from ops.postgres.archive import ArchiveSettings
from ops.postgres.bootstrap import bootstrap, wait_until_ready
from ops.postgres.cluster import Cluster, provision
from ops.postgres.mounted import existing
from ops.postgres.server import Server
from schema.queries import load
from tests.database import add_channels, add_sources, connected
from tests.folders import enterable_folder, enterable_tmp_path  # noqa: F401  (a fixture)
from tests.integration.ingest.test_spool_disk import MIB, Disk, run
from tests.samples import T0, batch
from tests.spooling import drained
from tests.waiting import PATIENCE, until, until_sync

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

PASSPHRASE = "correct-horse-battery-staple"
_NEWEST = "SELECT max(b.received_at) FROM plant.ingest_batch AS b WHERE b.kind = 'samples'"
_NOT_ARCHIVED = """
INSERT INTO plant.ingest_batch
SELECT 1, 7, 'samples', 5, b.first_time, b.last_time, b.received_at, $1 FROM plant.ingest_batch AS b LIMIT 1
"""


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


@pytest.fixture(scope="module")
def site(server: str) -> Iterator[Site]:
    assert server, "it sees to the programs being there"
    with enterable_folder() as folder, tmpfs(folder / "disk") as disk, running(folder, options_of(disk)) as made:
        yield made


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


def test_a_new_machine_needs_only_repository_and_passphrase(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes are as of the newest data, so that the time since the backup is no gap."""
    file = site.passphrase.with_name("plant.toml")
    file.unlink()
    repository = shutil.copytree(site.repository, tmp_path / "mounted", symlinks=True)
    monkeypatch.setenv("PLANTLOG_BACKUP_PASSPHRASE", PASSPHRASE)
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path / "none"))
    new = State(tmp_path / "new")
    command.restore(str(repository), into=new.root, start=False)
    for name in ("installation", "registry.json", "pki/own/cert.der"):
        assert (new.root / name).read_bytes() == (site.state.root / name).read_bytes()
    assert file.read_text() == "as it was"
    with closing(connect(new.spool / "modbus.sqlite", "FULL", create=False)) as spool:
        notes = read_notes(spool)
    cluster, options = existing(new.root), site.options.model_copy(update={"repository": str(repository)})
    archiving = "SELECT current_setting('archive_mode')"
    assert configure(new, cluster, options, print) == [
        f"no backups: this appliance was restored from {repository}, and the first one may still back up to it: once "
        "that one no longer runs, run `plantlog admin backup take-over` and `plantlog up`; or choose another repository"
    ]
    with Server(new.root), pytest.raises(OperationError, match="the first one may still back up to it"):
        assert asyncio.run(fetchval(new, archiving)) == "off"
        asyncio.run(back_up(new, full=False))
    assert take_over(new) == str(repository)
    assert configure(new, cluster, options, print) == []
    with pytest.raises(OperationError, match="was not restored from the backups of an appliance that may still run"):
        take_over(new)
    with Server(new.root):
        assert asyncio.run(fetchval(new, archiving)) == "on"
        assert asyncio.run(back_up(new, full=False)).kind == "incr"
        assert asyncio.run(values(new)) == [1, 2, 3]
        newest = asyncio.run(fetchval(new, _NEWEST))
        refused = asyncio.run(fetchval(new, "SELECT g.from_time FROM plant.gap AS g WHERE g.to_time IS NULL"))
    assert notes == {
        "kept": "note",
        "heard:1": str(microseconds(newest)),
        "gaps:1": f'[[[2, 2], {microseconds(refused)}, "refused", "", null]]',
    }
    first = site.cluster.archive
    site.cluster.archive = replace(archive(repository), archiving=True)
    with pytest.raises(OperationError, match=f"{repository} was taken over by an appliance that was restored from it"):
        asyncio.run(back_up(site.state, full=False))
    site.cluster.archive = first
    site.cluster.configure_archive()
    with pytest.raises(OperationError, match="has a database already: name a new folder with --into, or move it away"):
        restore(new, archive(repository), None, print)


def test_a_point_in_time(site: Site, tmp_path: Path) -> None:
    """A restore that fails can be repeated."""
    repository = shutil.copytree(site.repository, tmp_path / "mounted")
    state = State(tmp_path / "new")
    with pytest.raises(OperationError, match="it has no backup, or none of that time"):
        restore(state, archive(repository), datetime(2026, 1, 1, tzinfo=UTC), print)
    with pytest.raises(OperationError, match="does not recover: recovery ended before configured recovery target"):
        late = datetime.now(UTC) + timedelta(days=1)
        restore(state, archive(repository), late, print)
    restore(state, archive(repository), site.second_written, print)
    with Server(state.root):
        assert asyncio.run(values(state)) == [1, 2]


def test_a_restore_whose_server_is_killed_says_so(site: Site, tmp_path: Path) -> None:
    """Its log has no last words; those that it had before are not taken for them."""
    repository = shutil.copytree(site.repository, tmp_path / "mounted")
    state = State(tmp_path / "new")
    state.log.mkdir(parents=True)
    (state.log / "postgres.log").write_text("2026-01-01 00:00:00.000 <Z>0 [1] FATAL:  of another time\n")
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.001):
            with suppress(FileNotFoundError, ProcessLookupError, IndexError):  # IndexError: it is just written
                os.kill(int(cluster_pid.read_text().split()[0]), signal.SIGKILL)

    cluster_pid = state.root / "postgres" / "cluster" / "data" / "postmaster.pid"
    killer = threading.Thread(target=kill)
    with pytest.raises(OperationError, match=r"does not recover: the database does not respond \(.*postgres\.log"):
        try:
            restore(state, archive(repository), None, print, before_start=killer.start)
        finally:
            ended.set()
            killer.join()


def test_a_restore_that_is_refused_leaves_all_as_it_was(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = shutil.copytree(site.repository, tmp_path / "mounted")
    state = State(tmp_path / "new")
    cluster = restore(state, archive(repository), None, print)
    port, kept = cluster.port, cluster.archive
    monkeypatch.setenv("PLANTLOG_STATE", str(state.root))
    monkeypatch.setenv("PLANTLOG_BACKUP_PASSPHRASE", PASSPHRASE)
    supervisor = Supervisor(state)
    supervisor.start([programs.postgres(state)])
    try:
        supervisor.start_program("postgres")
        asyncio.run(wait_until_ready(state.dsn("owner"), PATIENCE))
        [before] = supervisor.processes()
        with pytest.raises(OperationError, match="has a database already"):
            command.restore(str(repository), start=False)
        assert [process.pid for process in supervisor.processes()] == [before.pid], "it was not stopped"
        supervisor.stop_programs("postgres")
        cluster.data.rename(state.root / "lost")
        supervisor.start_program("postgres")
        with pytest.raises(OperationError, match="it has no backup, or none of that time"):
            command.restore(str(repository), at="2026-01-01", start=False)
        assert [process.state in ACTIVE_STATES for process in supervisor.processes()] == [True], "it waits for its data"
        assert (cluster.archive, cluster.data.exists(), cluster.port) == (kept, False, port)
        command.restore(str(repository), start=False)
        supervisor.start_program("postgres")
        asyncio.run(wait_until_ready(state.dsn("owner"), PATIENCE))
        assert cluster.port == port
        assert asyncio.run(values(state)) == [1, 2, 3]
    finally:
        supervisor.shutdown()


def test_a_rehearsal_finds_what_the_backup_lacks(site: Site) -> None:
    assert rehearse(site.state, print) == Proof.load(site.state)
    assert not (site.state.root / "rehearsal" / "state").exists()
    [backup] = asyncio.run(backups(site.state))
    assert "ready to accept connections" in (site.state.log / "rehearsal.log").read_text()
    asyncio.run(fetchval(site.state, _NOT_ARCHIVED, backup.started - timedelta(hours=1)))
    with pytest.raises(OperationError, match=rf"backup {backup.label} has only \d+ of \d+ batches, \d+ of \d+ rows"):
        rehearse(site.state, print)
    asyncio.run(fetchval(site.state, "DELETE FROM plant.ingest_batch WHERE sequence = 7"))


def test_a_full_or_read_only_repository_loses_nothing(site: Site) -> None:
    disk = Disk(site.repository.parent, None)
    before = asyncio.run(backups(site.state))
    disk.fill(0)
    with pytest.raises(
        OperationError,
        match=rf"repository {site.repository} has [0-9,]+ bytes free: free at least 33,554,432, or lower keep",
    ):
        asyncio.run(back_up(site.state, full=True))
    disk.clear()
    disk.remount("ro")
    with pytest.raises(
        OperationError, match=rf"repository {site.repository} is mounted read-only: mount it with the option rw"
    ):
        asyncio.run(back_up(site.state, full=True))
    disk.remount("rw")
    assert asyncio.run(backups(site.state)) == before
    assert "status: ok" in asyncio.run(verify(site.state))


def test_backups_are_made_one_at_a_time(site: Site) -> None:
    async def two() -> list[Any]:
        return await asyncio.gather(*(back_up(site.state, full=False) for _ in range(2)), return_exceptions=True)

    made, refused = sorted(asyncio.run(two()), key=lambda result: isinstance(result, Exception))
    assert str(refused) == "another backup is running"
    assert rehearse(site.state, print).label == made.label, "it has the files of the state folder"


def test_an_interrupted_backup_does_not_count(site: Site) -> None:
    before = asyncio.run(backups(site.state))
    command = site.cluster.pgbackrest("backup", "--type=full")
    process = subprocess.Popen(command, cwd="/", env=environment(site.state), start_new_session=True)
    whole = {site.repository / "backup" / "plantlog" / backup.label for backup in before}
    until_sync(lambda: set((site.repository / "backup" / "plantlog").glob("2*")) - whole, every=0.005)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert asyncio.run(backups(site.state)) == before
    asyncio.run(back_up(site.state, full=False))
    assert len(asyncio.run(backups(site.state))) == len(before) + 1


def test_a_repository_that_is_not_mounted_or_damaged(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGBACKREST_JOB_RETRY", "0")
    away = site.repository.with_name("away")
    away.mkdir()
    for name in ("archive", "backup"):
        (site.repository / name).rename(away / name)
    with pytest.raises(OperationError, match=r"files are missing: is the right disk mounted\?"):
        asyncio.run(back_up(site.state, full=False))
    with pytest.raises(OperationError, match=r"missing stanza path: is the right disk mounted\?"):
        asyncio.run(backups(site.state))
    with pytest.raises(OperationError, match=r"has no backups of plantlog: is the right disk mounted\?"):
        restore(State(tmp_path / "new"), archive(site.repository), None, print)
    assert configure(site.state, site.cluster, site.options, print) == [], "it is not created anew"
    for name in ("archive", "backup"):
        (away / name).rename(site.repository / name)
    damaged = shutil.copytree(site.repository, tmp_path / "damaged")
    files = sorted((damaged / "backup").rglob("bundle/1"))
    files[0].write_bytes(files[0].read_bytes()[:-1000])
    with pytest.raises(OperationError, match=rf"repository {damaged}: "):
        restore(State(tmp_path / "new"), archive(damaged), None, print)
    file = sorted((site.repository / "backup").rglob("bundle/1"))[0]
    content = file.read_bytes()
    file.write_bytes(content[:-1000])
    with pytest.raises(OperationError, match="the repository is damaged"):
        asyncio.run(verify(site.state))
    file.write_bytes(content)


def test_a_folder_that_is_no_repository_of_this_plant(site: Site, tmp_path: Path) -> None:
    other = State(tmp_path / "other")
    other.claim()
    cluster = provision(other.root, print)

    def problem(repository: Path, passphrase: str = PASSPHRASE) -> str:
        (tmp_path / "passphrase").write_text(passphrase)
        options = BackupOptions(repository=str(repository), passphrase_file=tmp_path / "passphrase")
        (found,) = configure(other, cluster, options, print)
        with pytest.raises(OperationError, match=f"repository {repository} "):
            asyncio.run(backups(other))
        return found

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "photos").mkdir()
    assert problem(foreign) == f"no backups: [backup] repository {foreign} contains 'photos': choose an empty folder"
    absent = tmp_path / "absent"
    assert problem(absent) == f"no backups: [backup] repository {absent} is not a folder: mount it, or create it"
    copy = shutil.copytree(site.repository, tmp_path / "copy")
    uid = cluster.data.stat().st_uid
    for owner, reason in ((uid + 1, "has another plant's backups"), (uid, "the repository belongs to another plant")):
        for path in (copy, *copy.rglob("*")):
            os.chown(path, owner, owner)
        assert f"{reason}: choose an empty folder" in problem(copy)
    assert "the passphrase is not that of the repository" in problem(copy, "another-passphrase")
    assert asyncio.run(verify(site.state))
    with pytest.raises(OperationError, match="the passphrase is not that of the repository"):
        restore(State(tmp_path / "new"), archive(site.repository, "another-passphrase"), None, print)
    with pytest.raises(OperationError, match=r"is of another installation than .*: name a new folder with --into"):
        other.installation.write_text(str(uuid4()))
        shutil.rmtree(cluster.data)
        restore(other, archive(copy), None, print)


def test_the_servers_user_can_always_read_what_is_written_for_pgbackrest(site: Site) -> None:
    def rewrite() -> None:
        for days in range(1, 20):
            cluster.archive = replace(before, keep_days=days)
            cluster.configure_archive()
        cluster.archive = before
        cluster.configure_archive()

    cluster = existing(site.state.root)
    before = archive(site.repository) if cluster.archive is None else cluster.archive
    path = site.state.root / "postgres" / "cluster" / "pgbackrest.conf"
    with ThreadPoolExecutor(1) as thread:
        rewriting, owners = thread.submit(rewrite), set()
        while not rewriting.done():
            owners.add(path.stat().st_uid)
        rewriting.result()
    assert owners == {cluster.data.stat().st_uid}


def test_backups_of_another_database_are_refused(site: Site) -> None:
    with pytest.raises(OperationError, match=r"\[backup\] repository: plantlog backs up only its own server"):
        configure(site.state, None, site.options, print)


async def test_jobs_back_up_when_it_is_due(site: Site) -> None:
    context = JobContext(site.state.dsn("maintenance"), site.state.dsn("owner"), site.state)
    proof = Proof("label", 86400.0, time.time(), 1, 0, 1.0)
    (site.state.run / "backup-proof.json").write_text(json.dumps(asdict(proof)))
    async with connected(site.state.dsn("owner")) as owner:
        before = await backups(site.state)
        first = await back_up_when_due(context, owner)
        assert isinstance(first, JobResult)
        assert await backups(site.state) == before, "nothing is due"
        away = site.repository.rename(site.repository.with_name("away"))
        assert await back_up_when_due(context, owner) == first, "the repository is not asked"
        away.rename(site.repository)
        plant = snapshot.plant_in_force(site.state.root, ())
        hourly = plant.model_copy(update={"backup": plant.backup.model_copy(update={"every": 1.0})})
        snapshot.save(site.state.root, Path("plant.toml"), {}, hourly)
        second = await back_up_when_due(context, owner)
        assert isinstance(second, JobResult)
        assert [backup.kind for backup in (await backups(site.state))[len(before) :]] == ["incr"]
        assert second.detail.endswith("proven: 1970-01-02 00:00")
        snapshot.save(site.state.root, Path("plant.toml"), {}, plant)
        assert await rehearse_when_due(context, owner) == JobResult(detail="proven: label"), "not a week ago"


async def test_the_next_backup_is_made_at_once_after_write_ahead_log_may_have_been_dropped(site: Site) -> None:
    context = JobContext(site.state.dsn("maintenance"), site.state.dsn("owner"), site.state)
    archive = site.cluster.archive
    assert archive is not None
    async with connected(site.state.dsn("owner")) as owner:
        await back_up_when_due(context, owner)
        before = await backups(site.state)
        disk = Disk(site.repository.parent, None)
        disk.remount("ro")
        await owner.fetch("SELECT pg_logical_emit_message(true, 'test', 'something')")
        await owner.fetch("SELECT pg_switch_wal()")
        await until(lambda: owner.fetchval(load("backup")["select_waiting_wal"]))
        site.cluster.archive = replace(archive, max_wal=1)
        with pytest.raises(OperationError, match="is mounted read-only"):
            await back_up_when_due(context, owner)
        disk.remount("rw")
        site.cluster.archive = archive
        assert due_file(site.state).exists(), "whether maintenance is restarted or not"
        await back_up_when_due(context, owner)
        assert len(await backups(site.state)) == len(before) + 1


def test_everything_on_any_disk_is_there_after_the_loss_of_the_data_directory(site: Site) -> None:
    """Killed, with one sample in the journal that no write-ahead log outside has, and one in the spool."""
    asyncio.run(site.write(sample(4)))
    asyncio.run(site.spool(sample(5)))
    site.server.stop(signal.SIGKILL)
    site.cluster.data.rename(site.state.root / "lost")
    seal = site.state.root / "secrets" / "seal.key"
    seal.write_text("newer than the backup")
    port = site.cluster.port
    restore(site.state, archive(site.repository), None, print)
    assert site.cluster.port == port
    assert seal.read_text() == "newer than the backup"
    site.server.start()
    assert set(asyncio.run(values(site.state))) <= {1, 2, 3, 4}
    wake = load("backup")["wake_checkpointer"]
    assert asyncio.run(fetchval(site.state, wake)), "nothing is archived since the start"
    asyncio.run(site.archive())
    assert not asyncio.run(fetchval(site.state, wake))
    asyncio.run(site.write(sample(6)))
    assert asyncio.run(values(site.state)) == [1, 2, 3, 4, 5, 6]
    asyncio.run(back_up(site.state, full=False))
    assert "status: ok" in asyncio.run(verify(site.state))
