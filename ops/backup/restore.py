"""``plantlog admin restore``: a database, and a state folder if there is none, from a repository and its passphrase."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from core.database import connected, database_errors
from core.errors import DatabaseError, OperationError
from core.paths import State
from ingest.gaps import open_gaps_note
from ingest.notes import Note
from ingest.opcua.subscription.sequence import SequenceTracker
from ingest.spool.file import connect as open_spool
from ingest.spool.file import read_notes, write_notes
from ops.backup import state_files
from ops.backup.pgbackrest import call
from ops.postgres.archive import ArchiveSettings, check_repository
from ops.postgres.binaries import PGBACKREST, provide
from ops.postgres.cluster import OWNER, Cluster
from ops.postgres.mounted import cluster_of
from ops.postgres.server import Server
from schema.queries import load

_LOGIN_SECONDS = 600.0  # of a server that has the time which others leave


def restore(
    state: State,
    repository: ArchiveSettings,
    at: datetime | None,
    progress: Callable[[str], None],
    rehearsed: State | None = None,
    take_over: bool = False,
    server_stopped: Callable[[], AbstractContextManager[None]] = nullcontext,
    before_start: Callable[[], object] = lambda: None,
) -> Cluster:
    """Restore the newest data, or those of ``at``, and start the server once, so that it recovers.

    A state folder that lost only its database keeps all it has. A new one gets the files of the backup, and
    configuration files go where they were; those that exist there are kept. A copy of an appliance that is
    ``rehearsed`` has its programs and no configuration, and its server does not archive; neither does that of any new
    one, unless it is to ``take_over`` the repository. The server is ``server_stopped`` while its data are made;
    ``before_start`` is called when they are there: its log says why it doesn't recover. A restore that failed or was
    killed can be repeated. Raises OperationError, with the database and its server as they were.
    """
    if (folder := repository.folder) is not None:
        check_repository(folder)
        if not (folder / "backup").is_dir():
            raise OperationError(f"{folder} has no backups of plantlog: is the right disk mounted?")
    binaries = provide((rehearsed or state).root, progress)
    cluster = Cluster(state.root, binaries) if rehearsed else cluster_of(state.root, binaries)
    if cluster.data.exists() and not (cluster.data / "recovery.signal").exists():
        raise OperationError(f"{state.root} has a database already: name a new folder with --into, or move it away")
    state.claim()
    cluster.binaries.check(PGBACKREST)
    before = cluster.archive
    copy = not state.installation.exists() or (before is not None and before.held)
    is_held = copy and not take_over
    cluster.archive = replace(repository, archiving=not (rehearsed or is_held), held=is_held)
    try:
        _check_backups(state, cluster)
        with server_stopped():
            _restore(state, cluster, at, progress, before_start, rehearsed)
    except BaseException:
        cluster.archive = before
        raise
    state_files.finish(state)
    return cluster


def _check_backups(state: State, cluster: Cluster) -> None:
    assert cluster.archive is not None
    cluster.folder.mkdir(parents=True, exist_ok=True)
    cluster.change_owner(cluster.folder)
    cluster.configure_archive()
    if "backup" not in asyncio.run(call(state, cluster, "repo-ls")).split():  # it also says what is wrong with a server
        raise OperationError(f"{cluster.archive.repository} has no backups of plantlog: is the path right?")


def _restore(
    state: State,
    cluster: Cluster,
    at: datetime | None,
    progress: Callable[[str], None],
    before_start: Callable[[], object],
    rehearsed: State | None,
) -> None:
    """Make the data, and recover them. What is not whole does not stay."""
    partial = cluster.data.with_name("data.restored")
    log = (rehearsed or state).log / ("rehearsal.log" if rehearsed else "postgres.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = log.stat().st_size if log.exists() else 0
    _remove(cluster.data, partial)
    try:
        _restore_files(state, cluster, at, progress, partial, configuration=rehearsed is None)
        before_start()
        progress("recovering")
        with database_errors(), Server(state.root, cluster=cluster, log=log):
            asyncio.run(_catch_up(state))
    except BaseException as error:
        _remove(cluster.data, partial)
        if isinstance(error, DatabaseError):
            words = _last_words(log, begin) or error
            raise OperationError(f"the restored database does not recover: {words} (see {log})") from error
        raise


async def _catch_up(state: State) -> None:
    """Set the owner's password, and bring what the spools note up to what the database has.

    The secrets of containers on a new machine are others than those of the backup. A state folder that was not lost has
    newer notes, and the writer notices by itself what it has to write again.
    """
    dsn = state.dsn("owner")
    async with connected(dsn, "plantlog restore", seconds=_LOGIN_SECONDS) as connection:
        password = await connection.fetchval(load("migrate")["format_login"], OWNER, urlsplit(dsn).password)
        await connection.execute(password)
        if not state.installation.exists():
            await bring_up_to_date(connection, state.spool)


def _last_words(log: Path, begin: int) -> str:
    """The last error in the server's log, "" without one. Lines of sessions, which have a user, are not among them."""
    errors = re.findall(r"\] (?:FATAL|PANIC):  (.*)", log.read_bytes()[begin:].decode(errors="replace"))
    return errors[-1] if errors else ""


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _restore_files(
    state: State,
    cluster: Cluster,
    at: datetime | None,
    progress: Callable[[str], None],
    partial: Path,
    *,
    configuration: bool,
) -> None:
    partial.mkdir(mode=0o700)
    cluster.change_owner(partial)
    progress("restoring the data directory")
    target = ["--type=default"]
    if at is not None:
        target = ["--type=time", f"--target={at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f+00}", "--target-action=promote"]
    command = f"--recovery-option=restore_command={cluster.archive_command} archive-get %f %p"
    asyncio.run(call(state, cluster, "restore", *target, command, data=partial))
    packed = partial / state_files.NAME
    if state.installation.exists():
        state_files.check(packed, state)
    else:
        for path in state_files.unpack(packed, state, configuration=configuration):
            progress(f"{path} exists and was kept as it is")
        cluster.move()  # the DSNs are those of where the backup was made
    packed.unlink()
    partial.rename(cluster.data)


async def bring_up_to_date(connection: asyncpg.Connection[Any], folder: Path) -> None:
    """Update the notes on reads and open gaps of each source. Raises SpoolError and what the database raises."""
    newest = await connection.fetch(load("backup")["select_newest"])
    open_gaps = await connection.fetch(load("backup")["select_open_gaps"])
    gaps: dict[int, list[tuple[int | None, int, str, str]]] = defaultdict(list)
    for source, *gap in open_gaps:
        gaps[source].append((gap[0], gap[1], gap[2], gap[3]))
    for row in newest:
        path = folder / f"{row['kind']}.sqlite"
        if path.exists():
            with closing(open_spool(path, "FULL", create=False)) as spool:
                write_notes(spool, _notes(row["id"], row["time"], gaps[row["id"]], read_notes(spool)))


def _notes(
    source: int, newest: int | None, gaps: list[tuple[int | None, int, str, str]], before: dict[str, str]
) -> dict[str, str]:
    """Notes of a source that have to change (``ingest/downtime.py``, ``gaps.py``, ``opcua/subscription``)."""
    notes = {Note.OPEN_GAPS.of(source): open_gaps_note(gaps)}
    for name, value in before.items():
        if newest is not None and name == Note.LAST_SEEN.of(source):
            notes[name] = str(max(int(value), newest))
        elif newest is not None and name.startswith(Note.OPCUA.of(source) + ":"):
            tracker = SequenceTracker.read(value)
            notes[name] = SequenceTracker(tracker.first, max(tracker.complete_to, newest)).note()
    return notes
