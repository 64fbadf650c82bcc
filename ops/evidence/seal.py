"""Sealing closed days, and amending seals where data came late.

A seal is the state of one snapshot, in which it is also written: what the slices read before is kept where nothing came
since, else read again in that snapshot. Only what arrival evidence explains goes into an amended seal; anything else
stays a difference that ``plantlog verify`` names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any

import asyncpg

from ingest.errors import DatabaseError
from ingest.timestamps import microseconds, utc
from ops.evidence import partial_digests
from ops.evidence.day_samples import DaySamples
from ops.evidence.keys import Signer, signer
from ops.evidence.partial_digests import MARGIN, ByHour
from ops.evidence.reader import begin, connect, event_rows, events_of, gap_rows, gaps_digest, has_data
from ops.evidence.scope import Scope, load_scope, own_number
from ops.evidence.seal_store import ChainHead, SealedDay, sealed_day, seals
from ops.evidence.standalone import ChannelDigests, HourDigests, Revision, Seal, names_of, root_of, tagged_hash
from ops.formatting import change, count
from ops.paths import State
from schema.queries import load

log = logging.getLogger(__name__)

_SAMPLES_IN_SNAPSHOT = 2_000_000  # samples that are read again while the seal is written
_MAX_ROUNDS = 10  # of reading again before that, where more than those came
_NONE = HourDigests((0,) * 24, ())

ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SealResult:
    """A seal that was made, and how."""

    seal: Seal
    seconds: float
    differs: str


async def seal_closed(
    dsn: str, state: State, before: datetime, on_backend: Callable[[int], None] = lambda pid: None
) -> list[date]:
    """Seal the days that ended at ``before`` or earlier, and amend those that data came late for.

    Returns the sealed days, oldest first; none if another session seals. ``dsn``: the owner's. ``on_backend`` is
    told the server's process that works for it. Raises OperationError and DatabaseError where key or chain are not in
    order.
    """
    done = await seal_days(dsn, state, before, on_backend=on_backend)
    return sorted({date.fromisoformat(one.seal.day) for one in done or ()})


async def sealed_days(connection: asyncpg.Connection[Any]) -> set[date]:
    """The days that have a seal."""
    return {row["day"] for row in await connection.fetch(load("evidence")["select_sealed_days"])}


async def seal_days(
    dsn: str,
    state: State,
    before: datetime,
    only: date | None = None,
    accept_chain: bool = False,
    progress: ProgressCallback = lambda line: None,
    on_backend: Callable[[int], None] = lambda pid: None,
) -> list[SealResult] | None:
    """The same with all that is to be told; ``only``: one day. None: another session seals."""
    connection = await connect(dsn, "plantlog seal")
    try:
        on_backend(connection.get_server_pid())
        scope = await load_scope(connection, await own_number(connection, state))
        async with locked(connection, scope.chain) as acquired:
            if not acquired:
                return None
            sealing, chain = await _begin(connection, state, scope, progress, accept_chain)
            done = await sealing.amend(chain, only)
            for row in await connection.fetch(load("evidence")["select_unsealed_days"], before, scope.chain):
                day = row["day"]
                if only not in (None, day):
                    continue
                if row["after_newest_seal"] or await has_data(connection, day, scope):
                    done.append(await sealing.seal_first(day))
            return done
    finally:
        connection.terminate()


async def amend_archived_day(state: State, samples: DaySamples) -> bool:
    """Amend the seal of a day whose samples are not all in the database; False: another session seals.

    Raises OperationError and DatabaseError as :func:`seal_closed`.
    """
    connection = samples.connection
    scope = await load_scope(connection, await own_number(connection, state))
    async with locked(connection, scope.chain) as acquired:
        if acquired:
            sealing, chain = await _begin(connection, state, scope, log.info)
            await sealing.amend_day(samples, [one for one in chain if one.day == samples.day.isoformat()])
        return acquired


async def _begin(
    connection: asyncpg.Connection[Any],
    state: State,
    scope: Scope,
    progress: ProgressCallback,
    accept_chain: bool = False,
) -> tuple[_Sealing, list[Seal]]:
    """With key and chain, once they are known to be in order. Needs the lock."""
    key = await signer(connection, state)
    chain = await seals(connection, scope.chain)
    head = ChainHead.load(state) if not accept_chain else None
    if head is not None and (problem := head.problem(chain)):
        raise DatabaseError(
            f"{problem}, or the database was restored from a backup: check with `plantlog verify`; "
            "`plantlog seal --accept-chain` continues the chain as it is"
        )
    return _Sealing(connection, state, scope, key, progress), chain


@asynccontextmanager
async def locked(connection: asyncpg.Connection[Any], chain: int) -> AsyncIterator[bool]:
    """Whether this session extends the chain, inside the block. Where that fails the session's end unlocks."""
    acquired: bool = await connection.fetchval(load("evidence")["lock_sealing"], chain)
    yield acquired
    if acquired:
        await connection.execute(load("evidence")["unlock_sealing"], chain)


