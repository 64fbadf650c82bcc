"""The repository: set up by ``up``, written by ``backup``, read by ``backup list`` and ``backup verify``."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.config.model import BackupOptions
from core.config.snapshot import in_force
from core.database import connected, database_errors
from core.errors import OperationError
from core.files import file_errors, folder_lock, write_atomically
from core.paths import State
from ops.backup.pgbackrest import call, explain
from ops.postgres.archive import ArchiveSettings, check_writable
from ops.postgres.binaries import PGBACKREST
from ops.postgres.cluster import Cluster
from ops.postgres.mounted import existing
from schema.queries import load

_WAL_PART = 8  # of its disk that waiting write-ahead log may take
_UNREADABLE_STATUS = 99  # its status code where a repository can't be read
_READABLE_STATUSES = (0, 2)  # status codes of `info`: whole, no backup yet
_NOT_OURS = (
    "plantlog backs up only its own server, and PLANTLOG_DSN names another one: use the tools of the database's "
    "machine (docs/backup.md)"
)


class AnotherBackupError(OperationError):
    """A backup is being made."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup in the repository."""

    label: str
    kind: str  # full, diff or incr
    started: datetime
    ended: datetime
    size: int  # bytes of the database
    stored: int  # bytes that it added to the repository


def options_in_force(state: State) -> BackupOptions:
    """``[backup]`` of the configuration in force; without one, the defaults: no backups."""
    current = in_force(state.root, ())
    return BackupOptions() if current is None else current.plant.backup


def archive_of(options: BackupOptions) -> ArchiveSettings:
    """The repository that ``options`` describe. Raises OperationError where a file can't be used."""
    assert options.repository is not None

    def content(file: Path | None) -> str:
        if file is None:
            return ""
        with file_errors(file, "a file with a secret of [backup]"):
            return file.read_text(encoding="utf-8")

    key = content(options.key_file)
    if options.repository.startswith("s3:") and len(key.split()) != 2:
        raise OperationError(
            f"[backup] {options.key_file}: found {len(key.split())} words; legal: one line with the access key ID, a "
            "space, and the secret access key"
        )
    return ArchiveSettings(
        options.repository,
        content(options.passphrase_file).strip(),
        math.ceil(options.keep / 86400),
        int(options.max_wal),
        key,
        content(options.known_hosts_file),
        content(options.ca_file),
        options.s3_endpoint or "",
        options.s3_region,
        options.s3_uri_style,
    )


def check_database(state: State, config: Path, options: BackupOptions) -> None:
    """Raise OperationError if the database that ``[backup]`` is for is not plantlog's own."""
    if options.repository is not None and state.has_external_database:
        raise OperationError(
            f"{config}: [backup] repository: found {options.repository!r}; legal: no [backup]. {_NOT_OURS}"
        )


