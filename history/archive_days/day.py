"""Archives one sealed day of this installation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np

from core.errors import NotAsSealed, OperationError
from core.installation import installation_of
from core.paths import State
from core.samples import NO_SAMPLES, Samples
from history.archive.day_files import DayFiles, time_mask
from history.archive.location import Location, in_thread
from history.archive.manifest import DayFolder, Manifest, find_manifest
from history.archive_days.verify import verify_files
from history.archive_days.writer import DayWriter, Origin
from history.reading.day_samples import DaySamples, only_stored
from history.reading.hours import hour_digests
from history.reading.scope import Scope, load_scope
from history.seals.keys import stored_keys
from history.seals.seal import amend_archived_day
from history.seals.seal_store import SealedDay, sealed_day, seals_of_day
from schema.queries import load


@dataclass(frozen=True, slots=True)
class OwnInstallation:
    """This installation as the database knows it."""

    id: UUID
    number: int
    plant: str


async def own_installation(connection: asyncpg.Connection[Any], state: State) -> OwnInstallation:
    """Installation of a state folder. Raises OperationError if it is not registered."""
    identifier = installation_of(state.root)
    for row in await connection.fetch(load("evidence")["select_numbers"]):
        if row["id"] == identifier:
            return OwnInstallation(row["id"], row["number"], row["plant"])
    raise OperationError(f"{state.root} is not registered in this database: run `plantlog up`")


async def archive_day(
    connection: asyncpg.Connection[Any],
    installation: OwnInstallation,
    location: Location,
    day: date,
    state: State,
    samples: DaySamples | None = None,
) -> Manifest:
    """Bring the archive of a day up to date, and put on record what of the day may be dropped. Raises OperationError.

    As long as nothing was dropped, the day is written from the database. After that, late samples are sealed together
    with those in the archive, and added to it. ``samples``: those of the day, if they are not in the database.
    """
    folder = DayFolder(installation.id, day)
    key = installation.number, day
    row = await connection.fetchrow(load("archive")["select_archived_day"], *key)
    started = await connection.fetchval(load("evidence")["select_clock"])
    current = await in_thread(find_manifest, location, folder)
    if current is not None:
        await _require_seal_in_database(connection, installation, location, folder, current)
    if row is not None and row["location"] != location.name:
        copied = await _copied(location, folder, current, row)
        if copied is not None:
            await connection.execute(load("archive")["update_location"], day, installation.number, location.name)
            return copied
    if row is None or not row["dropped"]:
        sealed, origin = await _sealed(connection, installation, day)
        stored_samples = samples or DaySamples(connection, day)
        manifest = await DayWriter(location, folder, sealed, origin, stored_samples).write()
        stored = _Stored({number: hours.n for number, hours in sealed.hours().items()})
        await _record(connection, installation, location, sealed, manifest, started, stored, "written", dropped=False)
        return manifest
    if row["location"] != location.name:
        raise OperationError(
            f"archive {location.name}: {day} is not in it; it was archived in {row['location']}: copy it from there"
        )
    if current is None:
        raise OperationError(f"archive {location.name}: {day} is not in it; restore {folder.manifest}")
    before = DayFiles(location, folder, current)
    samples = await DaySamples.in_files(connection, day, before, installation.number)
    if row["late"] and not await amend_archived_day(state, samples):
        raise OperationError(f"{day}: another session seals")
    sealed, origin = await _sealed(connection, installation, day)
    writer = DayWriter(location, folder, sealed, origin, samples, before)
    changed = sorted({row.channel_id for row in sealed.rows if row.revision > before.manifest.revision})
    manifest, how = current, "compared"
    if manifest.revision != sealed.seals[-1].revision:
        amended = await writer.amend(changed)
        manifest, how = (amended, "amended") if amended is not None else (await writer.write(), "written")
    elif len(_amendments(manifest)) and not row["late"]:
        manifest, how = await writer.write(), "amendments merged"
    files = DayFiles(location, folder, manifest)
    stored = await _compared(connection, origin.scope, files, frozenset(changed))
    await _record(connection, installation, location, sealed, manifest, started, stored, how, dropped=True)
    return manifest


async def _copied(
    location: Location, folder: DayFolder, current: Manifest | None, row: asyncpg.Record
) -> Manifest | None:
    """A day that was archived elsewhere and is here as it was there; None: it is not."""
    if current is None or (current.revision, current.root) != (row["revision"], row["root"].hex()):
        return None
    problems, _ = await in_thread(verify_files, DayFiles(location, folder, current), None)
    return None if problems else current


async def _require_seal_in_database(
    connection: asyncpg.Connection[Any],
    installation: OwnInstallation,
    location: Location,
    folder: DayFolder,
    manifest: Manifest,
) -> None:
    """Raise OperationError if a day is archived by a seal that the database does not have: it may have lost samples."""
    seals = await seals_of_day(connection, installation.number, folder.day)
    if (manifest.revision, manifest.root) not in [(seal.revision, seal.root) for seal in seals]:
        raise OperationError(
            f"archive {location.name}: {folder.manifest}: found a day of revision {manifest.revision} by seal "
            f"{manifest.serial}, which the database does not have: it was restored, or the archive is of another one. "
            "Restore what is missing, or move the archive away"
        )


def _amendments(manifest: Manifest) -> list[str]:
    return [file.path for file in manifest.files if file.amendment]


async def _sealed(
    connection: asyncpg.Connection[Any], installation: OwnInstallation, day: date
) -> tuple[SealedDay, Origin]:
    """A day by its newest seal. Raises OperationError."""
    seals = await seals_of_day(connection, installation.number, day)
    if not seals:
        raise OperationError(f"{day} is not sealed: run `plantlog evidence seal {day}`")
    sealed = await sealed_day(connection, day, seals)
    if sealed.problems or not sealed.document:
        problems = sealed.problems or ["the document with the names of its channels is missing"]
        raise NotAsSealed(f"{day} is not archived: {'; '.join(problems)}: see `plantlog evidence verify {day}`")
    scope = await load_scope(connection, seals[-1].installation)
    return sealed, Origin(installation.plant, scope, await stored_keys(connection, seals[-1].chain))


@dataclass(frozen=True, slots=True)
class _Stored:
    """Part of a day that is in the database."""

    n: Mapping[int, Sequence[int]]  # channel → samples by hour; -1 where some are not in the archive
    gone: Sequence[int] = ()  # channels that have none any more
    conflicts: bool = False  # of which there is an event now


async def _compared(
    connection: asyncpg.Connection[Any], scope: Scope, files: DayFiles, changed: frozenset[int]
) -> _Stored:
    """Compare stored samples with archived ones. Channels that were compared before are left out, unless changed."""
    queries, day = load("archive"), files.folder.day
    stored, archived = DaySamples(connection, day), DaySamples(connection, day, files)
    known_channels = {row["channel_id"] for row in await connection.fetch(queries["select_known_channels"], day)}
    unknown = {row["channel_id"] for row in await connection.fetch(queries["select_unknown_channels"], day)}
    to_compare = [
        number for number in await stored.channels(scope) if number not in known_channels or number in changed
    ]
    n: dict[int, list[int]] = {}
    conflicts = False
    async for portion in stored.portions(to_compare):
        archived_samples = await archived.in_archive(portion)
        for number, samples in portion.items():
            before = archived_samples.get(number, NO_SAMPLES)
            if len(only_stored(before, samples)):
                n[number] = [-1] * 24
                continue
            hours = hour_digests(samples, day)
            n[number] = [hours.get(hour, (0, b""))[0] for hour in range(24)]
            conflicts |= await _record_conflicts(connection, before, samples)
    return _Stored(n, sorted(set(scope.select(unknown)) - set(n)), conflicts)


async def _record_conflicts(connection: asyncpg.Connection[Any], kept: Samples, refused: Samples) -> bool:
    """Return whether there are new events of samples that are archived with another value or status."""
    kept = kept.part(time_mask(kept, refused.time))
    differ = (kept.bits != refused.bits) | (kept.status != refused.status)
    if not differ.any():
        return False
    kept, refused = kept.part(differ), refused.part(differ)
    columns = [
        column.tolist() for samples in (kept, refused) for column in (samples.value, samples.status.view(np.int32))
    ]
    keys = kept.channel.tolist(), kept.time.tolist()
    return bool(await connection.fetchval(load("packing")["insert_conflicts"], *keys, *columns))


async def _record(
    connection: asyncpg.Connection[Any],
    installation: OwnInstallation,
    location: Location,
    sealed: SealedDay,
    manifest: Manifest,
    started: datetime,
    stored: _Stored,
    how: str,
    *,
    dropped: bool,
) -> None:
    """Record that a day is archived, and which of its samples may be dropped."""
    queries, key = load("archive"), (sealed.day, installation.number)
    async with connection.transaction():
        await connection.execute(queries["lock_packing"])
        row = await connection.fetchrow(queries["select_archived_day"], installation.number, sealed.day)
        if (row is not None and row["dropped"]) != dropped:
            raise OperationError(f"{sealed.day}: retention dropped samples meanwhile; the next run goes on")
        seal = sealed.seals[-1]
        await connection.execute(
            queries["upsert_archived_day"],
            *(*key, seal.revision, bytes.fromhex(seal.root), location.name, manifest.samples, manifest.bytes),
            len(_amendments(manifest)),
            started,
        )
        if not dropped:
            await connection.execute(queries["delete_archived_channels"], sealed.day, None, installation.number)
        n = [n for hours in stored.n.values() for n in hours]
        await connection.execute(queries["upsert_archived_channels"], *key, list(stored.n), n, not dropped, started)
        await connection.execute(
            queries["delete_archived_channels"], sealed.day, list(stored.gone), installation.number
        )
        await connection.execute(queries["update_late"], *key, stored.conflicts)
        await connection.execute(queries["insert_archived_event"], *key, how)