@dataclass(frozen=True, slots=True)
class _Sealing:
    connection: asyncpg.Connection[Any]
    state: State
    scope: Scope  # of what is sealed for the first time
    key: Signer
    progress: ProgressCallback

    async def seal_first(self, day: date) -> SealResult:
        """Read a day and seal it."""
        samples = DaySamples(self.connection, day)
        read = await partial_digests.read_day(samples, self.scope)
        [progress] = await self.connection.fetch(load("evidence")["select_progress"], self.scope.chain, day)
        read_from = progress["read_from"]
        try:
            done = await self._seal(samples, None, read_from, read_from)
        except asyncpg.UniqueViolationError as error:
            raise DatabaseError(f"plant.seal_digest has digests of {day} without a seal: {error}") from error
        if done is None:
            raise DatabaseError(f"{day}: the first seal came out as no change")
        self.progress(
            f"{day}: sealed {done.seal.samples:,} samples of {done.seal.channels:,} channels, {read:,} read now"
        )
        return done

    async def amend(self, chain: list[Seal], only: date | None) -> list[SealResult]:
        """New seals for days whose data came after their seal."""
        queries = load("evidence")
        started = await self._clock()
        looked_until = await self.connection.fetchval(queries["select_checked_until"], self.scope.chain)
        by_day: dict[str, list[Seal]] = {}
        for seal in chain:
            by_day.setdefault(seal.day, []).append(seal)
        done = []
        since = looked_until - MARGIN
        for row in await self.connection.fetch(queries["select_changed_days"], since, self.scope.chain):
            day = row["day"]
            if only not in (None, day):
                continue
            done += await self.amend_day(DaySamples(self.connection, day), by_day[day.isoformat()])
        if only is None:
            await self.connection.execute(queries["update_checked_until"], self.scope.chain, started)
        return done

    async def amend_day(self, samples: DaySamples, seals: Sequence[Seal]) -> list[SealResult]:
        """A new seal for a day if what came since the last one makes a difference."""
        day = samples.day
        sealed = await sealed_day(self.connection, day, seals)
        if sealed.problems or root_of(sealed.seals[-1], sealed.parts[-1], sealed.rows).hex() != sealed.seals[-1].root:
            self.progress(f"{day}: not amended, because its digests were altered: see `plantlog verify {day}`")
            return []
        await self.connection.execute(load("evidence")["delete_progress"], self.scope.chain, day)
        amended = await self._seal(samples, sealed, utc(sealed.seals[-1].read_from), await self._clock())
        if amended is None:
            return []
        self.progress(f"{day}: amended (revision {amended.seal.revision}): {summary(amended.differs)}")
        return [amended]

    async def _clock(self) -> datetime:
        moment: datetime = await self.connection.fetchval(load("evidence")["select_clock"])
        return moment

    async def _seal(
        self, samples: DaySamples, sealed: SealedDay | None, since: datetime, started: datetime
    ) -> SealResult | None:
        """Bring the work up to date with what came since a moment, and write the seal. None: there is no news."""
        # What a day's first seal covers, its amended ones cover, too.
        scope = self.scope.of(sealed.seals[-1].installation) if sealed else self.scope
        day = samples.day
        reread: set[tuple[int, int]] = set()
        for attempt in range(_MAX_ROUNDS + 1):
            async with self.connection.transaction(isolation="repeatable_read"):
                if not await samples.complete():
                    return None  # retention dropped some meanwhile
                known = {number: hours.by_hour() for number, hours in sealed.hours().items()} if sealed else {}
                for number, hours in (await partial_digests.digests_so_far(self.connection, day, scope)).items():
                    known[number] = {**known.get(number, {}), **hours}
                stale = await partial_digests.stale(samples, known, since - MARGIN, scope, reread)
                explained = [one for one in stale if sealed is None or one.explained]
                if len(explained) < len(stale):
                    number = len(stale) - len(explained)
                    self.progress(f"{day}: {number:,} channel-hours are unexplained: see `plantlog verify {day}`")
                if sum(one.now for one in explained) <= _SAMPLES_IN_SNAPSHOT or attempt == _MAX_ROUNDS:
                    await partial_digests.reread_hours(samples, scope.chain, explained)
                    done = await self._write(day, scope, sealed, started, since)
                    break
            await partial_digests.reread_hours(samples, scope.chain, explained)
            reread |= {(one.channel_id, one.hour) for one in explained}
        if done is not None:
            ChainHead(done.seal.serial, done.seal.hash()).save(self.state)
        return done

    async def _write(
        self, day: date, scope: Scope, sealed: SealedDay | None, started: datetime, since: datetime
    ) -> SealResult | None:
        """The seal itself, in the snapshot that the caller has."""
        queries = load("evidence")
        before = sealed.hours() if sealed else {}
        rows, differing = [], []
        revision = len(sealed.seals) if sealed else 0
        text = await self.connection.fetchval(queries["build_document"], begin(day), begin(day, 24), scope.number)
        names = names_of(text)
        for number, read in (await partial_digests.digests_so_far(self.connection, day, scope)).items():
            before_hours = before[number].by_hour() if number in before else {}
            hours = HourDigests.of({hour: found for hour, found in {**before_hours, **read}.items() if found[0]})
            if hours != before.get(number, _NONE):
                rows.append(
                    ChannelDigests(number, revision, hours, hours.digest("channel", number) if any(hours.n) else b"")
                )
                differing += (
                    _changed_hours(number, names.get(number, ("", ""))[0], before_hours, hours.by_hour())
                    if sealed
                    else []
                )
        parts, gaps, others = await self._parts(day, scope, sealed, text, since)
        if sealed and not rows and not others:
            await self.connection.execute(queries["delete_progress"], scope.chain, day)
            return None
        differs = json.dumps({"channels": differing, **others}) if sealed else ""
        all_rows = [*(sealed.rows if sealed else ()), *rows]
        samples = sum(sum(h.n) for h in {**before, **{r.channel_id: r.hours for r in rows if r.hours}}.values())
        newest = {row.channel_id: row for row in all_rows}
        last = next(iter(await seals(self.connection, scope.chain, 1)), None)
        sealed_at = await self._clock()
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
            self.key.fingerprint,
            installation=scope.number,
        )
        seal = replace(seal, root=root_of(seal, parts, all_rows).hex())
        seal = replace(seal, signature=self.key.sign(seal.statement()))
        await self.connection.execute(queries["insert_document"], parts.document, text)
        await self._insert(seal, day, parts, differs)
        records = [
            (day, scope.number, revision, r.channel_id, list(r.hours.n), b"".join(r.hours.digests))
            for r in rows
            if r.hours
        ]
        columns = ("day", "installation", "revision", "channel_id", "n", "digests")
        await self.connection.copy_records_to_table(
            "seal_digest", schema_name="plant", records=records, columns=columns
        )
        await self.connection.execute(queries["delete_progress"], scope.chain, day)
        return SealResult(seal, (sealed_at - started) / timedelta(seconds=1), differs)

    async def _parts(
        self, day: date, scope: Scope, sealed: SealedDay | None, text: str, since: datetime
    ) -> tuple[Revision, int, dict[str, Any]]:
        """What besides the channels is sealed, the number of gaps, and what differs from the revision before."""
        events = await events_of(event_rows(self.connection, day, scope), day)
        gaps = await gap_rows(self.connection, day, scope)
        digest, n_gaps, differs = gaps_digest(gaps), len(gaps), dict[str, Any]()
        if sealed:
            last, before_hours = sealed.parts[-1], sealed.parts[-1].events.by_hour()
            # Events are only ever added, and what is known of gaps comes in batches: else it is a difference, no news.
            explained = {
                h: found for h, found in events.by_hour().items() if found[0] > before_hours.get(h, (0, b""))[0]
            }
            events = HourDigests.of({**before_hours, **explained})
            if explained:
                differs["events"] = [
                    {"hour": h, "before": before_hours.get(h, (0, b""))[0], "after": explained[h][0]}
                    for h in sorted(explained)
                ]
            arrivals = await self.connection.fetch(
                load("evidence")["select_arrivals"], since - MARGIN, begin(day), begin(day, 24)
            )
            if digest != last.gaps and any(
                row["kind"] == "gaps" and scope.covers(row["source_id"]) for row in arrivals
            ):
                differs["gaps"] = {"before": sealed.seals[-1].gaps, "after": n_gaps}
            else:
                digest, n_gaps = last.gaps, sealed.seals[-1].gaps
        return Revision(tagged_hash("document", text.encode()), events, digest), n_gaps, differs

    async def _insert(self, seal: Seal, day: date, parts: Revision, differs: str) -> None:
        await self.connection.execute(
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


def summary(differs: str) -> str:
    """What an amended seal says of its difference, in a line."""
    changes = json.loads(differs)
    added = sum(one["after"] - one["before"] for one in changes["channels"])
    channels = len({one["id"] for one in changes["channels"]})
    where = f"{count(len(changes['channels']), 'hour')} of {count(channels, 'channel')}"
    parts = [f"{change(added, 'sample')} in {where}"] if channels else []
    parts += [change(sum(e["after"] - e["before"] for e in changes["events"]), "event")] if "events" in changes else []
    parts += [f"gaps: {changes['gaps']['before']} before, {changes['gaps']['after']} now"] if "gaps" in changes else []
    return "; ".join(parts)