def configure(
    state: State, cluster: Cluster | None, options: BackupOptions, progress: Callable[[str], None]
) -> list[str]:
    """Let the server's next start archive to ``[backup] repository``, or not.

    Returns what is wrong with the repository: ingest goes on without backups. Raises OperationError.
    """
    if options.repository is None or options.passphrase_file is None:
        if cluster is not None:
            cluster.archive = None
        return []
    if cluster is None:
        raise OperationError(f"[backup] repository: {_NOT_OURS}")
    cluster.binaries.check(PGBACKREST)
    before = cluster.archive
    try:
        archive = archive_of(options)
        archive = replace(archive, max_wal=min(archive.max_wal, shutil.disk_usage(cluster.data).total // _WAL_PART))
        if before is not None and before.repository == archive.repository:
            archive = replace(archive, archiving=before.archiving, held=before.held)
        cluster.archive = archive
        if archive.held:
            return [f"no backups: {_inactive_text(archive)}"]
        cluster.configure_archive()
        if not archive.archiving:  # once: a folder that is empty later is a disk that is not mounted
            asyncio.run(_begin(state, cluster))
            cluster.archive = replace(archive, archiving=True)
    except OperationError as error:
        return [f"no backups: {error}"]
    return []


def _inactive_text(archive: ArchiveSettings) -> str:
    return (
        f"this appliance was restored from {archive.repository}, and the first one may still back up to it: once that "
        "one no longer runs, run `plantlog admin backup take-over` and `plantlog up`; or choose another repository"
    )


def take_over(state: State) -> str:
    """Let the next ``up`` archive to the repository that the state folder was restored from. Returns its name."""
    cluster = _own(state)
    if cluster.archive is None or not cluster.archive.held:
        raise OperationError(f"{state.root} was not restored from the backups of an appliance that may still run")
    cluster.configure_archive()  # gives a folder to our user
    cluster.archive = replace(cluster.archive, held=False)
    return cluster.archive.repository


async def _begin(state: State, cluster: Cluster) -> None:
    """Create the repository's files, and let the server archive the timelines that it began while it did not."""
    await call(state, cluster, "repo-ls")  # what it says of a server is clearer than what the others say
    await call(state, cluster, "stanza-create", "--no-online")
    log = cluster.data / "pg_wal"
    for history in log.glob("*.history"):
        ready = log / "archive_status" / f"{history.name}.ready"
        ready.touch()
        cluster.change_owner(ready)
    _list_file(state).unlink(missing_ok=True)
    due_file(state).touch()


def due_file(state: State) -> Path:
    """File that exists if a backup is due whatever the time: write-ahead log may be missing in the repository."""
    return state.run / "backup-due"


def _list_file(state: State) -> Path:
    return state.run / "backups.json"


async def back_up(state: State, full: bool) -> Backup:
    """Make a backup now. Raises OperationError; AnotherBackupError while another one is made."""
    cluster = available(state)
    assert cluster.archive is not None
    if cluster.archive.folder is not None:
        check_writable(cluster.archive.folder)
    await _check_timeline(state, cluster)
    from ops.backup import state_files  # noqa: PLC0415  (numpy, which it needs, takes a tenth of the start)

    path = cluster.data / state_files.NAME
    with folder_lock(cluster.folder, _refuse):  # another one would remove our file
        state_files.pack(state, path)
        try:
            cluster.change_owner(path)
            await call(state, cluster, "backup", f"--type={'full' if full else 'incr'}", nice=True)
        finally:
            path.unlink()
    due_file(state).unlink(missing_ok=True)
    return (await backups(state))[-1]


def _refuse() -> None:
    raise AnotherBackupError("another backup is running")


async def _check_timeline(state: State, cluster: Cluster) -> None:
    """Raises OperationError if another appliance was restored from the repository, and has taken it over."""
    with database_errors():
        async with connected(state.dsn("owner"), "plantlog backup") as connection:
            following = await connection.fetchval(load("backup")["select_next_timeline"])
    name = f"{following:08X}.history"
    folder = await call(state, cluster, "repo-ls", f"--filter=^{name}$", "archive/plantlog/17-1")
    if name in folder.split():
        assert cluster.archive is not None
        raise OperationError(
            f"repository {cluster.archive.repository} was taken over by an appliance that was restored from it: stop "
            "this one, or choose another repository"
        )


async def backups(state: State) -> list[Backup]:
    """All backups, oldest first. Raises OperationError."""
    cluster = available(state)
    text = await call(state, cluster, "info", "--output=json")
    for stanza in json.loads(text):
        if stanza["status"]["code"] not in _READABLE_STATUSES:
            code, message = stanza["status"]["code"], f"{stanza['status']['message']}: is the right disk mounted?"
            if code == _UNREADABLE_STATUS:
                message = stanza["repo"][0]["status"]["message"]
            raise OperationError(explain("info", f"ERROR: [{code}]: {message}", cluster))
    write_atomically(_list_file(state), text)
    return _parsed(text)


def listed(state: State) -> list[Backup]:
    """Last result of :func:`backups`; empty: there is none yet."""
    file = _list_file(state)
    return _parsed(file.read_text()) if file.exists() else []


def _parsed(text: str) -> list[Backup]:
    return [_backup(item) for stanza in json.loads(text) for item in stanza["backup"] if not item.get("error")]


async def verify(state: State) -> str:
    """Compare all files of the repository with their checksums. Raises OperationError if one is damaged."""
    report = await call(state, available(state), "verify", "--output=text", "--verbose")
    if "status: error" in report:
        raise OperationError(f"the repository is damaged:\n{report.strip()}")
    return report.strip()


def available(state: State) -> Cluster:
    """The cluster with its repository. Raises OperationError where there is none."""
    cluster = _own(state)
    if cluster.archive is None:
        raise OperationError("the configuration has no [backup] repository: add it and run `plantlog up`")
    if cluster.archive.held:
        raise OperationError(_inactive_text(cluster.archive))
    cluster.configure_archive()
    if not cluster.archive.archiving:
        raise OperationError(f"repository {cluster.archive.repository} was not accepted: `plantlog up` says why")
    return cluster


def _own(state: State) -> Cluster:
    if state.has_external_database:
        raise OperationError(_NOT_OURS)
    return existing(state.root)


def _backup(item: Any) -> Backup:
    started, ended = (datetime.fromtimestamp(item["timestamp"][name], UTC) for name in ("start", "stop"))
    info = item["info"]
    return Backup(item["label"], item["type"], started, ended, info["size"], info["repository"].get("delta", 0))
