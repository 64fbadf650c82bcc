"""Writes a seal: the digests of a day, signed, behind the newest one of the chain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any

import asyncpg

from ingest.timestamps import microseconds, utc
from ops.evidence import partial_digests
from ops.evidence.keys import Signer
from ops.evidence.partial_digests import MARGIN, ByHour
from ops.evidence.reader import begin, event_rows, events_of, gap_rows, gaps_digest
from ops.evidence.scope import Scope
from ops.evidence.seal_store import SealedDay, seals
from ops.evidence.standalone import ChannelDigests, HourDigests, Revision, Seal, names_of, root_of, tagged_hash
from schema.queries import load

_NONE = HourDigests((0,) * 24, ())


@dataclass(frozen=True, slots=True)
class SealResult:
    """A seal that was made, and how."""

    seal: Seal
    seconds: float
    differs: str


async def write_seal(
    connection: asyncpg.Connection[Any],
    key: Signer,
    day: date,
    scope: Scope,
    sealed: SealedDay | None,
    started: datetime,
    since: datetime,
) -> SealResult | None:
    """Write the seal of a day by the digests so far, in the snapshot that the caller has. None: there is no news.

    ``sealed``: the day as it was sealed before; ``since``: what came from then on is news of gaps.
    """
    queries = load("evidence")
    before = sealed.hours() if sealed else {}
    rows, differing = [], []
    revision = len(sealed.seals) if sealed else 0
    text = await connection.fetchval(queries["build_document"], begin(day), begin(day, 24), scope.number)
    names = names_of(text)
    for number, read in (await partial_digests.digests_so_far(connection, day, scope)).items():
        before_hours = before[number].by_hour() if number in before else {}
        hours = HourDigests.of({hour: found for hour, found in {**before_hours, **read}.items() if found[0]})
        if hours != before.get(number, _NONE):
            rows.append(
                ChannelDigests(number, revision, hours, hours.digest("channel", number) if any(hours.n) else b"")
            )
            differing += (
                _changed_hours(number, names.get(number, ("", ""))[0], before_hours, hours.by_hour()) if sealed else []
            )
    parts, gaps, others = await _parts(connection, day, scope, sealed, text, since)
    if sealed and not rows and not others:
        await connection.execute(queries["delete_progress"], scope.chain, day)
        return None
    differs = json.dumps({"channels": differing, **others}) if sealed else ""
    all_rows = [*(sealed.rows if sealed else ()), *rows]
    samples = sum(sum(h.n) for h in {**before, **{r.channel_id: r.hours for r in rows if r.hours}}.values())
    newest = {row.channel_id: row for row in all_rows}
    last = next(iter(await seals(connection, scope.chain, 1)), None)
    sealed_at = await connection.fetchval(queries["select_clock"])
    seal = Seal(
        last.serial + 1 if last else 1,
        day.isoformat(),
        revision,
        "amended" if sealed else "first",
        "",
        last.hash() if last else "0" * 64,
        microseconds(started),
        microseconds(sealed_at),
        samples,
        sum(1 for row in newest.values() if row.digest),
        sum(parts.events.n),
        gaps,
        sha256(differs.encode()).hexdigest(),
        key.fingerprint,
        installation=scope.number,
    )
    seal = replace(seal, root=root_of(seal, parts, all_rows).hex())
    seal = replace(seal, signature=key.sign(seal.statement()))
    await connection.execute(queries["insert_document"], parts.document, text)
    await _insert(connection, seal, day, parts, differs)
    records = [
        (day, scope.number, revision, r.channel_id, list(r.hours.n), b"".join(r.hours.digests)) for r in rows if r.hours
    ]
    columns = ("day", "installation", "revision", "channel_id", "n", "digests")
    await connection.copy_records_to_table("seal_digest", schema_name="plant", records=records, columns=columns)
    await connection.execute(queries["delete_progress"], scope.chain, day)
    return SealResult(seal, (sealed_at - started) / timedelta(seconds=1), differs)


async def _parts(
    connection: asyncpg.Connection[Any], day: date, scope: Scope, sealed: SealedDay | None, text: str, since: datetime
) -> tuple[Revision, int, dict[str, Any]]:
    """What besides the channels is sealed, the number of gaps, and what differs from the revision before."""
    events = await events_of(event_rows(connection, day, scope), day)
    gaps = await gap_rows(connection, day, scope)
    digest, n_gaps, differs = gaps_digest(gaps), len(gaps), dict[str, Any]()
    if sealed:
        last, before_hours = sealed.parts[-1], sealed.parts[-1].events.by_hour()
        # Events are only ever added, and what is known of gaps comes in batches: else it is a difference, no news.
        explained = {h: found for h, found in events.by_hour().items() if found[0] > before_hours.get(h, (0, b""))[0]}
        events = HourDigests.of({**before_hours, **explained})
        if explained:
            differs["events"] = [
                {"hour": h, "before": before_hours.get(h, (0, b""))[0], "after": explained[h][0]}
                for h in sorted(explained)
            ]
        arrivals = await connection.fetch(
            load("evidence")["select_arrivals"], since - MARGIN, begin(day), begin(day, 24)
        )
        if digest != last.gaps and any(row["kind"] == "gaps" and scope.covers(row["source_id"]) for row in arrivals):
            differs["gaps"] = {"before": sealed.seals[-1].gaps, "after": n_gaps}
        else:
            digest, n_gaps = last.gaps, sealed.seals[-1].gaps
    return Revision(tagged_hash("document", text.encode()), events, digest), n_gaps, differs


async def _insert(connection: asyncpg.Connection[Any], seal: Seal, day: date, parts: Revision, differs: str) -> None:
    await connection.execute(
        load("evidence")["insert_seal"],
        *(seal.serial, day, seal.revision, seal.kind, bytes.fromhex(seal.root), bytes.fromhex(seal.previous)),
        *(
            utc(seal.read_from),
            utc(seal.sealed_at),
            seal.samples,
            seal.channels,
            seal.events,
            seal.gaps,
        ),
        *(parts.document, list(parts.events.n), b"".join(parts.events.digests), parts.gaps, differs),
        *(bytes.fromhex(seal.key), bytes.fromhex(seal.signature), seal.installation),
    )


def _changed_hours(
    number: int, name: str, before_hours: ByHour, now: Mapping[int, tuple[int, bytes]]
) -> list[dict[str, Any]]:
    """The hours of a channel that an amended seal has otherwise."""
    hours = (h for h in range(24) if before_hours.get(h) != now.get(h))
    return [
        {
            "id": number,
            "name": name,
            "hour": h,
            "before": before_hours.get(h, (0, b""))[0],
            "after": now.get(h, (0, b""))[0],
        }
        for h in hours
    ]
