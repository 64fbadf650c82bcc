"""Archiving is switched off and on again, or another location is configured."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

from core.installation import installation_of
from core.timestamps import begin
from history.notebook.archive import Archive
from history.seals.verify import verify
from ops.maintenance.jobs import jobs
from schema.queries import load
from tests.config_in_force import activate
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.archive_site import problems_of
from tests.integration.history.sealed_plant import DAY, minute
from tests.sample_tables import HOUR_US, bits

_NEXT = DAY + timedelta(days=1)


async def configure(plant: Maintained, location: Path | None) -> None:
    """Put a configuration in force like ``plantlog up``."""
    own = installation_of(plant.site.plant.state.root)
    place = None if location is None else str(location)
    await plant.owner.execute(load("installation")["upsert_installation"], own, "north", True, place)
    if location is not None:
        config = plant.site.folder.parent / "plant.toml"
        config.write_text(config.read_text().replace(str(plant.site.folder), str(location)))
        activate(plant.site.plant.state.root, config)


async def archives_from(plant: Maintained) -> object:
    return await plant.owner.fetchval("SELECT archive_from::text FROM plant.installation")


async def test_off_and_on_again_is_as_before(plant: Maintained) -> None:
    """If nothing was dropped meanwhile: late samples of days that were dropped are archived, too."""
    await plant.job()
    assert await plant.drop() == ["chunk"]
    await configure(plant, None)
    await plant.late()
    late = await plant.stored()
    await configure(plant, plant.site.folder)
    assert await archives_from(plant) == "-infinity"
    assert await plant.drop() == ["unarchived"]
    assert (await plant.job()).outcome == "ok"
    assert late.items() <= plant.in_archive().items()
    assert len(plant.in_archive()) == 681
    assert await plant.drop() == ["chunk"]


async def test_days_that_were_dropped_while_it_was_off_are_left_out(plant: Maintained) -> None:
    """Their late samples were not archived, so that they can't be as sealed any more."""
    await plant.job()
    await configure(plant, None)
    await plant.late()
    await plant.site.plant.seal()
    await plant.owner.execute("DELETE FROM plant.rollup_dirty")
    assert await plant.drop() == ["chunk"]
    await configure(plant, plant.site.folder)
    assert await archives_from(plant) == f"{_NEXT} 00:00:00+00"
    assert (await plant.job()).outcome == "ok"
    assert await plant.archived() == [(DAY, 0, 0), (_NEXT, 0, 0)]
    assert problems_of(plant.site.opened) == []


async def test_other_location_gets_what_is_stored_and_waits_for_copies(plant: Maintained) -> None:
    site, state = plant.site, plant.site.plant.state
    await plant.job()
    assert await plant.drop() == ["chunk"]
    other = site.folder.with_name("other")
    other.mkdir()
    await configure(plant, other)
    assert await plant.drop(_NEXT) == ["unarchived"]  # it is in the old one, which may be lost
    await site.plant.late("unit/pressure", minute(0, [1.0], 9))
    process = jobs()
    for _ in range(2):
        done = await plant.job(of=process)
        assert (done.outcome, done.done.detail) == (
            "failed",
            f"1 day could not be archived: {DAY}: archive {other}: {DAY} is not in it; it was archived in "
            f"{site.folder}: copy it from there",
        )
        assert Archive.open(str(other)).days() == [_NEXT]
        assert await plant.drop() == ["unarchived"]
    [report] = await verify(
        site.plant.database.reader_dsn,
        *(state, None, DAY, (), None),
    )
    assert report.days[0].problems == []  # read from the old one
    assert await plant.drop(_NEXT) == ["chunk"]
    shutil.copytree(site.folder, other, dirs_exist_ok=True, ignore=shutil.ignore_patterns(f"*{_NEXT}*"))
    site.folder.rename(site.folder.with_name("unmounted"))
    assert (await plant.job(of=process)).outcome == "ok"  # as it is
    assert (await plant.job(of=process)).outcome == "ok"  # with what came
    rows = await plant.owner.fetch("SELECT location, late FROM plant.archived_day WHERE samples > 0")
    assert [tuple(row) for row in rows] == [(str(other), False)] * 2
    archive = Archive.open(str(other))
    assert [problems_of(archive, day) for day in (DAY, _NEXT)] == [[], []]
    assert len(archive.samples(["*"], begin(DAY), begin(DAY, 24))) == 681
    assert await plant.drop() == ["chunk"]


async def test_damaged_copy_is_not_taken_for_the_day(plant: Maintained) -> None:
    """Of a day that is stored, the new location gets a new one."""
    site = plant.site
    await plant.job()
    other = site.folder.with_name("other")
    shutil.copytree(site.folder, other)
    files = sorted(other.glob("samples/*/*/*.parquet"))
    for file in files:
        file.write_bytes(file.read_bytes()[:-1])
    await site.plant.late("unit/odd", [(9 * HOUR_US, bits(1.0), 0)])
    await site.plant.seal()
    await configure(plant, other)
    assert (await plant.job()).outcome == "ok"
    archive = Archive.open(str(other))
    assert [problems_of(archive, day) for day in (DAY, _NEXT)] == [[], []]
    assert [await plant.drop(day) for day in (DAY, _NEXT)] == [["chunk"], ["chunk"]]
