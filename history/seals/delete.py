"""``plantlog evidence delete``: delete samples, of sealed days with an amended seal that says who did it and why.

Nothing else accounts for sealed samples that are missing. The hours must be as sealed before, and afterwards be what
the amended seal says, so that no other change is signed with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import asyncpg

from core.errors import OperationError
from core.paths import State
from core.patterns import no_match
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
    """Samples to delete: those of channels with since <= time < until."""

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
class DeletionResult:
    """Samples that were deleted, and the amended seals."""

    samples: int
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
        rows = await connection.fetch(load("evidence")["select_matching_channels"], list(deletion.patterns))
        channels = sorted(scope.select(row["id"] for row in rows))
        if not channels:
            raise no_match("--channel", deletion.patterns)
        async with locked(connection, scope.chain) as acquired:
            if not acquired:
                raise OperationError("another session seals: try again")
            if not dry_run:
                sealing, chain = await Sealing.begin(connection, state, scope)
                for day in deletion.days():  # what came until now is no part of the deletion
                    await sealing.amend(chain, day)
            await connection.execute(load("evidence")["lock_packing"])
            return await _delete(connection, state, deletion, channels, dry_run)


async def _delete(
    connection: asyncpg.Connection[Any], state: State, deletion: Deletion, channels: list[int], dry_run: bool
) -> DeletionResult:
    scope = await load_scope(connection, await own_scope_number(connection, state))
    done: list[SealResult] = []
    async with connection.transaction(isolation="repeatable_read"):
        started = await connection.fetchval(load("evidence")["select_clock"])
        total, days = 0, list[_Day]()
        for day in deletion.days():
            n, of_day = await _planned(connection, day, scope.chain, deletion, channels)
            total += n
            days += [of_day] if of_day is not None else []
        if dry_run or not total:
            return DeletionResult(total, [])
        arguments = channels, deletion.since, deletion.until, f"{deletion.why} (by {deletion.by})"
        deleted = await connection.fetchval(load("evidence")["delete_samples"], *arguments)
        for deleted_day in days:
            done += await _amended(connection, state, deleted_day, deletion, started)
    for seal in done:
        ChainHead(seal.seal.serial, seal.seal.hash()).save(state)
    return DeletionResult(deleted, done)


async def _planned(
    connection: asyncpg.Connection[Any], day: date, chain: int, deletion: Deletion, channels: list[int]
) -> tuple[int, _Day | None]:
    """Samples of a day that go; and if it is sealed, the hours that are to be amended. Raises OperationError."""
    samples, seals = DaySamples(connection, day), await seals_of_day(connection, chain, day)
    sealed = await sealed_day(connection, day, seals) if seals else None
    if sealed is not None and not (sealed.is_whole and await samples.complete(chain)):
        why = "its seal was altered" if not sealed.is_whole else "retention dropped samples of it, which are archived"
        raise OperationError(f"{day}: {why}: nothing was deleted")
    sealed_hours = sealed.hours() if sealed is not None else {}
    total, after = 0, dict[int, ByHour]()
    for number, stored in (await samples.read(channels, deletion.hours(day))).items():
        deleted = (stored.time >= microseconds(deletion.since)) & (stored.time < microseconds(deletion.until))
        total += int(deleted.sum())
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
    return total, _Day(samples, sealed, after) if sealed is not None and after else None


async def _amended(
    connection: asyncpg.Connection[Any], state: State, deleted_day: _Day, deletion: Deletion, started: datetime
) -> list[SealResult]:
    """The amended seal of a day, once the remaining samples are as expected."""
    day, sealed = deleted_day.samples.day, deleted_day.sealed
    names, before = sealed.names(), sealed.hours()
    samples_left = await deleted_day.samples.read(sorted(deleted_day.after), deletion.hours(day))
    remaining = {number: hour_digests(samples, day) for number, samples in samples_left.items()}
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
    scope = (await load_scope(connection, sealed.seals[-1].installation)).of_installation(sealed.seals[-1].installation)
    key = (await Sealing.begin(connection, state, scope))[0].key
    content = SealContent(sealed.parts[-1], sealed.seals[-1].gaps, changed, sealed.document)
    return [await write_revision(connection, key, day, scope, sealed, content, differs, started)]
