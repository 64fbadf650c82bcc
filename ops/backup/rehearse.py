"""``plantlog admin backup rehearse``: restore into a scratch folder, start it, and compare it with what is here."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from core.database import connected, database_errors
from core.errors import OperationError
from core.files import folder_lock, write_atomically
from core.paths import State
from history.seals.verify import verify
from ops.backup.repository import available, backups
from ops.backup.restore import restore
from ops.postgres.server import Server
from schema.queries import load

_FOLDER = "rehearsal"  # in the state folder
_SPACE_FACTOR = 1.2  # times the database's size


@dataclass(frozen=True, slots=True)
class Proof:
    """The last backup that was restored and found whole."""

    label: str
    started: float  # of the backup, s since 1970
    at: float  # of the rehearsal
    batches: int
    sealed_days: int
    seconds: float

    @classmethod
    def load(cls, state: State) -> Proof | None:
        """The newest proof; None: no rehearsal has succeeded yet."""
        path = _path(state)
        return cls(**json.loads(path.read_text())) if path.exists() else None


def _path(state: State) -> Path:
    return state.run / "backup-proof.json"


def rehearse(state: State, progress: Callable[[str], None]) -> Proof:
    """Prove the newest backup. Raises OperationError if it lacks anything."""
    began = time.monotonic()
    archive = available(state).archive
    all_backups = asyncio.run(backups(state))
    if archive is None or not all_backups:
        raise OperationError("there is no backup yet: run `plantlog admin backup`")
    newest = all_backups[-1]
    scratch = State(state.root / _FOLDER / "state")
    with folder_lock(scratch.root.parent, lambda: progress("waiting for another rehearsal")):
        shutil.rmtree(scratch.root, ignore_errors=True)  # of a rehearsal that was killed
        if (free := shutil.disk_usage(state.root).free) < _SPACE_FACTOR * newest.size:
            raise OperationError(
                f"{state.root} has {free:,} bytes free: a rehearsal needs {_SPACE_FACTOR * newest.size:,.0f}"
            )
        try:
            cluster = restore(scratch, archive, None, progress, rehearsed=state)
            progress("comparing")
            with database_errors(), Server(scratch.root, cluster=cluster):
                proof = asyncio.run(_compare(state, scratch, newest.label, newest.started, began))
        finally:
            shutil.rmtree(scratch.root, ignore_errors=True)
    write_atomically(_path(state), json.dumps(asdict(proof)))
    return proof


async def _compare(state: State, scratch: State, label: str, started: datetime, began: float) -> Proof:
    original, restored = await _counts(state, started), await _counts(scratch, started)
    lacking = {name: (number, restored[name]) for name, number in original.items() if restored[name] < number}
    if lacking:
        text = ", ".join(f"{n_restored:,} of {number:,} {name}" for name, (number, n_restored) in lacking.items())
        raise OperationError(f"backup {label} has only {text}")
    reports = await verify(scratch.dsn("owner"), scratch, None, None, [], "all")
    if problems := [problem for report in reports for problem in report.unexplained]:
        more = f" (and {len(problems) - 1:,} more)" if len(problems) > 1 else ""
        raise OperationError(f"backup {label} is not as sealed: {problems[0]}{more}")
    days = len({day.day for report in reports for day in report.days})
    return Proof(label, started.timestamp(), time.time(), restored["batches"], days, time.monotonic() - began)


async def _counts(state: State, until: datetime) -> dict[str, int]:
    async with connected(state.dsn("owner"), "plantlog rehearse") as connection:
        row = await connection.fetchrow(load("backup")["select_counts"], until)
        return dict(row or {})
