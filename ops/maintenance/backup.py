"""The jobs that make and prove backups."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import UTC, datetime

from core import metrics
from core.config.model import BackupOptions
from core.errors import OperationError
from core.paths import State
from ops.backup.rehearse import Proof
from ops.backup.repository import AnotherBackupError, Backup, back_up, backups, due_file, listed, options_in_force
from ops.backup.state_files import changed_at
from ops.maintenance.job import Connection, JobContext, JobResult, JobSkipped
from ops.postgres.mounted import existing
from schema.queries import load

_NO_REPOSITORY = JobSkipped("[backup] has no repository")
_REHEARSE_SECONDS = 7 * 86400.0
_CHANGED_SECONDS = 3600.0  # at least between backups that only have other keys or another configuration
_EARLY_SECONDS = 60.0  # s: jobs don't start to the second
_SEGMENT_BYTES = 16 * 1024**2


async def back_up_when_due(context: JobContext, connection: Connection) -> JobResult | JobSkipped:
    """A full or an incremental backup by ``[backup]``; sets the gauges ``plantlog_backup_*``."""
    state, options = context.state, options_in_force(context.state)
    if options.repository is None:
        return _NO_REPOSITORY
    await connection.fetch(load("backup")["wake_checkpointer"])
    row = await connection.fetchrow(load("backup")["select_waiting_wal"])
    assert row is not None
    waiting, failing = row
    metrics.backup_waiting_wal.set(waiting)
    metrics.backup_interval.set(options.every)
    archive = existing(state.root).archive
    if archive is not None and waiting * _SEGMENT_BYTES > archive.max_wal / 2:
        due_file(state).touch()  # beyond max_wal all of it is dropped at once
    all_backups = listed(state)
    _show(state, all_backups)
    if failing or not all_backups:  # else the repository is not asked
        all_backups = await backups(state)
    now = time.time() + _EARLY_SECONDS
    full = (
        now - max((b.started.timestamp() for b in all_backups if b.kind == "full"), default=0.0) >= options.full_every
    )
    if full or _is_due(state, options, all_backups[-1].started.timestamp(), now):
        try:
            all_backups.append(await back_up(state, full))
        except AnotherBackupError as error:
            return JobSkipped(str(error))
    proven = _show(state, all_backups)
    return JobResult(detail=f"newest: {all_backups[-1].started:%F %R} UTC; {proven}")


def _show(state: State, all_backups: list[Backup]) -> str:
    proof = Proof.load(state)
    metrics.backup_last.set(all_backups[-1].started.timestamp() if all_backups else 0)
    metrics.backup_proven.set(0 if proof is None else proof.started)
    return "none proven" if proof is None else f"proven: {datetime.fromtimestamp(proof.started, UTC):%F %R}"


def _is_due(state: State, options: BackupOptions, last: float, now: float) -> bool:
    changed = changed_at(state) > last and now - last >= _CHANGED_SECONDS
    return changed or due_file(state).exists() or now - last >= options.every


async def rehearse_when_due(context: JobContext, connection: Connection) -> JobResult | JobSkipped:
    """``plantlog admin backup rehearse`` once a week, in a process of its own."""
    if options_in_force(context.state).repository is None:
        return _NO_REPOSITORY
    all_backups = listed(context.state)
    if not all_backups:
        return JobSkipped("not run yet: no backup was listed")
    proof = Proof.load(context.state)
    if proof is not None and (time.time() - proof.at < _REHEARSE_SECONDS or proof.label == all_backups[-1].label):
        return JobResult(detail=f"proven: {proof.label}")
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", "10", sys.executable, "-P", "-m", "ops", "admin", "backup", "rehearse"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PLANTLOG_STATE": str(context.state.root)},
    )
    try:
        output = (await process.communicate())[0].decode(errors="replace").strip()
    except BaseException:
        process.send_signal(signal.SIGINT)  # it stops its server and removes its folder
        await process.wait()
        raise
    last_line = (output.splitlines() or ["the rehearsal failed"])[-1].removeprefix("plantlog: ")
    if process.returncode:
        raise OperationError(last_line)
    return JobResult(detail=last_line)
