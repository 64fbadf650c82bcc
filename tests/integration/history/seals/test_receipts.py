"""The writer leaves receipts of what it adds to sealed days, so that seals are amended; and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from core.batch import Batch, Event, EventBatch, Gap, GapBatch, SampleBatch
from core.config.model import WriterOptions
from core.samples import Samples
from core.timestamps import begin, microseconds, now_us
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from ops.maintenance.job import JobContext, run
from ops.maintenance.jobs import jobs
from tests.database import connected
from tests.integration.history.sealed_plant import BEFORE, DAY, SealedPlant
from tests.sample_tables import HOUR_US, bits

FIRST = microseconds(begin(DAY))


async def written(plant: SealedPlant, batches: Sequence[Batch]) -> None:
    """By the writer, from its spool in the state folder."""
    folder = plant.state.root / "spool"
    folder.mkdir(exist_ok=True)
    spool = Spool(folder / "modbus.sqlite", 1 << 26)
    for batch in batches:
        await spool.append(batch)
    writer = Writer(folder, plant.database.ingest_dsn, WriterOptions())
    writer.drain()
    await writer.run()
    await spool.close()


def samples(plant: SealedPlant, times: Sequence[int], value: float = 1.0) -> SampleBatch:
    """Samples of one channel; times from the first day's begin, µs."""
    n = len(times)
    time = np.array(times, np.int64) + FIRST
    ids = np.full(n, plant.ids["unit/flow"], np.int32)
    return SampleBatch(plant.source, now_us(), Samples(ids, time, np.full(n, value), np.zeros(n, np.uint32)))


async def receipts(plant: SealedPlant) -> list[str]:
    """Their kinds."""
    return [row[0] for row in await plant.owner.fetch("SELECT kind FROM plant.receipt ORDER BY kind, day")]


@pytest.mark.parametrize("packed", [False, True])
async def test_writer_leaves_receipts_of_what_is_new(plant: SealedPlant, packed: bool) -> None:
    await plant.seal()
    if packed:
        await plant.pack()
    late = [5 * HOUR_US + 500_000, 6 * HOUR_US + 500_000, 9 * HOUR_US, 9 * HOUR_US + 1, 29 * HOUR_US + 500_000]
    known = [5 * HOUR_US + n * 1_000_000 for n in range(10)]  # stored already, with other values
    event = Event("text", FIRST + 5 * HOUR_US, plant.ids["unit/flow"], text="said late")
    gap = Gap(FIRST + 10 * HOUR_US, FIRST + 11 * HOUR_US, "disconnected", None)
    batches: list[Batch] = [
        samples(plant, sorted([*late, *known])),
        EventBatch(plant.source, now_us(), (event,)),
        GapBatch(plant.source, now_us(), (gap,)),
    ]
    await written(plant, batches)
    assert set(await receipts(plant)) == {"samples", "events", "gap"}
    report = await plant.verify()
    assert report.ok
    assert [(finding.difference.what, finding.difference.hour) for finding in report.days[0].findings] == [
        ("unit/flow", 5), ("unit/flow", 6), ("unit/flow", 9), ("events", 5), ("gaps", None),
    ]  # fmt: skip
    done = await plant.seal()
    assert [(sealed_day.seal.day, sealed_day.seal.revision, sealed_day.seal.samples) for sealed_day in done] == [
        ("2026-03-09", 1, 484),
        ("2026-03-10", 1, 481),
    ]
    assert all(day.strictly_ok for day in (await plant.verify()).days)
    assert await receipts(plant) == []
    await written(plant, batches[:1])  # sent again
    await plant.pack()
    await plant.seal()
    assert all(day.strictly_ok for day in (await plant.verify()).days)


async def test_gap_is_closed_withdrawn_and_backfilled_after_the_seal(plant: SealedPlant) -> None:
    begins = [FIRST + hour * HOUR_US for hour in (10, 12, 14)]
    opened = [Gap(at, None, "disconnected", None) for at in begins]
    await written(plant, [GapBatch(plant.source, now_us(), tuple(opened))])
    await plant.seal()
    reported = (
        Gap(begins[0], begins[0] + HOUR_US, "disconnected", None),
        Gap(begins[1], begins[1], "disconnected", None),
        Gap(begins[2], begins[2] + HOUR_US, "disconnected", None, backfilled=True),
    )
    await written(plant, [GapBatch(plant.source, now_us(), reported)])
    report = await plant.verify()
    assert report.ok
    assert not any(day.strictly_ok for day in report.days)
    assert [(sealed_day.seal.revision, sealed_day.seal.gaps) for sealed_day in await plant.seal()] == [
        (1, 4),
        (1, 0),
        (1, 0),
    ]
    report = await plant.verify()
    assert all(day.strictly_ok for day in report.days)
    assert len(report.days[0].amended) == 3


async def test_days_that_are_not_sealed_get_no_receipts(plant: SealedPlant) -> None:
    at = [5 * HOUR_US + 500_000]
    await written(plant, [samples(plant, at)])
    await plant.seal()
    today = (now_us() - FIRST) // (24 * HOUR_US) * 24 * HOUR_US
    await written(plant, [samples(plant, [today]), samples(plant, [today - 24 * HOUR_US])])
    assert await receipts(plant) == []


async def test_what_comes_while_a_day_is_sealed_is_in_the_seal_or_has_a_receipt(plant: SealedPlant) -> None:
    """Sealing waits for a transaction that began before it; one that begins later knows that it is being sealed."""
    async with connected(plant.database.owner_dsn) as other:
        transaction = other.transaction()
        await transaction.start()
        assert await other.fetchval("SELECT plant.sealed_among(ARRAY[$1::date])", DAY) == []
        assert not await plant.owner.fetchval("SELECT pg_try_advisory_lock(7361023400155)")
        await transaction.rollback()
        assert await plant.owner.fetchval("SELECT pg_try_advisory_lock(7361023400155)")
        assert await plant.owner.fetchval("SELECT pg_advisory_unlock(7361023400155)")
        await plant.owner.execute("INSERT INTO plant.seal_progress VALUES ($1, now(), 0, 0, 1)", DAY)
        assert await other.fetchval("SELECT plant.sealed_among(ARRAY[$1::date])", DAY) == [DAY]
    await plant.late("unit/flow", [(5 * HOUR_US + 500_000, bits(1.0), 0)])  # it begins to be sealed
    assert await receipts(plant) == ["samples"]
    await plant.seal()
    assert await receipts(plant) == []
    assert all(day.strictly_ok for day in (await plant.verify()).days)


async def test_retention_is_signed(plant: SealedPlant, tmp_path: Path) -> None:
    await plant.seal()
    await plant.owner.execute("DELETE FROM plant.rollup_dirty")
    await plant.owner.execute("UPDATE plant.retention_class SET raw = $1", timedelta(days=1))
    context = JobContext(plant.database.maintenance_dsn, plant.database.owner_dsn, plant.state)
    done = await run(next(job for job in jobs() if job.name == "retain"), context)
    assert done.outcome == "ok", done.done.detail
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.samples_raw") == 0
    report = await plant.verify()
    assert report.ok
    assert all("retention recorded at" in finding.explained for day in report.days for finding in day.findings)
    assert sum(len(day.findings) for day in report.days) == 12
    await plant.owner.execute("UPDATE plant.receipt SET content = content || ' ' WHERE kind = 'retention'")
    assert not (await plant.verify()).ok
    assert BEFORE.date() > DAY
