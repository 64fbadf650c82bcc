"""Samples of a day that come after retention dropped it, and what else may not be dropped."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import OperationError
from core.timestamps import begin, microseconds
from history.archive.location import Location
from history.archive.manifest import Manifest, footer_crc32, read_manifest
from history.archive_days.writer import DayWriter
from history.exports.export import export
from history.seals.report import DayReport
from history.seals.verify import verify
from history.standalone import verify_file
from tests.command import plantlog
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.archive_site import problems_of, remount, tmpfs
from tests.integration.history.sealed_plant import DAY, minute
from tests.sample_tables import HOUR_US, bits


async def dropped(plant: Maintained) -> dict[Any, Any]:
    """Archive and drop the first day; its samples."""
    samples = await plant.stored()
    assert (await plant.job()).outcome == "ok"
    assert await plant.drop() == ["chunk"]
    assert await plant.stored() == {}
    return samples


async def test_late_samples_are_an_amendment_that_is_merged_later(plant: Maintained) -> None:
    samples = await dropped(plant)
    before = plant.site.files()
    [whole] = [name for name in before if name.startswith("samples/") and str(DAY) in name]
    await plant.late()
    await plant.late("other/level", minute(0, [3.0] * 5, 7))  # a channel that had none on the day
    late = await plant.stored()
    assert len(late) == 6
    assert DAY.isoformat() not in {
        sealed_day.seal.day for sealed_day in await plant.site.plant.seal()
    }  # left to the job
    assert await plant.drop() == ["unarchived"]
    done = await plant.job()
    assert (done.outcome, done.done.detail) == ("ok", "3 days to 2026-03-11")
    assert (await plant.archived())[0] == (DAY, 1, 1)
    assert plant.site.files()[whole] == before[whole]  # it is not written again
    assert plant.in_archive() == {**samples, **late}
    assert problems_of(plant.site.opened) == []
    assert await plant.drop() == ["chunk"]
    assert await plant.stored() == {}
    await plant.owner.execute("UPDATE plant.archived_day SET archived_at = archived_at - INTERVAL '2 days'")
    await plant.owner.execute("UPDATE plant.archive_evidence SET until = clock_timestamp()")
    assert (await plant.job()).outcome == "ok"
    assert (await plant.archived())[0] == (DAY, 1, 0)
    assert len(plant.site.opened.manifest(DAY).of_table("samples")) == 1
    assert plant.in_archive() == {**samples, **late}
    assert problems_of(plant.site.opened) == []
    text = await plant.owner.fetch("SELECT detail ->> 'how' FROM plant.event WHERE type = 'archived' ORDER BY time")
    assert {"written", "amended", "amendments merged"} <= {row[0] for row in text}


async def test_amended_seal_covers_what_is_only_in_the_archive(plant: Maintained) -> None:
    """Although more comes to each hour than it had. A second value of a time is a conflict, and the first one stays."""
    samples = await dropped(plant)
    for hour in (5, 6):
        for name in ("unit/pressure", "other/flow"):
            await plant.late(name, minute(0, [1.0] * 121, hour))
    new = {key: value for key, value in (await plant.stored()).items() if key not in samples}
    assert len(new) == 4
    for _ in range(2):
        assert (await plant.job()).outcome == "ok"
    assert plant.in_archive() == {**samples, **new}
    conflicts = await plant.owner.fetch(
        "SELECT channel_id, (detail ->> 'refused')::int AS n FROM plant.event WHERE type = 'conflict'"
    )
    assert (len(conflicts), sum(row["n"] for row in conflicts)) == (2, 478), "one a channel"
    assert await plant.drop() == ["chunk"]
    assert problems_of(plant.site.opened) == []


async def test_samples_that_were_replaced_are_archived_again(plant: Maintained) -> None:
    """At the same number of samples, a deletion and what came after it make another hour."""
    await plant.job()
    assert await plant.site.plant.delete("unit/pressure", begin(DAY, 5), begin(DAY, 6)) == 120
    await plant.late("unit/pressure", minute(0, [7.0] * 120, 5))
    await plant.owner.execute("DELETE FROM plant.rollup_dirty")
    assert await plant.drop() == ["unarchived"]
    assert (await plant.job()).outcome == "failed"  # not as sealed, yet
    await plant.site.plant.seal()
    assert (await plant.job()).outcome == "ok"
    stored = await plant.stored()
    assert await plant.drop() == ["chunk"]
    assert plant.in_archive() == stored


async def test_files_that_no_manifest_names_are_ignored_and_removed(plant: Maintained) -> None:
    samples = await plant.stored()
    await plant.job()
    folder = plant.site.folder
    [one] = folder.glob(f"samples/*/day={DAY}/*.parquet")
    left = one.with_name("00002-00001.parquet")
    left.write_bytes(one.read_bytes()[:100])  # a writer was killed after it had moved this
    [installation] = [path.name.partition("=")[2] for path in folder.glob("samples/*")]
    begun = folder / "incoming" / installation / str(DAY) / "begun"
    begun.parent.mkdir(parents=True)
    begun.touch()
    assert plant.in_archive() == samples
    assert problems_of(plant.site.opened) == []
    await plant.late()
    await plant.site.plant.seal()
    assert (await plant.job()).outcome == "ok"
    assert not left.exists() or left.stat().st_size != 100
    assert not begun.parent.exists()
    named = {file.path for file in plant.site.opened.manifest(DAY).files}
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and str(DAY) in str(path)}
    assert {path for path in found if not path.startswith("manifests/")} == named


async def test_file_that_is_replaced_while_a_question_reads_its_day(plant: Maintained) -> None:
    await plant.job()
    files = plant.site.opened._files(DAY)
    await plant.late()
    await plant.site.plant.seal()
    assert (await plant.job()).outcome == "ok"
    with pytest.raises(OperationError, match=r"is missing, .*: its day was archived anew while it was read: ask again"):
        files.channels()


async def test_dropped_day_is_verified_and_exported_from_the_files(plant: Maintained, tmp_path: Path) -> None:
    site, state = plant.site.plant, plant.site.plant.state
    await dropped(plant)
    await plant.late()
    assert (await plant.job()).outcome == "ok"
    await plant.late("unit/odd", [(9 * HOUR_US, bits(1.0), 0)])  # it is not sealed yet
    await plant.owner.execute("DELETE FROM plant.event WHERE type = 'text'")  # as retention does

    async def verified(*channels: str) -> DayReport:
        [report] = await verify(site.database.reader_dsn, state, None, DAY, channels, None)
        return report.days[0]

    report = await verified()
    assert (report.revision, report.samples, report.problems, report.ok) == (1, 682, [], True)
    assert [(finding.difference.kind, finding.explained != "") for finding in report.findings] == [("added", True)]
    assert (await verified("unit/pressure")).samples == 241
    path = tmp_path / "day.parquet"
    done = await export(site.database.reader_dsn, state, DAY, path, ["unit/pressure"], False, None)
    assert ([rows for _, rows in done.files], done.differs) == ([241, 1, 1], 0)
    assert verify_file(str(path), None).ok
    [file, *_] = sorted(plant.site.folder.glob(f"samples/*/day={DAY}/00001-*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:-10])
    report = await verified()
    assert not report.ok
    [problem] = report.problems
    assert re.search(rf"2026-03-09: archive .*{file.name} has .* bytes, .* by the manifest: restore the file", problem)
    file.write_bytes(content)
    table = pq.ParquetFile(file).read()
    first = table["scaled"].combine_chunks()
    changed = pa.array([None if n is None else n + 1 for n in first.to_pylist()], first.type)
    with pq.ParquetWriter(file, table.schema) as writer:
        writer.write_table(table.set_column(2, "scaled", changed))
        writer.add_key_value_metadata(pq.read_metadata(io.BytesIO(content)).metadata)
    [manifest] = plant.site.folder.glob(f"manifests/*/{DAY}.json")
    said = json.loads(manifest.read_text())
    [sample_file] = [f for f in said["files"] if file.match(f"*/{f['path']}")]
    with pa.OSFile(str(file)) as source:
        sample_file.update(bytes=source.size(), footer_crc32=footer_crc32(source))
    manifest.write_text(json.dumps(said))
    report = await verified("unit/pressure")
    assert [finding.explained for finding in report.findings] == ["", ""]
    assert [finding.difference.kind for finding in report.findings] == ["changed", "changed"]
    plant.site.folder.rename(tmp_path / "unmounted")
    await plant.owner.execute("UPDATE plant.gap SET reason = 'stopped'")
    report = await verified()
    assert [finding.describe() for finding in report.findings] == [
        "gaps: at least 1 changed (1 sealed, 1 found): NOT explained by any record"
    ]
    assert report.problems == [
        f"2026-03-09: archive {plant.site.folder}: no such folder; create it, or mount what it is on"
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
async def test_full_and_read_only_locations_lose_and_drop_nothing(plant: Maintained) -> None:
    folder = plant.site.folder
    with tmpfs(folder, 1):
        samples = await dropped(plant)
        (folder / "other").write_bytes(bytes(os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize))
        await plant.late()
        late = await plant.stored()
        for why in ("No space left on device", "Read-only file system"):
            done = await plant.job()
            assert (done.outcome, why in done.done.detail) == ("failed", True), done.done.detail
            assert await plant.drop() == ["unarchived"]
            assert plant.in_archive() == samples
            remount(folder, "ro")
        assert await plant.stored() == late
        remount(folder, "rw")
        (folder / "other").unlink()
        assert (await plant.job()).outcome == "ok"
        assert plant.in_archive() == {**samples, **late}
        assert await plant.drop() == ["chunk"]


async def test_readers_find_one_state_of_a_day_or_the_other(plant: Maintained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two accesses to the storage, and if files are removed while they are read."""
    old = await dropped(plant)
    archive = plant.site.opened
    stale = archive.manifest(DAY)
    await plant.late()
    new = {**old, **await plant.stored()}
    seen: list[bool] = []

    def observed(original: Any) -> Any:
        def access(*arguments: Any) -> Any:
            found = plant.in_archive()
            assert found in (old, new)
            seen.append(found == new)
            return original(*arguments)

        return access

    for name in ("move", "write", "remove", "clear"):
        monkeypatch.setattr(Location, name, observed(getattr(Location, name)))
    assert (await plant.job()).outcome == "ok"
    monkeypatch.undo()
    assert set(seen) == {False, True}
    assert seen == sorted(seen)
    manifests = iter([stale])
    monkeypatch.setattr(
        "history.notebook.archive.read_manifest", lambda *of: next(manifests, None) or read_manifest(*of)
    )
    assert len(archive.samples(["*"], begin(DAY), begin(DAY, 24))) == len(new)


