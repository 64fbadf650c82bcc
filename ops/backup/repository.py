"""The repository: set up by ``up``, written by ``backup``, read by ``backup list`` and ``backup verify``."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ingest.config.model import BackupOptions
from ingest.config.snapshot import in_force
from ingest.errors import OperationError
from ops.backup import state_files
from ops.paths import State
from ops.postgres.archive import Archive, check_writable
from ops.postgres.binaries import provide_pgbackrest
from ops.postgres.cluster import Cluster, existing

# What pgBackRest's error codes mean for an operator (src/build/error/error.yaml).
_MEANINGS = {
    28: "the repository belongs to another plant: choose an empty folder",
    50: "another backup is running",
    55: "files are missing: is the right disk mounted?",
    56: "the database does not respond",
    75: "it has no backup of that time",
    82: "it does not take the write-ahead log: see `plantlog logs postgres`",
}
_WAL_PART = 8  # of its disk that waiting write-ahead log may take
_UNREADABLE = re.compile("FormatError|CryptoError")
_WRONG_KEY = "the passphrase is not that of the repository, or its files are damaged"
_ANSWERED = (0, 2)  # status codes of `info`: whole, no backup yet
_ERROR = re.compile(r"ERROR: \[(\d+)\]: (.*(?:\n {2,}.*)*)")


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
        raise OperationError("[backup] is for plantlog's own database: back up that of PLANTLOG_DSN where it runs")
    provide_pgbackrest(cluster.binaries, progress)
    before = cluster.archive
    max_wal = min(options.max_wal, shutil.disk_usage(cluster.data).total // _WAL_PART)
    keep_days = math.ceil(options.keep / 86400)
    wanted = Archive(options.repository, options.passphrase_file.read_text().strip(), keep_days, max_wal)
    archiving = before is not None and before.archiving and before.repository == wanted.repository
    cluster.archive = replace(wanted, archiving=archiving)
    try:
        cluster.configure_archive()
        if not archiving:  # once: a folder that is empty later is a disk that is not mounted
            asyncio.run(call(state, cluster, "stanza-create", "--no-online"))
            cluster.archive = replace(wanted, archiving=True)
    except OperationError as error:
        return [f"no backups: {error}"]
    return []


async def back_up(state: State, full: bool) -> Backup:
    """Make a backup now. Raises OperationError."""
    cluster = of(state)
    assert cluster.archive is not None
    check_writable(cluster.archive.path)
    path = cluster.data / state_files.NAME
    state_files.pack(state, path)
    try:
        cluster.give(path)
        await call(state, cluster, "backup", f"--type={'full' if full else 'incr'}", nice=True)
    finally:
        path.unlink()
    return (await backups(state))[-1]


async def backups(state: State) -> list[Backup]:
    """All backups, oldest first. Raises OperationError."""
    cluster = of(state)
    found = json.loads(await call(state, cluster, "info", "--output=json"))
    for stanza in found:
        if stanza["status"]["code"] not in _ANSWERED:
            message = stanza["status"]["message"]
            raise OperationError(
                f"repository {cluster.archive and cluster.archive.repository}: {message}: is the right disk mounted?"
            )
    return [_backup(item) for stanza in found for item in stanza["backup"] if not item.get("error")]


async def verify(state: State) -> str:
    """Compare all files of the repository with their checksums. Raises OperationError if one is damaged."""
    report = await call(state, of(state), "verify", "--output=text", "--verbose")
    if "status: error" in report:
        raise OperationError(f"the repository is damaged:\n{report.strip()}")
    return report.strip()


def of(state: State) -> Cluster:
    """The cluster with its repository. Raises OperationError where there is none."""
    cluster = existing(state.root)
    if cluster.archive is None:
        raise OperationError("the configuration has no [backup] repository: add it and run `plantlog up`")
    cluster.configure_archive()
    if not cluster.archive.archiving:
        raise OperationError(f"repository {cluster.archive.repository} was not accepted: `plantlog up` says why")
    return cluster


async def call(state: State, cluster: Cluster, *arguments: str, data: Path | None = None, nice: bool = False) -> str:
    """The output of pgBackRest. Ends it when cancelled. Raises OperationError with what it said.

    ``data``: another data directory than the server's; ``nice``: ingest goes first.
    """
    password = urlsplit(state.dsn("owner")).password or "" if state.dsn_file("owner").exists() else ""
    process = await asyncio.create_subprocess_exec(
        *(("nice", "-n", "19") if nice else ()),
        *cluster.pgbackrest(*arguments, data=data),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env={**os.environ, "PGPASSWORD": password},
    )
    try:
        output, errors = (text.decode(errors="replace") for text in await process.communicate())
    except BaseException:
        process.terminate()
        await process.wait()
        raise
    if process.returncode:
        raise OperationError(_explain(arguments[0], output + errors, cluster))
    return output


def _explain(command: str, text: str, cluster: Cluster) -> str:
    repository = "" if cluster.archive is None else cluster.archive.repository
    found = _ERROR.search(text)
    if found is None:
        return f"pgbackrest {command}, repository {repository}: {text.strip()[-500:]}"
    meaning = _WRONG_KEY if _UNREADABLE.search(text) else _MEANINGS.get(int(found[1]))
    message = f"pgbackrest {command}: [{found[1]}] {found[2].splitlines()[0]}"
    return f"repository {repository}: {meaning} ({message})" if meaning else f"repository {repository}: {message}"


def _backup(item: Any) -> Backup:
    started, ended = (datetime.fromtimestamp(item["timestamp"][name], UTC) for name in ("start", "stop"))
    info = item["info"]
    return Backup(item["label"], item["type"], started, ended, info["size"], info["repository"].get("delta", 0))
