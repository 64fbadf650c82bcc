"""``plantlog evidence delete``: delete samples, of sealed days with an amended seal that says who did it and why.

Nothing else accounts for sealed samples that are missing. The hours must be as sealed before, and afterwards be what
the amended seal says, so that no other change is signed with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.errors import OperationError
from core.paths import State
from core.patterns import Patterns, no_match
from core.samples import Samples
from core.timestamps import days_between, hours_between, microseconds
from history.reading.day_samples import DaySamples
from history.reading.hours import hour_digests
from history.reading.reader import connected
from history.reading.scope import load_scope, own_scope_number
from history.seals.partial_digests import ByHour
from history.seals.proof import NOTHING
from history.seals.seal import Sealing, locked
from history.seals.seal_store import ChainHead, SealedDay, sealed_day, seals_of_day
from history.seals.seal_writer import SealContent, SealResult, write_revision
from history.standalone import HourDigests
from schema.queries import load


@dataclass(frozen=True, slots=True)
class Deletion:
    """Samples to delete: since <= time < until, of channels with a name like one of ``patterns`` at that time."""

    patterns: Sequence[str]
    since: datetime
    until: datetime
    why: str
    by: str

    def days(self) -> list[date]:
        """Days (UTC) that it touches."""
        return days_between(self.since, self.until)

    def hours(self, day: date) -> range:
        """Hours of a day that it touches."""
        return hours_between(self.since, self.until, day)


@dataclass(frozen=True, slots=True)
class NamedInterval:
    """A channel and since <= time < until, while it had a name."""

    channel: int
    name: str
    now: str  # its present name
    since: datetime
    until: datetime

    def mask(self, samples: Samples) -> NDArray[np.bool_]:
        """Mask of the channel's samples that are in it, (n,)."""
        return (samples.time >= microseconds(self.since)) & (samples.time < microseconds(self.until))

    def describe(self) -> str:
        """The channel for people."""
        return f"{self.name} (channel {self.channel}{'' if self.now == self.name else f', now {self.now}'})"


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """Samples that were deleted, where they are from, and the amended seals."""

    samples: int
    counts: Mapping[NamedInterval, int]
    seals: list[SealResult]


@dataclass(frozen=True, slots=True)
class _Day:
    """A sealed day: the hours that are to be amended, as they will be."""

    samples: DaySamples
    sealed: SealedDay
    after: dict[int, ByHour]


async def delete(dsn: str, state: State, deletion: Deletion, dry_run: bool) -> DeletionResult:
    """``dsn``: the owner's. ``dry_run``: only count. Raises OperationError, and deletes nothing then."""
    async with connected(dsn, "plantlog delete") as connection:
        scope = await load_scope(connection, await own_scope_number(connection, state))
        rows = await connection.fetch(load("evidence")["select_names"], deletion.since, deletion.until)
        own = set(scope.select(row["id"] for row in rows))
        patterns = Patterns(deletion.patterns)
        named = [NamedInterval(*row) for row in rows if row["id"] in own and row["name"] in patterns]
        if not named:
            raise no_match("--channel", deletion.patterns, "; names count that channels had at that time")
        async with locked(connection, scope.chain) as acquired:
            if not acquired:
                raise OperationError("another session seals: try again")
            if not dry_run:
                sealing, chain = await Sealing.begin(connection, state, scope)
                for day in deletion.days():  # what came until now is no part of the deletion
                    await sealing.amend(chain, day)
            await connection.execute(load("evidence")["lock_packing"])
            return await _delete(connection, state, deletion, scope.chain, named, dry_run)


async def _delete(
    connection: asyncpg.Connection[Any],
    state: State,
    deletion: Deletion,
    chain: int,
    named: Sequence[NamedInterval],
    dry_run: bool,
) -> DeletionResult:
    done: list[SealResult] = []
    async with connection.transaction(isolation="repeatable_read"):
        started = await connection.fetchval(load("evidence")["select_clock"])
        counts, days = Counter[NamedInterval](), list[_Day]()
        for day in deletion.days():
            of_day = await _planned(connection, day, chain, deletion, named, counts)
            days += [of_day] if of_day is not None else []
        if dry_run or not counts:
            return DeletionResult(counts.total(), counts, [])
        by_interval: dict[tuple[datetime, datetime], list[int]] = {}
        for one in counts:
            by_interval.setdefault((one.since, one.until), []).append(one.channel)
        deleted, why = 0, f"{deletion.why} (by {deletion.by})"
        for (since, until), channels in by_interval.items():
            deleted += await connection.fetchval(load("evidence")["delete_samples"], channels, since, until, why)
        for deleted_day in days:
            done.append(await _amended(connection, state, deleted_day, deletion, started))
    for seal in done:
        ChainHead(seal.seal.serial, seal.seal.hash()).save(state)
    return DeletionResult(deleted, counts, done)


