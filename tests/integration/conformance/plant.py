"""A plant of the conformance tests: changes to it, and views of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from core.batch import SampleBatch
from core.config.model import WriterOptions
from ingest.writer.writer import Writer
from ops.maintenance.packing import compress_before
from tests.database import Database, connected
from tests.sample_tables import DAY, Sample, copy, samples_between, samples_in_view
from tests.spooling import drained, spooled
from tests.waiting import until

CHANNELS = 16
ZONE = "Europe/Berlin"
MINUTE = 60_000_000  # µs
NEXT_DAY = DAY + timedelta(days=1)
_FILL = """
INSERT INTO plant.samples_raw (time, value, channel_id, status)
SELECT $1::timestamptz + i * INTERVAL '1 minute', round((c + sin(i))::numeric, 2)::float8, c, 0
FROM generate_series(0, $2::int - 1) AS i, generate_series(1, $3::int) AS c
"""
# One statement, one snapshot: what it says is of one moment. Rows are counted in both ways, so that a sample that is
# seen twice shows.
LOOK = """
SELECT count(*) AS rows, count(DISTINCT (s.channel_id, s.time)) AS keys,
       sum(hashtextextended(s.channel_id || ' ' || s.time || ' ' || s.value, 0)) AS digest
FROM {} AS s
WHERE s.channel_id <= {}
"""


async def set_time_zone(database: Database, zone: str) -> None:
    """The time zone of sessions that name none."""
    async with connected(database.owner_dsn) as owner:
        await owner.execute(
            await owner.fetchval(
                "SELECT format('ALTER DATABASE %I SET timezone = %L', current_database(), $1::text)", zone
            )
        )


@dataclass(frozen=True, slots=True)
class ConformancePlant:
    """A database with a source and :data:`CHANNELS` channels."""

    database: Database
    owner: asyncpg.Connection[Any]
    edition: str

    async def set_compression(self, form: str | None) -> None:
        """Set the configured form of compression; None: remove it."""
        await self.owner.execute("DELETE FROM plant.setting WHERE key = 'compression'")
        if form is not None:
            await self.owner.execute("INSERT INTO plant.setting VALUES ('compression', $1)", form)

    async def fill(self, since: datetime = DAY, minutes: int = 1440, channels: int = CHANNELS) -> None:
        """A sample a minute on each channel."""
        await self.owner.execute(_FILL, since, minutes, channels)

    async def copy(self, channel: int, samples: Sequence[Sample]) -> None:
        """Copy samples like the writer, with the writer's role."""
        async with connected(self.database.ingest_dsn) as connection:
            await copy(connection, channel, samples)

    async def write(self, folder: Path, *batches: SampleBatch) -> Writer:
        """Through a spool and the writer; returns it with what it counted."""
        await spooled(folder, *batches)
        return await drained(Writer(folder, self.database.ingest_dsn, WriterOptions()))

    async def compress(self, before: datetime = NEXT_DAY) -> None:
        """Compress like maintenance."""
        await compress_before(self.owner, before)

    async def close_days(self, before: datetime = NEXT_DAY) -> None:
        """Compress until every day has its closed form: a day that somebody uses is left for the next call."""

        async def closed() -> bool:
            await self.compress(before)
            return {form for _, form in await self.form_of_days()} <= {await self.closed_form()}

        await until(closed)

    async def look(self, relation: str = "plant.samples") -> tuple[int, int, int]:
        """Rows, keys and digest of all samples."""
        row = await self.owner.fetchrow(LOOK.format(relation, CHANNELS))
        assert row is not None
        return row["rows"], row["keys"], row["digest"]

    async def everywhere(self, channel: int, first: datetime = DAY, last: datetime = NEXT_DAY) -> list[Sample]:
        """A channel's samples between two times, which every way of reading must show alike."""
        start, end = ((time - DAY) // timedelta(microseconds=1) for time in (first, last))
        ways = [
            [s for s in await samples_in_view(self.owner, channel) if start <= s[0] < end],
            await samples_between(self.owner, channel, start, end),
            await self._fetch("plant.samples_between($2, $3)", channel, first, last),
            await self._fetch("plant.samples_named", channel, first, last),
        ]
        assert ways[1:] == ways[:-1]
        return ways[0]

    async def _fetch(self, relation: str, channel: int, first: datetime, last: datetime) -> list[Sample]:
        rows = await self.owner.fetch(
            "SELECT s.time, encode(float8send(s.value), 'hex') AS bits, s.status"
            f" FROM {relation} AS s WHERE s.channel_id = $1 AND s.time >= $2 AND s.time < $3 ORDER BY s.time",
            *(channel, first, last),
        )
        return [
            ((row["time"] - DAY) // timedelta(microseconds=1), int(row["bits"], 16), row["status"] & 0xFFFFFFFF)
            for row in rows
        ]

    async def forms(self) -> dict[tuple[datetime, str], tuple[int | None, int]]:
        """(day, form) → rows and bytes of the samples, as ``storage()`` tells them."""
        rows = await self.owner.fetch(
            "SELECT day, form, rows, bytes FROM plant.storage() WHERE relation IN ('samples_raw', 'samples_packed')"
        )
        return {(row["day"], row["form"]): (row["rows"], row["bytes"]) for row in rows}

    async def form_of_days(self) -> set[tuple[datetime, str]]:
        """(day, form) of what holds samples: pages of rows that are gone are given back first."""
        await self.owner.execute("VACUUM plant.samples_raw")
        return set(await self.forms())

    async def native(self) -> bool:
        """Return whether closed days go to the columnstore."""
        return bool(await self.owner.fetchval("SELECT plant.compression() = 'native'"))

    async def closed_form(self) -> str:
        """The form of a closed day as ``storage()`` names it."""
        return "columnstore" if await self.native() else "packed"
