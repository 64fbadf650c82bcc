"""Retention: drop data by age or disk budget, one slice per transaction."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from core import metrics
from core.errors import DatabaseError
from core.paths import State
from core.sealing_key import load_sealing_key, receipt_statement
from ops.maintenance.disk_budget import BudgetChoice, StorageUnit, choose
from ops.maintenance.job import Connection, JobContext, JobResult
from schema.queries import load

log = logging.getLogger(__name__)

_MIB = 1024**2
_SECONDS = 240.0  # of a run, after which it begins no other slice


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a table that is to go, or that ought to and may not (``action`` says why)."""

    what: str  # raw, 1m, 1h, event
    relation: str
    from_time: datetime
    to_time: datetime
    classes: Sequence[str] | None  # None: all
    retention: Sequence[str]  # classes that it has
    channels: int
    rows: int
    bytes: int
    action: str  # chunk, rows; open, unsealed, unarchived, dirty: it stays
    why: str  # age, budget

    @property
    def droppable(self) -> bool:
        """Return whether the slice may be dropped."""
        return self.action in ("chunk", "rows")


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Plan of what goes now, oldest first by reason, and how the budget stands."""

    slices: tuple[Slice, ...]
    size: int  # bytes of the database
    budget: int | None
    lacking: int  # bytes over the budget that can't be freed
    closed_until: datetime


async def plan(connection: Connection, aged_until: datetime | None = None) -> RetentionPlan:
    """Plan retention. Changes nothing. ``aged_until``: ages were seen to for the days closed by then."""
    queries = load("maintenance")
    parts = await settings(connection)
    due = [] if aged_until == parts.closed_until else await connection.fetch(queries["select_due_retention"])
    aged = [Slice(**row, why="age") for row in due]
    whole_chunks = [slice_ for slice_ in aged if slice_.action == "chunk"]
    size, budget = parts.bytes, parts.disk_budget
    choice, chosen = BudgetChoice(), list[Slice]()
    if budget is not None and size > budget:
        to_drop = {(slice_.relation, slice_.from_time) for slice_ in whole_chunks}
        rows = await connection.fetch(queries["select_closed_units"])
        units = [StorageUnit(**row) for row in rows if (row["relation"], row["from_time"]) not in to_drop]
        choice, chosen = await _choose(connection, size - sum(slice_.bytes for slice_ in whole_chunks), budget, units)
    # What the budget takes whole needs no look at its classes' ages.
    taken_whole = {(slice_.relation, slice_.from_time) for slice_ in chosen}
    by_age = [slice_ for slice_ in aged if (slice_.relation, slice_.from_time) not in taken_whole]
    return RetentionPlan((*by_age, *chosen), size, budget, choice.lacking, parts.closed_until)


async def _choose(
    connection: Connection, size: int, budget: int, units: Sequence[StorageUnit]
) -> tuple[BudgetChoice, list[Slice]]:
    """Choose units for the budget to drop. Only units that it would take are looked at: that costs up to a second."""
    slices: dict[StorageUnit, Slice | None] = {}  # None: it is empty
    while True:
        choice = choose(size, budget, units)
        for unit in choice.units:
            if unit not in slices:
                slices[unit] = await _slice_of(connection, unit)
        chosen = {unit: slices[unit] for unit in choice.units}
        kept = {unit for unit, slice_ in chosen.items() if slice_ is not None and slice_.action == "unarchived"}
        if not kept:
            return choice, [slice_ for slice_ in chosen.values() if slice_ is not None]
        units = [replace(unit, free=unit.free and unit not in kept) for unit in units]


async def _slice_of(connection: Connection, unit: StorageUnit) -> Slice | None:
    """A unit that the budget takes, as it would go; None: it is empty."""
    arguments = ("raw", unit.relation, unit.from_time, unit.to_time, None, "budget")
    row = await connection.fetchrow(load("maintenance")["drop_slice"], *arguments, True)
    return row and Slice("raw", unit.relation, unit.from_time, unit.to_time, None, **row, why="budget")


class Retention:
    """The job. Ages are whole days, so they are looked at once for each day that closes; the budget every time."""

    def __init__(self) -> None:
        self._aged_until: datetime | None = None

    async def work(self, context: JobContext, connection: Connection) -> JobResult:
        """Drop slices, each in a transaction of its own; the next run continues if time is up."""
        deadline = time.monotonic() + _SECONDS
        dropped: list[tuple[int, int]] = []
        while True:
            now = await plan(connection, self._aged_until)
            to_drop = [slice_ for slice_ in now.slices if slice_.droppable]
            for slice_ in to_drop:
                if time.monotonic() < deadline:
                    async with connection.transaction():
                        dropped.append(await _drop(connection, slice_, context.state))
            # Rows that were packed meanwhile are in packed hours now: repeat until nothing is left.
            if not to_drop or time.monotonic() >= deadline:
                break
        metrics.storage_lacking_bytes.set(now.lacking)
        if now.lacking:
            await _report_lacking(connection, now)
        if not now.slices:  # what waits for its seal is looked at again
            self._aged_until = now.closed_until
        rows, freed = sum(rows for rows, _ in dropped), sum(size for _, size in dropped)
        return JobResult(rows, freed, _summary(now, sum(rows > 0 for rows, _ in dropped)), more=bool(to_drop))


async def _drop(connection: Connection, slice_: Slice, state: State) -> tuple[int, int]:
    """Rows and bytes that went, with a receipt that is signed: only this explains why sealed data are missing."""
    queries = load("maintenance")
    started = await connection.fetchval(queries["select_clock"])
    target = slice_.what, slice_.relation, slice_.from_time, slice_.to_time, slice_.classes
    row = await connection.fetchrow(queries["drop_slice"], *target, slice_.why, False)
    if row is None or row["action"] not in ("chunk", "rows"):
        return 0, 0
    key = load_sealing_key(state.root)
    if key is not None:
        content = await connection.fetchval(queries["select_last_retention"], started, slice_.what, slice_.relation)
        signer = hashlib.sha256(key.public_key().public_bytes_raw()).digest()
        signature = key.sign(receipt_statement("retention", content.encode()))
        day = slice_.from_time.astimezone(UTC).date()
        await connection.execute(queries["insert_retention_receipt"], day, content.encode(), signer, signature)
    log.info(
        "dropped by %s: %s from %s to %s, classes %s, %d channels, %d rows, %d bytes",
        *(slice_.why, slice_.relation, slice_.from_time, slice_.to_time, ", ".join(row["retention"])),
        *(row["channels"], row["rows"], row["bytes"]),
    )
    return row["rows"], row["bytes"]


async def _report_lacking(connection: Connection, now: RetentionPlan) -> None:
    parts = "disk budget cannot be met; nothing was dropped for it"
    log.warning("%s; %d MiB over budget, %d MiB of which cannot be freed", parts, *_excess_mib(now))
    detail = {"why": "budget", "bytes": now.size, "budget": now.budget, "lacking": now.lacking}
    await connection.execute(load("maintenance")["record_retention"], parts, json.dumps(detail))


def _excess_mib(now: RetentionPlan) -> tuple[int, int]:
    return (now.size - (now.budget or 0)) // _MIB, now.lacking // _MIB


def _summary(now: RetentionPlan, dropped: int) -> str:
    waiting: dict[str, int] = {}
    for slice_ in now.slices:
        if not slice_.droppable:
            waiting[slice_.action] = waiting.get(slice_.action, 0) + 1
    parts = [f"{dropped} dropped"] if dropped else []
    parts += [f"{count} kept: {why}" for why, count in sorted(waiting.items())]
    if now.lacking:
        parts.append("{} MiB over the disk budget, {} MiB of which cannot be freed".format(*_excess_mib(now)))
    return ", ".join(parts)


def table_rows(slices: Sequence[Slice]) -> list[dict[str, Any]]:
    """Slices as ``plantlog admin retention --json`` prints them."""
    return [
        {
            "day": slice_.from_time.isoformat(),
            "until": slice_.to_time.isoformat(),
            "what": slice_.what,
            "relation": slice_.relation,
            "classes": list(slice_.retention),
            "channels": slice_.channels,
            "rows": slice_.rows,
            "bytes": slice_.bytes,
            "why": slice_.why,
            "action": slice_.action,
        }
        for slice_ in slices
    ]


@dataclass(frozen=True, slots=True)
class Settings:
    """Read in one query, with what depends on the clock."""

    late_until: datetime  # what is before is closed: its time for late data is over
    closed_until: datetime  # the same in whole days (UTC)
    disk_budget: int | None  # bytes
    bytes: int  # of the database now


async def settings(connection: Connection) -> Settings:
    """Present settings."""
    row = await connection.fetchrow(load("maintenance")["select_settings"])
    if row is None:
        raise DatabaseError("a SELECT without FROM gave no row")
    return Settings(**row)
