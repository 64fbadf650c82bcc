"""Writes a seal: the digests of a day, signed, behind the newest one of the chain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any

import asyncpg
import numpy as np

from core.batch import Int64s
from core.formatting import count
from core.timestamps import begin, microseconds, utc
from history.reading.day_samples import DaySamples
from history.reading.reader import event_rows, events_of, gap_rows
from history.reading.scope import Scope
from history.seals import partial_digests
from history.seals.documents import merged
from history.seals.keys import Signer
from history.seals.proof import amended_events, amended_gaps, amended_samples, by_channel
from history.seals.receipts import Receipts, receipts_of
from history.seals.seal_store import SealedDay, seals
from history.standalone import (
    ChannelDigests,
    HourDigests,
    Revision,
    Seal,
    gaps_digest,
    names_of,
    root_of,
    tagged_hash,
)
from schema.queries import load

_SAMPLES = 20_000_000  # that an amendment reads, about: its snapshot holds up vacuum


@dataclass(frozen=True, slots=True)
class SealResult:
    """A seal that was made, and how."""

    seal: Seal
    seconds: float
    differs: str


@dataclass(frozen=True, slots=True)
class Amended:
    """An amended seal, or None if there is no news; what is not proven, in words; whether there is more to amend."""

    done: SealResult | None
    unproven: list[str]
    more: bool


async def write_first_seal(
    connection: asyncpg.Connection[Any], key: Signer, samples: DaySamples, scope: Scope, started: datetime
) -> SealResult:
    """Write the first seal of a day by the digests so far, in the snapshot that the caller has."""
    day = samples.day
    text = await connection.fetchval(load("evidence")["build_document"], begin(day), begin(day, 24), scope.number)
    read = await partial_digests.digests_so_far(connection, day, scope)
    hours = {
        number: HourDigests.of_hours({h: digest for h, digest in by_hour.items() if digest[0]})
        for number, by_hour in read.items()
    }
    events = await events_of(event_rows(connection, day, scope), day)
    gaps = await gap_rows(connection, day, scope)
    # This seal covers the data that receipts in this snapshot are of.
    receipts = await receipts_of(connection, day, scope, [key.public])
    await _replace(connection, receipts, receipts.others, set())
    parts = Revision(tagged_hash("document", text.encode()), events, gaps_digest(gaps))
    not_empty = {number: digests for number, digests in hours.items() if any(digests.n)}
    state = SealContent(parts, len(gaps), not_empty, text)
    used = {"channels": [], "receipts": receipts.gap_changes} if receipts.gap_changes else {}
    return await write_revision(connection, key, day, scope, None, state, used, started)


async def amend(
    connection: asyncpg.Connection[Any],
    key: Signer,
    samples: DaySamples,
    scope: Scope,
    sealed: SealedDay,
    started: datetime,
) -> Amended:
    """Write an amended seal in the snapshot that the caller has.

    If much came, it is the seal of a part of it; the rest has its receipts still, for the next one.
    """
    day = samples.day
    receipts = await receipts_of(connection, day, scope, [key.public], sealed.differs)
    amended = await amended_samples(samples, sealed, receipts, _SAMPLES)
    hours, unproven = amended.hours, amended.unproven
    late_events = await amended_events(samples, sealed, scope, receipts)
    event_hours, unproven_events = late_events.hours, late_events.unproven
    gaps = await amended_gaps(samples, sealed, scope, receipts)
    now = await connection.fetchval(load("evidence")["build_document"], begin(day), begin(day, 24), scope.number)
    text, meanings = merged(sealed.document, now)
    names, differs = names_of(text), dict[str, Any](channels=[])
    before, changed = sealed.hours(), dict[int, HourDigests]()
    for number, of_channel in by_channel(hours):
        hours_before = before[number].by_hour() if number in before else {}
        changed[number] = HourDigests.of_hours(
            {**hours_before, **{amended.hour: amended.now for amended in of_channel}}
        )
        name = names.get(number, ("", ""))[0]
        differs["channels"] += [amended.as_json(id=number, name=name) for amended in of_channel]
    last = sealed.parts[-1]
    events = HourDigests.of_hours({**last.events.by_hour(), **{amended.hour: amended.now for amended in event_hours}})
    if event_hours:
        differs["events"] = [amended.as_json() for amended in event_hours]
    gaps_now, n_gaps = last.gaps, sealed.seals[-1].gaps
    if gaps.changes:
        differs["gaps"] = {"before": n_gaps, "after": len(gaps.rows), "rows": list(gaps.changes)}
        gaps_now, n_gaps = gaps.digest, len(gaps.rows)
    used = receipts.gap_changes
    if gaps.changes is None:
        used, receipts.ids = [], [number for number in receipts.ids if number not in receipts.gap_ids]
    if used:
        differs["receipts"] = used
    if meanings and (changed or event_hours or used):
        differs["document"] = meanings
    else:
        text = sealed.document
    await _replace(
        connection,
        receipts,
        {**receipts.others, **_not_sealed(receipts, unproven | amended.unread)},
        {*unproven_events, *await _not_covered(connection, day, receipts, scope)},
    )
    failed = [f"{count(len(unproven), 'channel-hour')}"] if unproven else []
    failed += [count(len(unproven_events), "event")] if unproven_events else []
    failed += ["gaps"] if gaps.changes is None else []
    if not (changed or event_hours or used):
        return Amended(None, failed, bool(amended.unread))
    parts = Revision(tagged_hash("document", text.encode()), events, gaps_now)
    state = SealContent(parts, n_gaps, changed, text)
    done = await write_revision(connection, key, day, scope, sealed, state, differs, started)
    return Amended(done, failed, bool(amended.unread))


def _not_sealed(receipts: Receipts, unproven: Set[tuple[int, int]]) -> dict[int, Int64s]:
    """Times of samples by channel that are not sealed."""
    times_by_channel: dict[int, list[Int64s]] = {}
    for channel, hour in sorted(unproven):
        times_by_channel.setdefault(channel, []).append(receipts.of_hour(channel, hour))
    return {channel: np.concatenate(times) for channel, times in times_by_channel.items()}


async def _not_covered(
    connection: asyncpg.Connection[Any], day: date, receipts: Receipts, scope: Scope
) -> set[tuple[int, int]]:
    """Events of receipts that another installation seals."""
    if not receipts.events or scope.number == 0:
        return set()
    covered = {(row[0], row[1]) async for row in event_rows(connection, day, scope)}
    everyone = {(row[0], row[1]) async for row in event_rows(connection, day, scope.of_installation(0))}
    return receipts.events & (everyone - covered)


async def _replace(
    connection: asyncpg.Connection[Any],
    receipts: Receipts,
    samples: Mapping[int, Int64s],
    events: Set[tuple[int, int]],
) -> None:
    """Remove the receipts, but for what is not sealed."""
    if receipts.ids:
        contents = receipts.contents(samples), receipts.event_contents(events)
        await connection.execute(load("evidence")["replace_receipts"], receipts.ids, receipts.day, *contents)


@dataclass(frozen=True, slots=True)
class SealContent:
    """Content that a seal covers."""

    parts: Revision
    gaps: int
    hours: Mapping[int, HourDigests]  # of the channels that differ from the revision before
    document: str


async def write_revision(
    connection: asyncpg.Connection[Any],
    key: Signer,
    day: date,
    scope: Scope,
    sealed: SealedDay | None,
    state: SealContent,
    differing: Mapping[str, Any],
    started: datetime,
) -> SealResult:
    """Sign and store a seal."""
    queries = load("evidence")
    revision = len(sealed.seals) if sealed else 0
    rows = [
        ChannelDigests(number, revision, hours, hours.digest("channel", number) if any(hours.n) else b"")
        for number, hours in state.hours.items()
    ]
    differs = json.dumps(differing) if differing else ""
    all_rows = [*(sealed.rows if sealed else ()), *rows]
    samples = sum(sum(h.n) for h in {**(sealed.hours() if sealed else {}), **state.hours}.values())
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
        sum(state.parts.events.n),
        state.gaps,
        sha256(differs.encode()).hexdigest(),
        key.fingerprint,
        installation=scope.number,
    )
    seal = replace(seal, root=root_of(seal, state.parts, all_rows).hex())
    seal = replace(seal, signature=key.sign(seal.statement()))
    await connection.execute(queries["insert_document"], state.parts.document, state.document)
    await _insert(connection, seal, day, state.parts, differs)
    records = [
        (day, scope.number, revision, r.channel_id, list(r.hours.n), b"".join(r.hours.digests)) for r in rows if r.hours
    ]
    columns = ("day", "installation", "revision", "channel_id", "n", "digests")
    await connection.copy_records_to_table("seal_digest", schema_name="plant", records=records, columns=columns)
    await connection.execute(queries["delete_progress"], scope.chain, day)
    return SealResult(seal, (sealed_at - started) / timedelta(seconds=1), differs)


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
