"""Retention: what must go by age or for the disk's sake, and letting it go, one slice a transaction."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ingest import metrics
from ops.maintenance.budget import Choice, Unit, choose
from ops.maintenance.run import Connection, Done, Site
from ops.maintenance.settings import settings
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
    classes: tuple[str, ...] | None  # None: all
    why: str  # age, budget
    retention: tuple[str, ...]  # classes that it has
    channels: int
    rows: int
    bytes: int
    action: str  # chunk, rows; open, unsealed, dirty: it stays

    @property
    def goes(self) -> bool:
        """Whether it may go."""
        return self.action in ("chunk", "rows")


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes now, oldest first by reason, and how the budget stands."""

    slices: tuple[Slice, ...]
    size: int  # bytes of the database
    budget: int | None
    lacking: int  # bytes over the budget that can't be freed
    closed_until: datetime


async def plan(connection: Connection, aged_until: datetime | None = None) -> Plan:
    """What retention would do now. Changes nothing. ``aged_until``: ages were seen to for the days closed by then."""
    queries = load("maintenance")
    said = await settings(connection)
    due = [] if aged_until == said.closed_until else await connection.fetch(queries["due"])
    aged = [_slice(row, "age") for row in due]
    gone = [one for one in aged if one.action == "chunk"]
    size, budget = said.bytes, said.disk_budget
    choice = Choice()
    if budget is not None and size > budget:
        going = {(one.relation, one.from_time) for one in gone}
        rows = await connection.fetch(queries["closed_units"])
        units = [Unit(**row) for row in rows if (row["relation"], row["from_time"]) not in going]
        choice = choose(size - sum(one.bytes for one in gone), budget, units)
    chosen = [await _looked_at(connection, unit) for unit in choice.units]
    # What the budget takes whole needs no look at its classes' ages.
    whole = {(one.relation, one.from_time) for one in chosen if one is not None}
    kept = [one for one in aged if (one.relation, one.from_time) not in whole]
    slices = (*kept, *(one for one in chosen if one is not None))
    return Plan(slices, size, budget, choice.lacking, said.closed_until)


async def _looked_at(connection: Connection, unit: Unit) -> Slice | None:
    """A unit that the budget takes, as it would go; None: it is empty."""
    arguments = ("raw", unit.relation, unit.from_time, unit.to_time, None, "budget")
    row = await connection.fetchrow(load("maintenance")["drop_slice"], *arguments, True)
    return row and _slice({**row, "what": "raw", "relation": unit.relation, "classes": None, **_bounds(unit)}, "budget")


def _bounds(unit: Unit) -> dict[str, datetime]:
    return {"from_time": unit.from_time, "to_time": unit.to_time}


def _slice(row: Any, why: str) -> Slice:
    return Slice(
        row["what"],
        row["relation"],
        row["from_time"],
        row["to_time"],
        None if row["classes"] is None else tuple(row["classes"]),
        why,
        tuple(row["retention"]),
        row["channels"],
        row["rows"],
        row["bytes"],
        row["action"],
    )


class Retention:
    """The job. Ages are whole days, so they are looked at once for each day that closes; the budget every time."""

    def __init__(self) -> None:
        self._aged_until: datetime | None = None

    async def work(self, site: Site, connection: Connection) -> Done:
        """Drop what must go, each slice in a transaction of its own; what the time is too short for goes next time."""
        deadline = time.monotonic() + _SECONDS
        dropped: list[tuple[int, int]] = []
        while True:
            now = await plan(connection, self._aged_until)
            going = [one for one in now.slices if one.goes]
            for one in going:
                if time.monotonic() < deadline:
                    dropped.append(await _drop(connection, one))
            # What was packed while rows went is there in the other form now: looked at again until nothing is left.
            if not going or time.monotonic() >= deadline:
                break
        metrics.storage_lacking_bytes.set(now.lacking)
        if now.lacking:
            await _say_lacking(connection, now)
        if not now.slices:  # what waits for its seal is looked at again
            self._aged_until = now.closed_until
        rows, freed = sum(rows for rows, _ in dropped), sum(size for _, size in dropped)
        return Done(rows, freed, _in_words(now, sum(rows > 0 for rows, _ in dropped)), more=bool(going))


async def _drop(connection: Connection, one: Slice) -> tuple[int, int]:
    """Rows and bytes that went."""
    row = await connection.fetchrow(
        load("maintenance")["drop_slice"],
        *(one.what, one.relation, one.from_time, one.to_time, None if one.classes is None else list(one.classes)),
        *(one.why, False),
    )
    if row is None or row["action"] not in ("chunk", "rows"):
        return 0, 0
    log.info(
        "dropped by %s: %s from %s to %s, classes %s, %d channels, %d rows, %d bytes",
        *(one.why, one.relation, one.from_time, one.to_time, ", ".join(row["retention"])),
        *(row["channels"], row["rows"], row["bytes"]),
    )
    return row["rows"], row["bytes"]


async def _say_lacking(connection: Connection, now: Plan) -> None:
    said = "the disk budget can't be reached: nothing was dropped for it"
    log.warning("%s; %d MiB over it, %d MiB of them can't be freed", said, *_over(now))
    detail = {"why": "budget", "bytes": now.size, "budget": now.budget, "lacking": now.lacking}
    await connection.execute(load("maintenance")["tell"], said, json.dumps(detail))


def _over(now: Plan) -> tuple[int, int]:
    return (now.size - (now.budget or 0)) // _MIB, now.lacking // _MIB


def _in_words(now: Plan, dropped: int) -> str:
    waiting: dict[str, int] = {}
    for one in now.slices:
        if not one.goes:
            waiting[one.action] = waiting.get(one.action, 0) + 1
    said = [f"{dropped} dropped"] if dropped else []
    said += [f"{count} kept: {why}" for why, count in sorted(waiting.items())]
    if now.lacking:
        said.append("{} MiB over the disk budget, {} of them can't be freed".format(*_over(now)))
    return ", ".join(said)


def table_rows(slices: Sequence[Slice]) -> list[dict[str, Any]]:
    """Slices as ``plantlog retention --json`` prints them."""
    return [
        {
            "day": one.from_time.isoformat(),
            "until": one.to_time.isoformat(),
            "what": one.what,
            "relation": one.relation,
            "classes": list(one.retention),
            "channels": one.channels,
            "rows": one.rows,
            "bytes": one.bytes,
            "why": one.why,
            "action": one.action,
        }
        for one in slices
    ]
