"""The jobs that make and prove backups."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import UTC, datetime

from ingest import metrics
from ingest.config.model import BackupOptions
from ingest.errors import OperationError
from ops.backup.rehearse import Proof
from ops.backup.repository import back_up, backups, options_in_force
from ops.backup.state_files import changed_at
from ops.maintenance.run import Connection, JobContext, JobResult, JobSkipped
from ops.postgres.cluster import existing
from schema.queries import load

_NO_REPOSITORY = JobSkipped("[backup] has no repository")
_REHEARSE_SECONDS = 7 * 86400.0
_CHANGED_SECONDS = 3600.0  # at least between backups that only have other keys or another configuration
_EARLY = 60.0  # s: jobs don't start to the second
_SEGMENT_BYTES = 16 * 1024**2


class Backups:
    """Makes a backup where one is due."""

    def __init__(self) -> None:
        self._wal_may_be_lost = False

    async def work(self, context: JobContext, connection: Connection) -> JobResult | JobSkipped:
        """A full or an incremental backup by ``[backup]``; sets the gauges ``plantlog_backup_*``."""
        options = options_in_force(context.state)
        if options.repository is None:
            return _NO_REPOSITORY
        await connection.fetch(load("backup")["wake_checkpointer"])
        waiting = await connection.fetchval(load("backup")["select_waiting_wal"])
        metrics.backup_waiting_wal.set(waiting)
        archive = existing(context.state.root).archive
        self._wal_may_be_lost |= archive is not None and waiting * _SEGMENT_BYTES > archive.max_wal / 2
        found = await backups(context.state)
        now = time.time() + _EARLY
        full = now - max((b.started.timestamp() for b in found if b.kind == "full"), default=0.0) >= options.full_every
        if full or self._is_due(context, options, found[-1].started.timestamp(), now):
            found.append(await back_up(context.state, full))
            self._wal_may_be_lost = False
        proof = Proof.load(context.state)
        metrics.backup_last.set(found[-1].started.timestamp())
        metrics.backup_proven.set(0 if proof is None else proof.started)
        proven = "none proven" if proof is None else f"proven: {datetime.fromtimestamp(proof.started, UTC):%F %R}"
        return JobResult(detail=f"newest: {found[-1].started:%F %R} UTC; {proven}")

    def _is_due(self, context: JobContext, options: BackupOptions, last: float, now: float) -> bool:
        changed = changed_at(context.state) > last and now - last >= _CHANGED_SECONDS
        return changed or self._wal_may_be_lost or now - last >= options.every


async def rehearse_when_due(context: JobContext, connection: Connection) -> JobResult | JobSkipped:
    """``plantlog backup rehearse`` once a week, in a process of its own."""
    if options_in_force(context.state).repository is None:
        return _NO_REPOSITORY
    found = await backups(context.state)
    if not found:
        return JobSkipped("no backup yet")
    proof = Proof.load(context.state)
    if proof is not None and (time.time() - proof.at < _REHEARSE_SECONDS or proof.label == found[-1].label):
        return JobResult(detail=f"proven: {proof.label}")
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", "19", sys.executable, "-P", "-m", "ops", "backup", "rehearse"),
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
    last_line = (output.splitlines() or ["the rehearsal failed"])[-1]
    if process.returncode:
        raise OperationError(last_line)
    return JobResult(detail=last_line)