async def test_late_gap_and_event_amend_a_dropped_day(plant: Maintained) -> None:
    await dropped(plant)
    site = plant.site.plant
    await site.gap(
        "INSERT INTO plant.gap (source_id, from_time, to_time, reason) VALUES ($1, $2, $3, 'disconnected')",
        *(site.source, begin(DAY, 11), begin(DAY, 12)),
    )
    await site.batch("gaps", 1, begin(DAY, 11), begin(DAY, 12))
    await site.late_event(begin(DAY, 13), "text", "late")
    assert (await plant.job()).outcome == "ok"
    manifest = plant.site.opened.manifest(DAY)
    assert (manifest.revision, *(manifest.of_table(table)[0].rows for table in ("events", "gaps"))) == (1, 2, 2)
    assert problems_of(plant.site.opened) == []


async def test_day_of_a_seal_that_the_database_lost_is_not_replaced(plant: Maintained) -> None:
    await plant.job()
    [path] = plant.site.folder.glob(f"manifests/*/{DAY}.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "root": "00" * 32}))
    before = plant.site.files()
    await plant.late()
    await plant.site.plant.seal()
    done = await plant.job()
    assert "found a day of revision 0 by seal 1, which the database does not have" in done.done.detail
    assert await plant.drop() == ["unarchived"]
    assert before.items() <= plant.site.files().items()


async def test_archive_of_another_plant_drops_nothing_and_stops_no_other_day(plant: Maintained) -> None:
    await dropped(plant)
    [path] = plant.site.folder.glob(f"manifests/*/{DAY}.json")
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "plant": "south", "installation": "else"}))
    await plant.late()
    for name in ("unit/pressure", "other/flow"):
        await plant.late(name, minute(1, [1.0] * 3, 9))
    await plant.site.plant.seal()
    for _ in range(2):
        done = await plant.job()
        assert done.outcome == "failed"
        assert "1 day could not be archived: 2026-03-09: archive " in done.done.detail
        assert "installation: found else, of plant south; legal: " in done.done.detail
        assert await plant.drop() == ["unarchived"]
    assert [revision for _, revision, _ in await plant.archived()] == [0, 1]
    path.write_text(json.dumps(manifest))
    assert (await plant.job()).outcome == "ok"
    assert (await plant.archived())[0] == (DAY, 1, 1)


