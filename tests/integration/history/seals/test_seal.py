"""Days are sealed once, late data amend them, and nothing else does."""

from __future__ import annotations

import json
from datetime import timedelta

import asyncpg
import pytest

from core.timestamps import begin, microseconds
from history.seals.seal import seal_closed
from history.standalone import rows_before
from tests.database import connected
from tests.integration.history.sealed_plant import BEFORE, DAY, SealedPlant, minute
from tests.sample_tables import HOUR_US, bits


async def test_closed_days_are_sealed_once(plant: SealedPlant) -> None:
    done = await plant.seal(BEFORE - timedelta(seconds=1))  # the third day is not over
    assert [(sealed_day.seal.day, sealed_day.seal.samples, sealed_day.seal.channels) for sealed_day in done] == [
        ("2026-03-09", 480, 2),
        ("2026-03-10", 480, 2),
    ]
    assert (done[0].seal.events, done[0].seal.gaps) == (1, 1)
    assert done[1].seal.previous == done[0].seal.hash()
    assert await seal_closed(plant.database.owner_dsn, plant.state, BEFORE) == [DAY + timedelta(days=2)]
    assert await plant.seal() == []
    sealed = await plant.owner.fetch("SELECT DISTINCT day FROM plant.day_seal")
    assert {row["day"] for row in sealed} == {DAY + timedelta(days=n) for n in range(3)}
    report = await plant.verify()
    assert report.ok
    assert report.anchored
    assert [day.samples for day in report.days] == [480, 480, 480]


async def test_empty_days_are_sealed_once_sealing_has_begun(plant: SealedPlant) -> None:
    await plant.seal()
    done = await plant.seal(BEFORE + timedelta(days=2))
    assert [(sealed_day.seal.day, sealed_day.seal.samples) for sealed_day in done] == [
        ("2026-03-12", 0),
        ("2026-03-13", 0),
    ]
    assert (await plant.verify()).ok


