"""Restores of backups: what was on any disk is there again, as of any time; or an error says why not."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from core.errors import OperationError
from core.paths import State
from core.timestamps import microseconds
from ingest.spool.file import connect, read_notes
from ops.appliance import programs
from ops.appliance.supervisor import ACTIVE_STATES, Supervisor
from ops.backup.rehearse import Proof, rehearse
from ops.backup.repository import back_up, backups, configure, take_over, verify
from ops.backup.restore import restore
from ops.cli import backup as command
from ops.postgres.bootstrap import wait_until_ready
from ops.postgres.mounted import existing
from ops.postgres.server import Server
from schema.queries import load
from tests.backup_site import PASSPHRASE, Site, archive, fetchval, sample, values
from tests.folders import enterable_folder, enterable_tmp_path  # noqa: F401  (a fixture)
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

_NEWEST = "SELECT max(b.received_at) FROM plant.ingest_batch AS b WHERE b.kind = 'samples'"
_NOT_ARCHIVED = """
INSERT INTO plant.ingest_batch
SELECT 1, 7, 'samples', 5, b.first_time, b.last_time, b.received_at, $1 FROM plant.ingest_batch AS b LIMIT 1
"""


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
