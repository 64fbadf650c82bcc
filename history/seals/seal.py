"""Sealing closed days, and amending seals where data came late.

A seal is the state of one snapshot, in which it is also written: what the slices read before is kept where nothing came
since, else read again in that snapshot. An amended seal only adds: without what came, there is what was sealed.
Anything else stays a difference that ``plantlog evidence verify`` names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import asyncpg

from core.errors import DatabaseError
from core.formatting import change, count
from core.paths import State
from history.reading.day_samples import DaySamples
from history.reading.reader import connected, has_data
from history.reading.scope import Scope, load_scope, own_scope_number
from history.seals import partial_digests
from history.seals.keys import Signer, signer, stored_keys
from history.seals.partial_digests import MARGIN
from history.seals.seal_store import ChainHead, sealed_day, seals
from history.seals.seal_writer import Amended, SealResult, amend, write_first_seal
from history.standalone import Seal, seal_problems
from schema.queries import load

log = logging.getLogger(__name__)

_SAMPLES_IN_SNAPSHOT = 2_000_000  # samples that are read again while the seal is written
_MAX_ROUNDS = 10  # of reading again before that, where more than those came

ProgressCallback = Callable[[str], None]


async def seal_closed(
    dsn: str, state: State, before: datetime, on_backend: Callable[[int], None] = lambda pid: None
) -> list[date]:
    """Seal the days that ended at ``before`` or earlier, and amend those that data came late for.

    Returns the sealed days, oldest first; none if another session seals. ``dsn``: the owner's. ``on_backend`` is
    told the server's process that works for it. Raises OperationError and DatabaseError where key or chain are not in
    order.
    """
    done = await seal_days(dsn, state, before, on_backend=on_backend)
    return sorted({date.fromisoformat(result.seal.day) for result in done or ()})


async def seal_days(
    dsn: str,
    state: State,
    before: datetime,
    only: date | None = None,
    accept_chain: bool = False,
    progress: ProgressCallback = lambda line: None,
    on_backend: Callable[[int], None] = lambda pid: None,
) -> list[SealResult] | None:
    """Seal days that ended at ``before`` or earlier, or ``only`` one; amend seals. None: another session seals.

    ``progress`` gets lines for people; ``on_backend`` the server's process that works for it.
    """
    async with connected(dsn, "plantlog seal") as connection:
        on_backend(connection.get_server_pid())
        scope = await load_scope(connection, await own_scope_number(connection, state))
        async with locked(connection, scope.chain) as acquired:
            if not acquired:
                return None
            sealing, chain = await Sealing.begin(connection, state, scope, progress, accept_chain)
            done = await sealing.amend(chain, only)
            for row in await connection.fetch(load("evidence")["select_unsealed_days"], before, scope.chain):
                day = row["day"]
                if only not in (None, day):
                    continue
                if row["after_newest_seal"] or await has_data(connection, day, scope):
                    done.append(await sealing.seal_first(day))
            return done


async def amend_archived_day(state: State, samples: DaySamples) -> bool:
    """Amend the seal of a day whose samples are not all in the database; False: another session seals.

    Raises OperationError and DatabaseError as :func:`seal_closed`.
    """
    connection = samples.connection
    scope = await load_scope(connection, await own_scope_number(connection, state))
    async with locked(connection, scope.chain) as acquired:
        if acquired:
            sealing, chain = await Sealing.begin(connection, state, scope)
            await sealing.amend_day(samples, [seal for seal in chain if seal.day == samples.day.isoformat()])
        return acquired


@asynccontextmanager
async def locked(connection: asyncpg.Connection[Any], chain: int) -> AsyncIterator[bool]:
    """Return whether this session extends the chain, inside the block. Where that fails the session's end unlocks."""
    acquired: bool = await connection.fetchval(load("evidence")["lock_sealing"], chain)
    yield acquired
    if acquired:
        await connection.execute(load("evidence")["unlock_sealing"], chain)