async def test_packing_changes_no_digest(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.pack()
    report = await plant.verify()
    assert report.ok
    assert not any(day.findings for day in report.days)
    assert await plant.seal() == []


@pytest.mark.parametrize("packed", [False, True])
async def test_late_data_amend_the_seal_and_keep_the_first(plant: SealedPlant, packed: bool) -> None:
    first = await plant.seal()
    if packed:
        await plant.pack()
    await plant.late("unit/flow", [(6 * HOUR_US + 500_000, bits(1.5), 0), (9 * HOUR_US, bits(-0.0), 0)])
    report = await plant.verify(DAY)
    assert report.ok
    assert [(f.difference.what, f.difference.hour, f.difference.kind) for f in report.days[0].findings] == [
        ("unit/flow", 6, "added"),
        ("unit/flow", 9, "added"),
    ]
    assert report.days[0].findings[0].explained.startswith("late data: 1 sample, the rest is as sealed")
    assert not report.days[0].strictly_ok
    [amended] = await plant.seal()
    assert (amended.seal.day, amended.seal.revision, amended.seal.kind) == ("2026-03-09", 1, "amended")
    assert amended.seal.samples == first[0].seal.samples + 2
    changes = json.loads(amended.differs)["channels"]
    assert [rows_before([b"x"] * change["after"], change.pop("added")) for change in changes] == [[b"x"] * 120, []]
    assert changes == [
        {"id": plant.ids["unit/flow"], "name": "unit/flow", "hour": 6, "before": 120, "after": 121},
        {"id": plant.ids["unit/flow"], "name": "unit/flow", "hour": 9, "before": 0, "after": 1},
    ]
    await plant.pack()
    report = await plant.verify()
    assert report.ok
    assert all(day.strictly_ok for day in report.days)
    assert [amendment.describe() for amendment in report.days[0].amended] == [
        "revision 1: unit/flow, hour 06: 1 sample added",
        "revision 1: unit/flow, hour 09: 1 sample added",
    ]
    assert await plant.seal() == []
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.receipt") == 0
    kept = await plant.owner.fetch("SELECT channel_id FROM plant.seal_digest WHERE day = $1 AND revision = 1", DAY)
    assert [row["channel_id"] for row in kept] == [plant.ids["unit/flow"]]


async def test_unexplained_difference_is_never_amended(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.owner.execute("UPDATE plant.samples_raw SET value = 41 WHERE time = $1", begin(DAY, 5))
    await plant.late("unit/flow", [(6 * HOUR_US + 500_000, bits(1.5), 0)])
    await plant.seal()
    [day] = (await plant.verify(DAY)).days
    found = {(f.difference.what, f.difference.hour, f.difference.kind, f.explained) for f in day.findings}
    assert found == {("unit/flow", 5, "changed", ""), ("unit/pressure", 5, "changed", "")}


async def test_late_event_amends_the_seal(plant: SealedPlant) -> None:
    await plant.seal()
    at = begin(DAY, 11)
    await plant.late_event(at, "text", "said late")
    await plant.late_event(begin(DAY, 5), "text", "said late")
    report = await plant.verify(DAY)
    assert [finding.explained[:17] for finding in report.days[0].findings] == ["late data: 1 even"] * 2
    [amended] = await plant.seal()
    events = json.loads(amended.differs)["events"]
    assert [(event["hour"], event["before"], event["after"]) for event in events] == [(5, 1, 2), (11, 0, 1)]
    report = await plant.verify()
    assert all(day.strictly_ok for day in report.days)
    assert [amendment.what for amendment in report.days[0].amended] == [
        "events, hour 05: 1 event added",
        "events, hour 11: 1 event added",
    ]


async def test_open_gap_is_sealed_up_to_the_end_of_the_day(plant: SealedPlant) -> None:
    await plant.owner.execute("UPDATE plant.gap SET to_time = NULL")
    await plant.seal()
    await plant.gap("UPDATE plant.gap SET to_time = $1", BEFORE)
    assert all(day.strictly_ok for day in (await plant.verify()).days)
    await plant.gap("UPDATE plant.gap SET to_time = $1, backfilled_at = now()", begin(DAY, 8))
    report = await plant.verify(DAY)
    assert [finding.difference.describe() for finding in report.days[0].findings] == [
        "gaps: at least 1 changed (1 sealed, 1 found)"
    ]
    assert report.ok
    done = await plant.seal()
    assert [sealed_day.seal.revision for sealed_day in done] == [1, 1, 1]
    changes = [json.loads(sealed_day.differs)["gaps"] for sealed_day in done]
    assert [(change["before"], change["after"]) for change in changes] == [
        (1, 1),
        (1, 0),
        (1, 0),
    ]  # it no longer reaches these
    key = [plant.source, None, microseconds(begin(DAY, 7))]
    assert changes[0]["rows"] == [{"gap": key, "was": [*key, microseconds(begin(DAY, 24)), "disconnected", "", False]}]
    report = await plant.verify()
    assert all(day.strictly_ok for day in report.days)
    assert [amendment.what for amendment in report.days[2].amended] == [
        f"gap of source {plant.source} from 2026-03-09T07:00:00Z was reported anew"
    ]
    assert await plant.seal() == []
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.receipt") == 0


async def test_open_gap_that_is_recorded_late_amends_each_day_that_it_reaches(plant: SealedPlant) -> None:
    await plant.seal()
    begins = begin(DAY, 30)  # on the second of three days
    await plant.gap(
        "INSERT INTO plant.gap (source_id, from_time, reason) VALUES ($1, $2, 'stale')", plant.source, begins
    )
    report = await plant.verify()
    assert [len(day.findings) for day in report.days] == [0, 1, 1]
    assert report.ok
    done = await plant.seal()
    assert [(sealed_day.seal.day, sealed_day.seal.revision) for sealed_day in done] == [
        (f"2026-03-{day}", 1) for day in (10, 11)
    ]
    assert not any(day.findings for day in (await plant.verify()).days)


async def test_seals_cannot_be_changed(plant: SealedPlant) -> None:
    await plant.seal()
    for table in ("day_seal", "seal_digest", "seal_document", "seal_key"):
        for statement in (f"DELETE FROM plant.{table}", f"TRUNCATE plant.{table} CASCADE"):
            with pytest.raises(asyncpg.PostgresError, match="is refused: rows are only added"):
                await plant.owner.execute(statement)
    with pytest.raises(asyncpg.PostgresError, match=r"UPDATE on .*day_seal is refused"):
        await plant.owner.execute("UPDATE plant.day_seal SET samples = 1")


async def test_only_one_process_seals_at_a_time(plant: SealedPlant) -> None:
    async with connected(plant.database.owner_dsn) as other:
        assert await other.fetchval("SELECT pg_try_advisory_lock(73610235, 1)")
        assert await seal_closed(plant.database.owner_dsn, plant.state, BEFORE) == []
    assert len(await seal_closed(plant.database.owner_dsn, plant.state, BEFORE)) == 3


async def test_samples_of_an_unregistered_channel_are_sealed(plant: SealedPlant) -> None:
    await plant.owner.execute("INSERT INTO plant.samples_raw VALUES ($1, 1, 999, 0)", begin(DAY, 1))
    done = await plant.seal()
    assert done[0].seal.channels == 3
    await plant.owner.execute("INSERT INTO plant.samples_raw VALUES ($1, 1, 998, 0)", begin(DAY, 1))
    report = await plant.verify(DAY)
    assert [f.describe() for f in report.days[0].findings] == [
        "channel 998, hour 01: 1 added (0 sealed, 1 found): NOT explained by any record"
    ]


async def test_more_late_samples_than_fit_an_hour_of_minutes(plant: SealedPlant) -> None:
    """Channels differ in what they have; each hour is found."""
    await plant.seal()
    await plant.late("unit/new", minute(1, [1.0] * 3600, hour=23))
    [amended] = await plant.seal()
    assert (amended.seal.day, amended.seal.channels, amended.seal.samples) == ("2026-03-10", 3, 4080)


async def test_much_late_data_are_amended_in_parts(plant: SealedPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    """No snapshot is held for long."""
    await plant.seal()
    monkeypatch.setattr("history.seals.seal_writer._SAMPLES", 200)
    for hour in range(8, 14):
        await plant.late("unit/flow", minute(0, [1.0] * 100, hour))
    done = await plant.seal()
    assert [(sealed_day.seal.revision, sealed_day.seal.samples) for sealed_day in done] == [
        (1, 680),
        (2, 880),
        (3, 1080),
    ]
    report = await plant.verify()
    assert all(day.strictly_ok for day in report.days)
    assert len(report.days[0].amended) == 6
    assert await plant.seal() == []
