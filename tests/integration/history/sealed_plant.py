"""A plant whose days are sealed: setup for tests of evidence. What a writer leaves is written by hand here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from core.paths import State
from core.sealing_key import receipt_statement
from core.timestamps import begin, microseconds
from history.seals.delete import Deletion, delete
from history.seals.keys import load_signer
from history.seals.report import Report
from history.seals.seal import seal_days
from history.seals.seal_writer import SealResult
from history.seals.verify import verify
from ingest.writer.transaction.receipts import SAMPLE, sign_gap_receipts, write_sample_receipts
from ops.maintenance.packing import compress_before
from ops.registration.installation import installation_id
from schema.queries import load
from tests import sample_tables
from tests.database import Database
from tests.sample_tables import HOUR_US, Sample, bits, copy
from tests.states import store_dsns

DAY = sample_tables.DAY.date()
BEFORE = datetime(2026, 3, 12, tzinfo=UTC)  # three days are closed

_INSTALLATION = """
INSERT INTO plant.installation (id, plant, class_prefix, number, sealing)
SELECT $1, $2, CASE WHEN count(*) = 0 THEN '' ELSE $2 END, count(*) + 1, true FROM plant.installation
"""
_SOURCE = """
INSERT INTO plant.source (name, kind, address, installation_id) VALUES ($1, 'modbus', '127.0.0.1:502', $2) RETURNING id
"""
_CHANNEL = """
INSERT INTO plant.channel (name, source_id, address, kind, unit) VALUES ($1, $2, 'holding:1', 'analog', 'bar')
RETURNING id
"""
_BATCH = """
INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())
"""
_EVENT = """
INSERT INTO plant.event (time, id, type, source_id, channel_id, text, detail) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""


class SealedPlant:
    """One database with a state folder; ``owner`` is its owner's session. ``name``: of a registered installation."""

    def __init__(self, database: Database, folder: Path, name: str | None = None) -> None:
        self.database = database
        self.name = name
        self.state = State(folder)
        store_dsns(self.state, **database.dsns("owner", "ingest", "reader"))
        self.ids: dict[str, int] = {}
        self._numbers = 0

    async def __aenter__(self) -> SealedPlant:
        self.owner: asyncpg.Connection[Any] = await asyncpg.connect(self.database.owner_dsn)
        own = None if self.name is None else installation_id(self.state)
        if own is not None:
            await self.owner.execute(_INSTALLATION, own, self.name)
        self.source: int = await self.owner.fetchval(_SOURCE, self.name or "plc", own)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.owner.close()

    async def channel(self, name: str) -> int:
        """A channel's id; made where there is none."""
        if name not in self.ids:
            self.ids[name] = await self.owner.fetchval(_CHANNEL, name, self.source)
        return self.ids[name]

    async def samples(self, name: str, samples: Sequence[Sample]) -> None:
        """COPY, without evidence of it."""
        await copy(self.owner, await self.channel(name), samples)

    async def batch(self, kind: str, rows: int, first: datetime, last: datetime) -> None:
        """The facts of a batch that was written now."""
        self._numbers += 1
        await self.owner.execute(_BATCH, self.source, self._numbers, kind, rows, first, last)

    async def late(self, name: str, samples: Sequence[Sample]) -> None:
        """Samples that come late, as the writer leaves them."""
        times_us = np.array([microseconds(begin(DAY)) + sample[0] for sample in samples], np.int64)
        async with self.owner.transaction():
            await self.samples(name, samples)
            ids = np.full(len(samples), await self.channel(name), np.int32)
            await write_sample_receipts(self.owner, ids, times_us)
        times = [begin(DAY) + timedelta(microseconds=sample[0]) for sample in samples]
        await self.batch("samples", len(samples), min(times), max(times))

    async def event(self, at: datetime, kind: str, text: str, detail: str = "{}") -> None:
        """An event of the source."""
        self._numbers += 1
        await self.owner.execute(_EVENT, at, self._numbers, kind, self.source, None, text, detail)

    async def late_event(self, at: datetime, kind: str, text: str) -> None:
        """An event that comes late, as the writer leaves it."""
        async with self.owner.transaction():
            await self.event(at, kind, text)
            await self.owner.execute(
                "SELECT plant.receipt_of_events(ARRAY[$1::timestamptz], ARRAY[$2::bigint])", at, self._numbers
            )
        await self.batch("events", 1, at, at)

    async def gap(self, statement: str, *arguments: Any) -> None:
        """Add or change a gap as the writer does, which signs it."""
        async with self.owner.transaction():
            await self.owner.execute(statement, *arguments)
            await sign_gap_receipts(self.owner, self.state.root)

    async def delete(self, name: str, since: datetime, until: datetime, why: str = "a test") -> int:
        """Delete samples, as the command does; returns their number."""
        deletion = Deletion([name], since, until, why, "eva")
        return (await delete(self.database.owner_dsn, self.state, deletion, False)).samples

    async def receipt(self, kind: str, content: bytes, day: date = DAY) -> None:
        """A receipt as whoever can write to the database can add it."""
        await self.owner.execute(
            "INSERT INTO plant.receipt (day, kind, content) VALUES ($1, $2, $3)", day, kind, content
        )

    async def late_samples(self, rows: Sequence[tuple[str, datetime]]) -> None:
        """The same of samples: name and time of each."""
        content = np.array([(self.ids[name], microseconds(at)) for name, at in rows], SAMPLE)
        await self.receipt("samples", content.tobytes())

    async def retention(self, detail: Mapping[str, Any]) -> None:
        """A receipt of what retention dropped, as maintenance leaves it."""
        content, signer = json.dumps(detail).encode(), load_signer(self.state)
        assert signer is not None
        signature = bytes.fromhex(signer.sign(receipt_statement("retention", content)))
        day = datetime.fromisoformat(detail["from"]).date()
        query = load("maintenance")["insert_retention_receipt"]
        await self.owner.execute(query, day, content, bytes.fromhex(signer.fingerprint), signature)

    async def pack(self) -> None:
        """Pack what is before :data:`BEFORE`."""
        await compress_before(self.owner, BEFORE)

    async def seal(self, before: datetime = BEFORE, **options: Any) -> list[SealResult]:
        """Seal closed days."""
        done = await seal_days(self.database.owner_dsn, self.state, before, **options)
        assert done is not None
        return done

    async def verify(self, day: date | None = None, channels: Sequence[str] = (), key: Path | None = None) -> Report:
        """Verify as the reader."""
        [report] = await verify(self.database.reader_dsn, self.state, key, day, channels)
        return report

    async def tamper(self, statement: str, *arguments: Any) -> None:
        """Change what triggers protect, as an owner can who means to."""
        tables = [row[0] for row in await self.owner.fetch(
            "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'only_added'")]  # fmt: skip
        for table in tables:
            await self.owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
        await self.owner.execute(statement, *arguments)
        for table in tables:
            await self.owner.execute(f"ALTER TABLE {table} ENABLE TRIGGER ALL")


def minute(day: int, values: Sequence[float], hour: int = 5) -> list[Sample]:
    """A sample a second of an hour, so many days after DAY."""
    first = (day * 24 + hour) * HOUR_US
    return [(first + i * 1_000_000, bits(value), 0) for i, value in enumerate(values)]


def public_key(plant: SealedPlant, path: Path) -> Path:
    """The public key in use, in a file."""
    signer = load_signer(plant.state)
    assert signer is not None
    path.write_text(signer.pem())
    return path
