"""The job that archives sealed days, and retention that waits for it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from core.installation import installation_of
from core.timestamps import begin
from history.notebook.archive import Archive
from schema.queries import load
from tests.config_in_force import activate
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.archive_site import problems_of
from tests.integration.history.sealed_plant import DAY

_NEXT = DAY + timedelta(days=1)


async def test_sealed_days_are_archived_and_then_dropped(plant: Maintained) -> None:
    assert await plant.drop() == ["unarchived"]
    done = await plant.job()
    assert (done.outcome, done.done.rows, done.done.detail) == ("ok", 1160, "2 days to 2026-03-10")
    assert [day for day, _, _ in await plant.archived()] == plant.site.opened.days()
    event = await plant.owner.fetchrow(
        "SELECT text, detail FROM plant.event WHERE type = 'archived' ORDER BY time LIMIT 1"
    )
    assert event is not None
    assert event["text"].startswith("2026-03-09, revision 0: 680 samples in ")
    assert json.loads(event["detail"])["location"] == str(plant.site.folder)
    assert (await plant.job()).done.rows == 0  # nothing is written again
    assert await plant.drop() == ["chunk"]
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.samples WHERE time < $1", begin(DAY, 24)) == 0
    assert len(plant.site.opened.samples(["*"], begin(DAY), begin(DAY, 24))) == 680
    assert problems_of(plant.site.opened) == []
    rows = await plant.owner.fetch(
        "SELECT day, rows, bytes FROM plant.storage() WHERE relation = 'archive' ORDER BY day"
    )
    size = sum(file.bytes for file in plant.site.opened.manifest(DAY).files)
    assert (len(rows), *rows[0]) == (2, begin(DAY), 680, size)


async def test_late_samples_wait_for_the_amended_day(plant: Maintained) -> None:
    await plant.job()
    await plant.late()
    assert await plant.drop() == ["unarchived"]  # the first time that they are counted
    assert await plant.drop() == ["unarchived"]
    await plant.site.plant.seal()
    assert await plant.drop() == ["unarchived"]
    await plant.job()
    assert (await plant.archived())[0] == (DAY, 1, 0)
    assert await plant.drop() == ["chunk"]
    assert len(plant.site.opened.samples(["*"], begin(DAY), begin(DAY, 24))) == 681


async def test_samples_that_came_twice_do_not_keep_a_day(plant: Maintained) -> None:
    await plant.job()
    await plant.site.plant.batch("samples", 120, begin(DAY, 5), begin(DAY, 6))  # all of them were there
    assert DAY.isoformat() not in {sealed_day.seal.day for sealed_day in await plant.site.plant.seal()}
    assert await plant.drop() == ["chunk"]


async def test_day_that_can_not_be_archived_does_not_stop_the_others(plant: Maintained) -> None:
    await plant.owner.execute("UPDATE plant.samples_raw SET value = 1 WHERE time = $1", begin(DAY, 5))
    done = await plant.job()
    assert done.outcome == "failed"
    assert (
        "1 day could not be archived: 2026-03-09: 2026-03-09 is not archived, because it is not as" in done.done.detail
    )
    assert [day for day, _, _ in await plant.archived()] == [_NEXT]
    assert await plant.drop() == ["unarchived"]


async def test_missing_location_fails_and_drops_nothing(plant: Maintained) -> None:
    folder = plant.site.folder
    folder.rename(folder.with_name("unmounted"))
    done = await plant.job()
    assert (done.outcome, done.done.detail) == (
        *("failed", f"archive {folder}: no such folder; create it, or mount what it is on"),
    )
    folder.with_name("unmounted").rename(folder)
    await plant.job()
    days = await plant.archived()
    folder.rename(folder.with_name("unmounted"))
    assert (await plant.job()).outcome == "failed", "although there is nothing to archive"
    folder.with_name("unmounted").rename(folder)
    await plant.late()
    await plant.site.plant.seal()
    folder.rename(folder.with_name("unmounted"))
    folder.mkdir()  # the mount point
    done = await plant.job()
    assert "plantlog-archive.json is missing, although days were archived: is it mounted?" in done.done.detail
    assert await plant.archived() == days
    assert await plant.drop() == ["unarchived"]
    assert list(folder.iterdir()) == []


async def test_days_that_retention_cut_before_are_left_out(plant: Maintained) -> None:
    await plant.owner.execute(
        "INSERT INTO plant.dropped (what, retention, until) VALUES ('raw', 'default', $1)", begin(DAY, 24)
    )
    own = installation_of(plant.site.plant.state.root)
    await plant.owner.execute(load("installation")["upsert_installation"], own, "north", True, None)
    await plant.owner.execute(load("installation")["upsert_installation"], own, "north", True, str(plant.site.folder))
    await plant.job()
    assert [day for day, _, _ in await plant.archived()] == [_NEXT]
    assert await plant.drop() == ["chunk"]  # they are not waited for


async def test_day_that_waits_is_archived_although_later_ones_were_dropped(plant: Maintained) -> None:
    await plant.owner.execute("UPDATE plant.samples_raw SET value = value + 1 WHERE time = $1", begin(DAY, 5))
    await plant.job()
    assert await plant.drop(_NEXT) == ["chunk"]
    await plant.owner.execute("UPDATE plant.samples_raw SET value = value - 1 WHERE time = $1", begin(DAY, 5))
    assert await plant.drop() == ["unarchived"]
    await plant.job()
    assert await plant.archived() == [(DAY, 0, 0), (_NEXT, 0, 0)]


async def test_without_location_the_job_has_nothing_to_do(plant: Maintained, tmp_path: Path) -> None:
    text = (tmp_path / "plant.toml").read_text().replace("[archive]", "").replace("location", "#location")
    (tmp_path / "plant.toml").write_text(text)
    activate(plant.site.plant.state.root, tmp_path / "plant.toml")
    done = await plant.job()
    assert (done.outcome, done.done.detail) == ("skipped", "[archive] has no location")
    with pytest.raises(Exception, match="installation: found none given; legal: a location with archived days"):
        Archive.open(str(plant.site.folder))