async def _planned(
    connection: asyncpg.Connection[Any],
    day: date,
    chain: int,
    deletion: Deletion,
    named: Sequence[NamedInterval],
    counts: Counter[NamedInterval],
) -> _Day | None:
    """Count the samples of a day that go. If it is sealed: the hours that are to be amended. Raises OperationError."""
    samples, seals = DaySamples(connection, day), await seals_of_day(connection, chain, day)
    sealed = await sealed_day(connection, day, seals) if seals else None
    if sealed is not None and not (sealed.is_whole and await samples.complete(chain)):
        why = "its seal was altered" if not sealed.is_whole else "retention dropped samples of it, which are archived"
        raise OperationError(f"{day}: {why}: nothing was deleted")
    sealed_hours = sealed.hours() if sealed is not None else {}
    after = dict[int, ByHour]()
    by_channel: dict[int, list[NamedInterval]] = {}
    for one in named:
        by_channel.setdefault(one.channel, []).append(one)
    async for number, stored in samples.stream(sorted(by_channel), deletion.hours(day)):
        deleted = np.zeros(len(stored), np.bool_)
        for one in by_channel[number]:
            of_name = one.mask(stored)
            if of_name.any():
                counts[one] += int(of_name.sum())
            deleted |= of_name
        now, remaining = hour_digests(stored, day), hour_digests(stored.part(~deleted), day)
        sealed_digests = sealed_hours[number].by_hour() if number in sealed_hours else {}
        for hour in now:
            if sealed is None or remaining.get(hour, NOTHING) == sealed_digests.get(hour, NOTHING):
                continue  # what goes was not sealed
            if now[hour] != sealed_digests.get(hour, NOTHING):
                raise OperationError(
                    f"channel {number}, {day}, hour {hour:02} is not as sealed: nothing was deleted; "
                    f"see `plantlog evidence verify {day}`"
                )
            after.setdefault(number, {})[hour] = remaining.get(hour, NOTHING)
    return _Day(samples, sealed, after) if sealed is not None and after else None


async def _amended(
    connection: asyncpg.Connection[Any], state: State, deleted_day: _Day, deletion: Deletion, started: datetime
) -> SealResult:
    """The amended seal of a day, once the remaining samples are as expected."""
    day, sealed = deleted_day.samples.day, deleted_day.sealed
    names, before = sealed.names(), sealed.hours()
    stream = deleted_day.samples.stream(sorted(deleted_day.after), deletion.hours(day))
    remaining = {number: hour_digests(samples, day) async for number, samples in stream}
    changed, listed = dict[int, HourDigests](), []
    for number, hours in deleted_day.after.items():
        hours_before = before[number].by_hour()
        for hour, expected in hours.items():
            if remaining.get(number, {}).get(hour, NOTHING) != expected:
                raise OperationError(f"channel {number}, {day}, hour {hour:02}: the database deleted something else")
            name = names.get(number, ("", ""))[0]
            listed.append(
                {"id": number, "name": name, "hour": hour, "before": hours_before[hour][0], "after": expected[0]}
            )
        changed[number] = HourDigests.of_hours(
            {h: digest for h, digest in {**hours_before, **hours}.items() if digest[0]}
        )
    span = {"from": deletion.since.isoformat(), "to": deletion.until.isoformat()}
    differs = {"channels": listed, "deleted": {**span, "by": deletion.by, "why": deletion.why}}
    scope = await load_scope(connection, sealed.seals[-1].installation)
    key = (await Sealing.begin(connection, state, scope))[0].key
    content = SealContent(sealed.parts[-1], sealed.seals[-1].gaps, changed, sealed.document)
    return await write_revision(connection, key, day, scope, sealed, content, differs, started)
