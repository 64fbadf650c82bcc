"""What accounts for a difference between stored data and their seal.

A difference is explained where arrival evidence says how it came: batches of the channel's source written since the
seal that reach into the hour (samples added), a deletion or retention on record (samples missing). A change at equal
count is never explained: nothing that plantlog does alters a stored sample. Two things can't be told from honest
ones: a forger who also writes the evidence, and samples changed in an hour that late data came for before its amended
seal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from ingest.timestamps import utc
from ops.evidence.partial_digests import MARGIN
from ops.evidence.reader import begin
from ops.evidence.report import Finding
from ops.evidence.scope import Scope
from ops.evidence.seal_store import SealedDay
from ops.evidence.standalone import Difference
from ops.formatting import count
from schema.queries import load


@dataclass(frozen=True, slots=True)
class _Removal:
    """A deletion, or what retention took; channels None: of all."""

    kind: str
    what: str  # raw, event
    channels: frozenset[int] | None
    description: str

    @classmethod
    def of(cls, row: asyncpg.Record) -> _Removal:
        """From section ``select_removals``."""
        why = f" ({row['why']})" if row["why"] else ""
        description = f"{row['type']} recorded at {row['time'].isoformat(timespec='seconds')}{why}"
        return cls(
            row["type"], row["what"], None if row["channels"] is None else frozenset(row["channels"]), description
        )

    def covers(self, channel: int | None) -> bool:
        """Whether samples of a channel (None: events) can have gone with it."""
        if channel is None:
            return self.what == "event"
        return self.what == "raw" and (self.channels is None or channel in self.channels)


async def explain(
    connection: asyncpg.Connection[Any], sealed: SealedDay, differences: Sequence[Difference], scope: Scope
) -> list[Finding]:
    """Each difference of a day with what explains it."""
    if not differences:
        return []
    queries = load("evidence")
    since = utc(sealed.seals[-1].read_from) - MARGIN
    sources_of: dict[int | None, set[int]] = {}
    for row in await connection.fetch(queries["select_channel_sources"]):
        sources_of.setdefault(row["id"], set()).add(row["source_id"])
    # What came of a source must account for all that was added to its channels, not for each hour alone.
    added: dict[int, int] = {}
    for one in differences:
        if one.channel_id is not None and one.kind == "added":
            for source in sources_of.get(one.channel_id, ()):
                added[source] = added.get(source, 0) + one.found - one.sealed
    whole = await _arrivals(connection, scope, since, begin(sealed.day), begin(sealed.day, 24))
    enough = {
        row["source_id"] for row in whole if row["kind"] == "samples" and row["rows"] >= added.get(row["source_id"], 0)
    }
    arrivals: dict[int | None, list[asyncpg.Record]] = {None: whole}
    removals: dict[int | None, list[_Removal]] = {}
    imports: dict[int | None, str] = {}
    for hour in {one.hour for one in differences}:
        span = (begin(sealed.day, hour or 0), begin(sealed.day, 24 if hour is None else hour + 1))
        if hour is not None:
            arrivals[hour] = await _arrivals(connection, scope, since, *span)
        files = await connection.fetch(load("history_import")["select_imports"], since, *span)
        imports[hour] = "".join(f", imported from {row['file']}" for row in files)
        removals[hour] = [_Removal.of(row) for row in await connection.fetch(queries["select_removals"], since, *span)]
    findings = []
    for one in differences:
        sources = sources_of.get(one.channel_id, set()) & enough
        came = [row for row in arrivals[one.hour] if one.channel_id is None or row["source_id"] in sources]
        why = _explanation(one, came, removals[one.hour])
        findings.append(Finding(one, why + imports[one.hour] if why and one.kind == "added" else why))
    return findings


async def _arrivals(
    connection: asyncpg.Connection[Any], scope: Scope, since: datetime, *span: datetime
) -> list[asyncpg.Record]:
    """What is on record to have come into a span of time since a moment."""
    rows = await connection.fetch(load("evidence")["select_arrivals"], since, *span)
    return [row for row in rows if scope.covers(row["source_id"])]


def _explanation(one: Difference, arrivals: Sequence[asyncpg.Record], removals: Sequence[_Removal]) -> str:
    """What is on record that accounts for a difference; empty: nothing does."""
    if one.what == "gaps" and one.channel_id is None:
        came = [row for row in arrivals if row["kind"] == "gaps"]
        return _describe_arrivals(came) if came else ""
    # What was deleted may have come anew, and otherwise; what retention took is not changed by it.
    removals_covering = [
        row for row in removals if row.covers(one.channel_id) and (one.kind == "missing" or row.kind == "deleted")
    ]
    if one.kind == "missing":
        return removals_covering[0].description if removals_covering else ""
    kinds = ("samples",) if one.channel_id is not None else ("samples", "events")  # conflicts are events
    came = [row for row in arrivals if row["kind"] in kinds]
    if one.kind == "changed":
        return f"{removals_covering[0].description}; {_describe_arrivals(came)}" if removals_covering and came else ""
    enough = sum(row["rows"] for row in came) >= one.found - one.sealed
    return _describe_arrivals(came) + "; an amended seal is due" if came and enough else ""


def _describe_arrivals(rows: Sequence[asyncpg.Record]) -> str:
    batches, n = sum(row["batches"] for row in rows), sum(row["rows"] for row in rows)
    first = min(row["written_from"] for row in rows).isoformat(timespec="seconds")
    return f"late data: {count(n, 'row')} in {count(batches, 'batch')} reaching into it, written from {first} on"