@dataclass(frozen=True, slots=True)
class Sealing:
    """Means to make the seals of one installation."""

    connection: asyncpg.Connection[Any]
    state: State
    scope: Scope  # of what is sealed for the first time
    key: Signer
    progress: ProgressCallback
    problems: tuple[str, ...]  # of the signatures of its chain

    @classmethod
    async def begin(
        cls,
        connection: asyncpg.Connection[Any],
        state: State,
        scope: Scope,
        progress: ProgressCallback = log.info,
        accept_chain: bool = False,
    ) -> tuple[Sealing, list[Seal]]:
        """Begin with key and chain, once they are known to be in order. Needs the lock."""
        key = await signer(connection, state)
        chain = await seals(connection, scope.chain)
        head = ChainHead.load(state) if not accept_chain else None
        if head is not None and (problem := head.problem(chain)):
            raise DatabaseError(
                f"{problem}, or the database was restored from a backup: check with `plantlog evidence verify`; "
                "`plantlog evidence seal --accept-chain` continues the chain as it is"
            )
        problems = tuple(seal_problems(chain, await stored_keys(connection, scope.chain), [key.public]))
        return cls(connection, state, scope, key, progress, problems), chain

    async def seal_first(self, day: date) -> SealResult:
        """Read a day and seal it."""
        samples = DaySamples(self.connection, day)
        read = await partial_digests.read_day(samples, self.scope)
        [progress] = await self.connection.fetch(load("evidence")["select_progress"], self.scope.chain, day)
        try:
            done = await self._seal_read(samples, progress["read_from"])
        except asyncpg.UniqueViolationError as error:
            raise DatabaseError(f"plant.seal_digest has digests of {day} without a seal: {error}") from error
        self.progress(
            f"{day}: sealed {done.seal.samples:,} samples of {count(done.seal.channels, 'channel')}, {read:,} read now"
        )
        return done

    async def _seal_read(self, samples: DaySamples, read_from: datetime) -> SealResult:
        """Bring what was read up to date with what came since, and write the seal."""
        day = samples.day
        reread: set[tuple[int, int]] = set()
        for attempt in range(_MAX_ROUNDS + 1):
            async with self.connection.transaction(isolation="repeatable_read"):
                digests = await partial_digests.digests_so_far(self.connection, day, self.scope)
                stale = await partial_digests.stale(samples, digests, read_from - MARGIN, self.scope, reread)
                if sum(channel_hour.now for channel_hour in stale) <= _SAMPLES_IN_SNAPSHOT or attempt == _MAX_ROUNDS:
                    await partial_digests.reread_hours(samples, self.scope.chain, stale)
                    done = await write_first_seal(self.connection, self.key, samples, self.scope, read_from)
                    break
            await partial_digests.reread_hours(samples, self.scope.chain, stale)
            reread |= {(channel_hour.channel_id, channel_hour.hour) for channel_hour in stale}
        ChainHead(done.seal.serial, done.seal.hash()).save(self.state)
        return done

    async def amend(self, chain: list[Seal], only: date | None) -> list[SealResult]:
        """New seals for days whose data came after their seal."""
        by_day: dict[str, list[Seal]] = {}
        for seal in chain:
            by_day.setdefault(seal.day, []).append(seal)
        done = []
        for row in await self.connection.fetch(load("evidence")["select_changed_days"], self.scope.chain):
            day = row["day"]
            if only in (None, day):
                done += await self.amend_day(DaySamples(self.connection, day), by_day[day.isoformat()])
        return done

    async def amend_day(self, samples: DaySamples, seals: Sequence[Seal]) -> list[SealResult]:
        """New seals for a day if what came since the last one makes a difference; several if that is much."""
        done: list[SealResult] = []
        while (
            amended := await self._amend_once(samples, [*seals, *(result.seal for result in done)])
        ).done is not None:
            done.append(amended.done)
            if not amended.more:
                break
        return done

    async def _amend_once(self, samples: DaySamples, seals: Sequence[Seal]) -> Amended:
        day = samples.day
        sealed = await sealed_day(self.connection, day, seals)
        if not sealed.is_whole:
            self.progress(f"{day}: not amended, because its digests were altered: see `plantlog evidence verify {day}`")
            return Amended(None, [], False)
        if any(f"({day}, revision" in problem for problem in self.problems):
            self.progress(f"{day}: not amended, because its seals were altered: see `plantlog evidence verify {day}`")
            return Amended(None, [], False)
        # What a day's first seal covers, its amended ones cover, too.
        scope = self.scope.of_installation(sealed.seals[-1].installation)
        started = await self.connection.fetchval(load("evidence")["select_clock"])
        async with self.connection.transaction(isolation="repeatable_read"):
            if not await samples.complete(scope.chain):
                return Amended(None, [], False)  # retention dropped some meanwhile
            amended = await amend(self.connection, self.key, samples, scope, sealed, started)
        if amended.unproven:
            self.progress(f"{day}: {', '.join(amended.unproven)} unexplained: see `plantlog evidence verify {day}`")
        if (done := amended.done) is not None:
            ChainHead(done.seal.serial, done.seal.hash()).save(self.state)
            self.progress(f"{day}: amended (revision {done.seal.revision}): {summary(done.differs)}")
        return amended


def summary(differs: str) -> str:
    """Difference that an amended seal records, in a line."""
    changes = json.loads(differs)
    added = sum(change["after"] - change["before"] for change in changes["channels"])
    channels = len({change["id"] for change in changes["channels"]})
    hours = f"{count(len(changes['channels']), 'hour')} of {count(channels, 'channel')}"
    parts = [f"{change(added, 'sample')} in {hours}"] if channels else []
    parts += [change(sum(e["after"] - e["before"] for e in changes["events"]), "event")] if "events" in changes else []
    if "gaps" in changes:
        parts.append(f"gaps: {changes['gaps']['before']} before, {changes['gaps']['after']} now")
    elif "receipts" in changes:
        parts.append("gaps: changed, and changed back")
    return "; ".join(parts)
