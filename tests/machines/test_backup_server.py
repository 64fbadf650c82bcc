"""Backups to a repository on a server, by SFTP and S3, and their restore."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.config.model import BackupOptions
from core.errors import OperationError
from core.paths import State
from ops.backup.repository import archive_of, back_up, backups, configure, verify
from ops.backup.restore import restore
from ops.cli import backup as command
from ops.maintenance.backup import back_up_when_due
from ops.maintenance.job import JobContext
from ops.postgres.cluster import Cluster, provision
from ops.postgres.server import Server
from schema.queries import load
from tests import repository_servers
from tests.backup_site import PASSPHRASE, Site, fetchval, running, sample, tmpfs, values
from tests.database import connected
from tests.integration.ingest.test_spool_disk import Disk
from tests.repository_servers import Peer
from tests.waiting import until

pytestmark = pytest.mark.skipif(repository_servers.missing() != "", reason=repository_servers.missing())


@dataclass(slots=True)
class Remote:
    """An appliance, and the server of its repository."""

    site: Site
    peer: Peer
    disk: Disk  # of the server


@pytest.fixture(scope="module", params=["sftp", "s3"])
def remote(request: pytest.FixtureRequest, server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    assert server, "it sees to the programs being there"
    folder = tmp_path_factory.mktemp(request.param)
    with tmpfs(folder / "disk") as disk, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGBACKREST_IO_TIMEOUT", "2")  # also of what the server runs
        patch.setenv("PGBACKREST_ARCHIVE_TIMEOUT", "10")
        peer = getattr(repository_servers, request.param)(folder / "server", disk / "files")
        with repository_servers.running(peer), running(folder, peer.options(folder / "passphrase")) as site:
            yield Remote(site, peer, Disk(disk, None))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> tuple[State, Cluster]:
    """Another plant."""
    state = State(tmp_path_factory.mktemp("other") / "state")
    state.claim()
    return state, provision(state.root, print)


def test_a_new_machine_needs_only_repository_credentials_and_passphrase(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTLOG_BACKUP_PASSPHRASE", PASSPHRASE)
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path / "none"))
    new = State(tmp_path / "new")
    options = remote.site.options.model_dump(exclude_unset=True, exclude={"passphrase_file"})
    command.restore(**options, into=new.root, start=False)
    for name in ("installation", "registry.json", "pki/own/cert.der"):
        assert (new.root / name).read_bytes() == (remote.site.state.root / name).read_bytes()
    with Server(new.root):
        assert asyncio.run(values(new))[:3] == [1, 2, 3]


def test_restore_needs_what_the_repository_needs(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTLOG_BACKUP_PASSPHRASE", PASSPHRASE)
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path / "none"))
    with pytest.raises(OperationError, match="--key-file: found nothing; legal: a file with the key for"):
        command.restore(repository=remote.site.options.repository)
    with pytest.raises(OperationError, match="--repository: found 'ftp://host/x'; legal: an absolute path as in"):
        command.restore(repository="ftp://host/x")


def test_a_server_that_is_away_is_waited_for(remote: Remote) -> None:
    context = JobContext(remote.site.state.dsn("maintenance"), remote.site.state.dsn("owner"), remote.site.state)
    before = asyncio.run(backups(remote.site.state))
    remote.peer.stop()

    async def away() -> None:
        await remote.site.write(sample(4))
        async with connected(context.owner_dsn) as owner:
            await owner.fetch("SELECT pg_switch_wal()")
            await until(lambda: owner.fetchval("SELECT last_failed_time FROM pg_stat_archiver"))
            with pytest.raises(OperationError, match="the server can't be reached"):
                await back_up_when_due(context, owner)
            assert await owner.fetchval(load("backup")["select_waiting_wal"])

    try:
        asyncio.run(away())
    finally:
        remote.peer.start()
    asyncio.run(remote.site.write(sample(5)))
    asyncio.run(remote.site.archive())
    assert not asyncio.run(fetchval(remote.site.state, load("backup")["select_waiting_wal"]))
    assert asyncio.run(backups(remote.site.state)) == before
    assert "status: ok" in asyncio.run(verify(remote.site.state))


def test_a_full_or_read_only_server_loses_nothing(remote: Remote) -> None:
    remote.disk.fill(0)
    with pytest.raises(OperationError, match="it does not take the write-ahead log"):
        asyncio.run(back_up(remote.site.state, full=False))
    remote.disk.clear()
    remote.disk.remount("ro")
    with pytest.raises(OperationError, match=r"it does not take the write-ahead log.*repo1: \["):
        asyncio.run(back_up(remote.site.state, full=False))
    remote.disk.remount("rw")
    asyncio.run(remote.site.archive())
    asyncio.run(back_up(remote.site.state, full=False))
    assert "status: ok" in asyncio.run(verify(remote.site.state))


def test_bad_options(remote: Remote, other: tuple[State, Cluster], tmp_path: Path) -> None:
    cases = _SFTP if str(remote.site.options.repository).startswith("sftp:") else _S3
    for given, error in [({}, "the repository belongs to another plant: choose an empty folder"), *cases]:
        options = remote.site.options.model_copy(update=_files(given, remote.site.options, tmp_path))
        (problem,) = configure(*other, options, print)
        assert error in problem
        if given:
            with pytest.raises(OperationError) as caught:
                restore(State(tmp_path / "new"), archive_of(options), None, lambda _: None)
            # S3 says of a file only that it is not there
            assert error in str(caught.value) or "has no backups of plantlog: is the path right?" in str(caught.value)


def _files(given: Mapping[str, Any], options: BackupOptions, folder: Path) -> dict[str, Any]:
    """The options, whose files are given by what is in them."""
    assert options.key_file is not None
    made = dict(given)
    for name in given.keys() & {"key_file", "known_hosts_file", "ca_file"}:
        made[name] = folder / name
        text = given[name] if given[name] is not None else ""
        beside = options.key_file.with_name(text.strip() or "nothing")
        made[name].write_text(beside.read_text() if beside.is_file() else text)
    if "{host}" in str(given.get("known_hosts_file")):
        assert options.known_hosts_file is not None
        host = options.known_hosts_file.read_text().split()[0]
        made["known_hosts_file"].write_text(f"{host} {options.key_file.with_name('other.pub').read_text()}")
    return made


_SFTP: list[tuple[dict[str, Any], str]] = [
    ({"known_hosts_file": "{host}"}, "the server's host key is not that in known_hosts_file"),
    ({"known_hosts_file": "# nothing"}, "the server's host key is not that in known_hosts_file"),
    ({"key_file": "other"}, "the server refuses the user, or the key of key_file"),
    ({"key_file": "no key"}, "the server refuses the user, or the key of key_file"),
    ({"repository": "sftp://root@nowhere.invalid/x"}, "the server can't be reached"),
    ({"repository": "sftp://root@127.0.0.1:1/x"}, "the server can't be reached"),
]
_S3: list[tuple[dict[str, Any], str]] = [
    ({"key_file": "access-key wrong"}, "the service refuses the key of key_file"),
    ({"key_file": "nobody wrong"}, "No user exists with the provided access key ID"),
    ({"key_file": "one-word"}, "found 1 words; legal: one line with the access key ID, a space, and the secret"),
    ({"repository": "s3://absent/repository"}, "The specified bucket does not exist. (NoSuchBucket)"),
    ({"s3_region": "eu-central-1"}, "is s3_region that of the bucket?"),
    ({"ca_file": "nothing"}, "ca_file has no certificate"),
    ({"ca_file": "other.pem"}, "the certificate of the service is not signed by one of ca_file"),
    ({"s3_endpoint": "nowhere.invalid"}, "the server can't be reached"),
]