async def test_imported_samples_of_an_archived_day_are_archived(plant: Maintained, tmp_path: Path) -> None:
    """Samples that the archive has already are left out, also where the day was dropped."""
    samples = await plant.stored()
    await plant.job()
    file = tmp_path / "history.csv"
    rows = ("05:00:00Z,40.0", "05:00:01Z,7", "09:00:00Z,1.5")  # known, different, new
    lines = [f"unit/pressure,{DAY}T{row},Good" for row in rows]
    file.write_text("\n".join(["Tag,Timestamp,Value,Quality", *lines, ""]))
    done = await plantlog(plant.site.plant.state.root, "source", "import-history", file, "--yes")
    assert done.code == 0, done.err
    every = {**samples, (plant.site.plant.ids["unit/pressure"], microseconds(begin(DAY, 9))): (bits(1.5), 0)}
    await plant.owner.execute("DELETE FROM plant.rollup_dirty")
    assert await plant.drop() == ["unarchived"]
    await plant.site.plant.seal()
    assert (await plant.job()).outcome == "ok"
    assert plant.in_archive() == every
    assert problems_of(plant.site.opened) == []
    assert await plant.drop() == ["chunk"]
    done = await plantlog(plant.site.plant.state.root, "source", "import-history", file, "--yes")
    assert done.code == 0, done.err
    await plant.site.plant.seal()
    assert (await plant.job()).outcome == "ok"
    assert plant.in_archive() == every


async def test_what_comes_while_a_day_is_written_is_looked_at_again(
    plant: Maintained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes: the day counts as archived from before its samples were read."""
    await dropped(plant)
    await plant.late()
    original, read_at = DayWriter.amend, list[datetime]()

    async def amend(writer: DayWriter, changed: Sequence[int]) -> Manifest | None:
        read_at.append(await plant.owner.fetchval("SELECT clock_timestamp()"))
        return await original(writer, changed)

    monkeypatch.setattr(DayWriter, "amend", amend)
    assert (await plant.job()).outcome == "ok"
    archived_at = await plant.owner.fetchval("SELECT archived_at FROM plant.archived_day WHERE day = $1", DAY)
    assert archived_at < read_at[0]
