"""Archived days of generated channels, with the database that knows of them.

The samples never are in the database, which would take hours for 1.7 thousand million. Everything else is as in
operation: a seal of their digests, files that are compared with it, and days on record as archived and dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from core.errors import OperationError
from core.paths import State
from core.samples import Samples, slices
from core.timestamps import begin
from history.archive.location import Location
from history.archive.manifest import claim
from history.archive_days.day import OwnInstallation, archive_day, own_installation
from history.reading.day_samples import DaySamples
from history.reading.hours import hour_digests
from history.reading.reader import connected
from history.reading.scope import Scope, load_scope
from history.seals import partial_digests
from history.seals.keys import signer
from history.seals.seal_writer import write_first_seal
from history.sql.sources.execution import in_order
from lab.bench import generated_plant
from ops.registration.installation import installation_id
from schema.queries import load

_PLAN = "plan.json"
_DIGESTED = 1000  # channels whose digests are stored at a time
_PROGRESS_EVERY = 2000  # channels
_THREADS = os.cpu_count() or 1
ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """Plan of the archive: a day of all channels, and days before of the first ``few``."""

    channels: int
    few: int
    days: int  # with the one of all channels
    first_hour: int = 0  # of each day that has samples
    until_hour: int = 24
    day: str = "2026-09-22"

    @property
    def last(self) -> date:
        """The day of all channels."""
        return date.fromisoformat(self.day)

    @property
    def first(self) -> date:
        """The first one of the others."""
        return self.last - timedelta(days=self.days - 1)

    @property
    def hours(self) -> range:
        """Hours with samples."""
        return range(self.first_hour, self.until_hour)


def state_of(folder: Path) -> State:
    """The state folder in the benchmark's."""
    return State(folder / "server")


def place_of(folder: Path) -> Path:
    """The archive in the benchmark's folder."""
    return folder.absolute() / "archive"


def existing_plan(folder: Path) -> ArchivePlan | None:
    """Plan of a folder's archive; None: it is empty. Raises OperationError if it was not finished."""
    path = folder / _PLAN
    if path.exists():
        return ArchivePlan(**json.loads(path.read_text()))
    if folder.exists() and any(folder.iterdir()):
        raise OperationError(f"{folder} is neither empty nor a finished archive of this benchmark: remove it")
    return None


async def make(dsn: str, folder: Path, plan: ArchivePlan, progress: ProgressCallback) -> None:
    """Generate and archive all days, in the folder's archive, which is empty.

    ``dsn``: the owner of a migrated, empty database, that of the state folder.
    """
    state, location = state_of(folder), Location.at(str(place_of(folder)))
    claim(location, has_days=False)
    async with connected(dsn, "plantlog bench") as connection:
        await _register(connection, state, plan.channels)
        installation = await own_installation(connection, state)
        scope = await load_scope(connection, 0)  # alone in the database
        for number in range(plan.days):
            day = plan.first + timedelta(days=number)
            channels = plan.channels if day == plan.last else plan.few
            await _archive(
                connection,
                installation,
                location,
                scope,
                state,
                _Generated(connection, day, channels, plan.hours, progress),
            )
        await connection.execute(load("bench")["release_days"])
    (folder / _PLAN).write_text(json.dumps(asdict(plan), indent=1) + "\n")


class _Generated(DaySamples):
    """The samples of a day, as if the database had them; its events and gaps are there."""

    def __init__(
        self, connection: asyncpg.Connection[Any], day: date, channels: int, hours: range, progress: ProgressCallback
    ) -> None:
        super().__init__(connection, day)
        self.numbers = range(1, channels + 1)
        self.hours = hours
        self.progress = progress

    async def channels(self, scope: Scope) -> list[int]:
        """Ids of the channels with samples, ascending."""
        return list(self.numbers)

    async def stream(self, channels: Sequence[int], hours: range = range(24)) -> AsyncIterator[tuple[int, Samples]]:
        """The day of channels in their order."""
        with ThreadPoolExecutor(_THREADS) as threads:
            for samples in in_order(lambda number: threads.submit(self._samples, number), channels, _THREADS):
                yield samples
                if samples[0] % _PROGRESS_EVERY == 0:
                    self.progress(f"{self.day}: {samples[0]:,} of {len(self.numbers):,} channels are written")

    async def digest(self, scope: Scope) -> None:
        """Put the digests of all hours where those of samples in the database are put before they are sealed."""
        queries = load("evidence")
        await self.connection.execute(queries["insert_progress"], scope.chain, self.day)
        with ThreadPoolExecutor(_THREADS) as threads:
            for portion in slices(self.numbers, _DIGESTED):
                rows: dict[int, list[tuple[int, int, bytes]]] = {}
                digests = in_order(lambda number: threads.submit(self._digests, number), portion, _THREADS)
                for number, hours in digests:
                    for hour, (n, digest) in hours.items():
                        rows.setdefault(hour, []).append((number, n, digest))
                for hour, of_hour in rows.items():
                    columns = [list(column) for column in zip(*of_hour, strict=True)]
                    await self.connection.execute(
                        queries["upsert_partial_digests"], scope.chain, self.day, hour, *columns
                    )

    def _samples(self, number: int) -> tuple[int, Samples]:
        return number, generated_plant.samples(number, self.day, self.hours)

    def _digests(self, number: int) -> tuple[int, partial_digests.ByHour]:
        return number, hour_digests(self._samples(number)[1], self.day)


async def _register(connection: asyncpg.Connection[Any], state: State, channels: int) -> None:
    """The channels, and an installation that seals and archives."""
    described = [generated_plant.channel(number) for number in range(1, channels + 1)]
    columns = [[getattr(channel, name) for channel in described] for name in ("name", "source", "kind", "unit")]
    rows = await connection.fetch(load("bench")["insert_generated_channels"], *columns)
    if [(row["id"], row["name"]) for row in rows] != list(enumerate(columns[0], 1)):
        raise OperationError("the benchmark requires an empty database, whose channels have the ids from 1 on")
    await connection.execute(load("bench")["insert_installation"], installation_id(state))


async def _archive(
    connection: asyncpg.Connection[Any],
    installation: OwnInstallation,
    location: Location,
    scope: Scope,
    state: State,
    samples: _Generated,
) -> None:
    """Seal and archive a day."""
    day, queries = samples.day, load("bench")
    units = generated_plant.units(len(samples.numbers))
    gap = [begin(day) + timedelta(seconds=second) for second in generated_plant.GAP]
    upset = [generated_plant.source(unit) for unit in units if generated_plant.has_upset(unit)]
    await connection.execute(queries["insert_generated_gaps"], upset, *gap)
    bounds = begin(day, samples.hours.start), begin(day, samples.hours.stop)
    await connection.execute(
        queries["insert_generated_events"], [generated_plant.source(unit) for unit in units], *bounds
    )
    started = await connection.fetchval(load("evidence")["select_clock"])
    await samples.digest(scope)
    async with connection.transaction(isolation="repeatable_read"):
        await write_first_seal(connection, await signer(connection, state), samples, scope, started)
    samples.progress(f"{day}: sealed")

    manifest = await archive_day(connection, installation, location, day, state, samples)
    samples.progress(f"{day}: {manifest.samples:,} samples in {manifest.bytes / 1e6:,.0f} MB")
