"""Backups by pgBackRest: none is lost or made twice; a bad repository gets a clear error."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from core.config import snapshot
from core.config.model import BackupOptions
from core.errors import OperationError
from core.paths import State
from ops.backup.pgbackrest import environment
from ops.backup.rehearse import Proof, rehearse
from ops.backup.repository import back_up, backups, configure, due_file, verify
from ops.backup.restore import restore
from ops.maintenance.backup import back_up_when_due, rehearse_when_due
from ops.maintenance.job import JobContext, JobResult
from ops.postgres.cluster import provision
from ops.postgres.mounted import existing
from schema.queries import load
from tests.backup_site import PASSPHRASE, Site, archive
from tests.database import connected
from tests.folders import enterable_folder, enterable_tmp_path  # noqa: F401  (a fixture)
from tests.integration.ingest.test_spool_disk import Disk
from tests.waiting import until, until_sync

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


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
