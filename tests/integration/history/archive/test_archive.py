"""A sealed day in the archive: equal to the bit, complete or not there, and read by what is not plantlog."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import OperationError
from core.timestamps import begin, microseconds
from history.archive.location import Location
from history.archive.manifest import claim, footer_crc32
from history.notebook.archive import Archive
from history.seals.keys import load_signer
from tests.integration.history.archive_site import ODD, Site, problems_of, tmpfs
from tests.integration.history.sealed_plant import DAY, SealedPlant, minute
from tests.sample_tables import HOUR_US, Sample, bits


def samples_in(table: Any, channel: int) -> list[Sample]:
    """A channel's samples to the bit."""
    one = table.filter(pa.compute.equal(table["channel_id"], channel))
    time = (one["time"].cast(pa.int64()).to_numpy() - microseconds(begin(DAY))).tolist()
    return list(zip(time, one["value"].to_numpy().view(np.uint64).tolist(), one["status"].to_pylist(), strict=True))


@pytest.mark.parametrize("packed", [False, True])
async def test_archived_day_is_equal_to_the_bit(site: Site, packed: bool) -> None:
    if packed:
        await site.plant.pack()
    manifest = await site.archive()
    assert (manifest.plant, manifest.samples, manifest.channels, manifest.revision) == ("north", 680, 3, 0)
    archive = site.opened
    assert archive.days() == [DAY]
    assert problems_of(archive, anchors=[public_of(site.plant)]) == []
    table = archive.samples(["*"], begin(DAY), begin(DAY, 24))
    assert samples_in(table, site.plant.ids["unit/odd"]) == ODD
    expected = [sample for hour in (5, 6) for sample in minute(0, [40.0 + i / 100 for i in range(120)], hour)]
    assert samples_in(table, site.plant.ids["unit/pressure"]) == expected
    assert not list(site.folder.glob("incoming/*/*"))
    assert not list(site.folder.rglob("*.partial"))


def public_of(plant: SealedPlant) -> str:
    """The public key in use, in hex."""
    signer = load_signer(plant.state)
    assert signer is not None
    return signer.public


async def test_one_channel_is_read_without_the_others(site: Site) -> None:
    """Other row groups of its file may be damaged; whoever reads them is told."""
    day = [(i * 1_000_000, bits(i / 10), 0) for i in range(40_000)]
    for name in ("unit/a", "unit/b"):
        await site.plant.samples(name, [(2 * 24 * HOUR_US + time, value, status) for time, value, status in day])
    await site.plant.seal()
    manifest = await site.archive(DAY + timedelta(days=2))
    [file] = [site.folder / archived.path for archived in manifest.of_table("samples")]
    column = pq.read_metadata(file).row_group(1).column(2)
    content = bytearray(file.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 1  # behind the page's header
    file.write_bytes(content)
    since, until = begin(DAY, 48), begin(DAY, 72)
    assert len(site.opened.samples(["unit/a"], since, until)) == 40_000
    assert len(site.opened.samples(["unit/a"], since + timedelta(seconds=10), since + timedelta(minutes=1))) == 50
    with pytest.raises(OperationError, match=r"samples/.*00001.parquet is damaged: .*(checksum|crc)"):
        site.opened.samples(["unit/*"], since, until)


async def test_a_damaged_footer_is_noticed(site: Site) -> None:
    """It says where samples are, and of columns with one value what that is; Parquet has no checksum of it."""
    await site.archive()
    file = site.file("samples")
    content = bytearray(file.read_bytes())
    statistics = content.rindex(bits(100.0).to_bytes(8, "little"))  # of a divisor
    content[statistics] ^= 1
    file.write_bytes(content)
    assert pq.read_metadata(file).num_rows > 0
    with pytest.raises(OperationError, match=r"samples/.*parquet is damaged: its footer"):
        site.opened.samples(["*"], begin(DAY), begin(DAY, 24))


async def test_channels_are_described_as_of_the_day(site: Site) -> None:
    await site.archive()
    await site.plant.owner.execute("UPDATE plant.channel SET name = 'unit/renamed' WHERE name = 'unit/odd'")
    rows = {row["name"]: row for row in site.opened.channels(DAY).to_pylist()}
    assert sorted(rows) == ["other/flow", "unit/odd", "unit/pressure"]
    odd = rows["unit/odd"]
    assert (odd["channel_id"], odd["plant_unit"], odd["unit"], odd["source"]) == (
        *(site.plant.ids["unit/odd"], "unit", "bar", "north"),
    )
    assert (odd["valid_from"], odd["valid_to"], odd["samples"]) == (begin(DAY), begin(DAY, 24), 200)


async def test_day_that_is_not_as_sealed_is_not_archived(site: Site) -> None:
    with pytest.raises(OperationError, match="2026-03-12 is not sealed: run `plantlog evidence seal 2026-03-12`"):
        await site.archive(DAY + timedelta(days=3))
    await site.archive()
    before = site.files()
    await site.plant.owner.execute(
        "UPDATE plant.samples_raw SET value = 1 WHERE time = $1 AND channel_id = $2",
        *(begin(DAY, 5), site.plant.ids["unit/pressure"]),
    )
    problem = (
        "unit/pressure, hour 05: at least 1 changed .120 sealed, 120 found.: see `plantlog evidence verify 2026-03-09`"
    )
    with pytest.raises(OperationError, match=f"2026-03-09 is not archived, because it is not as sealed: {problem}"):
        await site.archive()
    assert site.files() == before


async def test_amended_day_replaces_the_earlier_one(site: Site) -> None:
    await site.archive()
    await site.plant.late("unit/pressure", [(9 * HOUR_US, bits(1.0), 0)])
    await site.plant.seal()
    manifest = await site.archive()
    assert (manifest.revision, manifest.samples) == (1, 681)
    assert problems_of(site.opened) == []
    assert len(site.opened.samples(["*"], begin(DAY), begin(DAY, 24))) == 681


async def test_cancelled_run_leaves_the_archive_as_it_was(site: Site) -> None:
    """Wherever it is: the day is there as before, or as it was to be."""
    await site.archive()
    before = site.files()
    await site.plant.late("unit/pressure", [(9 * HOUR_US, bits(1.0), 0)])
    await site.plant.seal()
    for rounds in (1, 5, 20, 60, 120):
        run = asyncio.create_task(site.archive())
        for _ in range(rounds):
            await asyncio.sleep(0)
        run.cancel()
        await asyncio.wait([run])
        assert not list(site.folder.glob("incoming/*/*"))
        assert problems_of(site.opened) == []
        if not run.cancelled():  # on a busy machine the database may have answered it all
            assert run.result().revision == 1
            return
        assert site.files() == before
    assert (await site.archive()).revision == 1


async def test_altered_archive_is_found_out(site: Site) -> None:
    await site.archive()
    await site.archive(DAY + timedelta(days=1))
    whole = site.files()
    samples, other = [str(one.relative_to(site.folder)) for one in sorted(site.folder.glob("samples/*/*/*"))]

    def changed(path: str, content: bytes) -> Archive:
        for name, original in whole.items():
            (site.folder / name).write_bytes(original)
        (site.folder / path).write_bytes(content)
        return site.opened

    def read(archive: Archive) -> Any:
        return archive.samples(["*"], begin(DAY), begin(DAY, 24))

    archive = changed(samples, whole[samples][:-1])
    assert problems_of(archive) == [
        f"{samples} has {len(whole[samples]) - 1:,} bytes, {len(whole[samples]):,} by the manifest"
    ]
    with pytest.raises(OperationError, match=f"{samples} has .* bytes, .* by the manifest: restore the file"):
        read(archive)
    padded = whole[other] + bytes(max(0, len(whole[samples]) - len(whole[other])))
    archive = changed(samples, padded[-len(whole[samples]) :])
    assert problems_of(archive) == [f"{samples} is not the file of the manifest: its SHA-256 differs"]
    with pytest.raises(OperationError, match=r"is damaged: .*restore the file"):
        read(archive)
    manifest_path = next(name for name in whole if name.startswith("manifests/") and str(DAY) in name)
    manifest = json.loads(whole[manifest_path])
    one = next(file for file in manifest["files"] if file["path"] == samples)

    def with_manifest(**fields: Any) -> Archive:
        return changed(manifest_path, json.dumps({**manifest, **fields}).encode())

    # Another day's file, with a manifest that has its size.
    archive = with_manifest(
        files=[f if f is not one else {**one, "bytes": len(whole[other])} for f in manifest["files"]]
    )
    (site.folder / samples).write_bytes(whole[other])
    with pytest.raises(OperationError, match=r"is another file: found .*2026-03-10.*; legal: .*2026-03-09"):
        read(archive)
    with pytest.raises(OperationError, match="installation: found else, of plant north; legal: "):
        read(with_manifest(installation="else"))
    with pytest.raises(OperationError, match="day: found 2026-03-10, of plant north; legal: 2026-03-09"):
        read(with_manifest(day="2026-03-10"))
    with pytest.raises(OperationError, match="format: found 2; legal: 1"):
        read(with_manifest(format=2))
    with pytest.raises(OperationError, match=r"files: found \.\./x\.parquet; legal: samples/.*/NUMBER-NUMBER.parquet"):
        read(with_manifest(files=[{**one, "path": "../x.parquet"}]))
    with pytest.raises(OperationError, match="is not a manifest: JSONDecodeError"):
        read(changed(manifest_path, whole[manifest_path][:-9]))
    assert problems_of(changed(samples, whole[samples])) == []
    (site.folder / samples).unlink()
    assert problems_of(site.opened) == [f"{samples} is missing"]
    with pytest.raises(OperationError, match=r"is missing, .* by the manifest"):
        read(site.opened)


async def test_rewritten_files_with_a_new_manifest_do_not_match_the_seal(site: Site) -> None:
    """Whoever can write to the archive can make a manifest, but no seal."""
    await site.archive()
    [manifest_path] = site.folder.glob("manifests/*/*.json")
    manifest = json.loads(manifest_path.read_bytes())

    def rewritten(table: str, change: Any) -> list[str]:
        path = site.file(table)
        original, metadata = path.read_bytes(), pq.read_metadata(path).metadata
        changed = change(pq.ParquetFile(path).read())
        with pq.ParquetWriter(path, changed.schema) as writer:
            writer.write_table(changed)
            writer.add_key_value_metadata(metadata)
        digest = Location.at(str(site.folder)).digest(str(path.relative_to(site.folder)))
        with pa.OSFile(str(path)) as source:
            new = {"bytes": digest.bytes, "sha256": digest.sha256, "footer_crc32": footer_crc32(source)}
        of = [{**f, **new} if f["table"] == table else f for f in manifest["files"]]
        manifest_path.write_text(json.dumps({**manifest, "files": of}))
        try:
            return problems_of(site.opened)
        finally:
            path.write_bytes(original)
            manifest_path.write_text(json.dumps(manifest))

    def shortened(table: str) -> str:
        """Finding for a file without its first row, besides the count in its manifest."""
        counted, missing = rewritten(table, lambda rows: rows.slice(1))
        assert counted.endswith(" by the manifest")
        return missing

    assert shortened("samples") == (
        "unit/pressure, hour 05: at least 1 missing, and others may have changed (120 sealed, 119 found)"
    )
    assert shortened("events") == "events, hour 05: 1 missing (1 sealed, 0 found)"
    assert shortened("gaps") == "gaps: 1 missing (1 sealed, 0 found)"
    renamed = rewritten(
        "channels",
        lambda table: table.set_column(3, "name", pa.array(["unit/else", *table["name"].to_pylist()[1:]])),
    )
    assert renamed == [f"{site.file('channels').relative_to(site.folder)}: the channels are not described as sealed"]
    assert problems_of(site.opened, anchors=["00" * 32])[0].startswith("seal 1 (2026-03-09, revision 0): signed by")


async def test_only_an_empty_or_known_location_is_written_to(site: Site, tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="no such folder; create it, or mount what it is on"):
        Location.at(str(tmp_path / "missing"))
    with pytest.raises(OperationError, match=r"plantlog-archive.json is missing, although days were archived"):
        claim(Location.at(str(site.folder)), has_days=True)
    (site.folder / "photo").touch()
    with pytest.raises(OperationError, match="contains photo, and is no archive: choose an empty folder"):
        await site.archive()
    (site.folder / "photo").unlink()
    (site.folder / "lost+found").mkdir()  # of a disk
    await site.archive()
    claim(Location.at(str(site.folder)), has_days=True)
    with pytest.raises(OperationError, match=r"2026-03-11 of installation .* is not in it"):
        site.opened.manifest(DAY + timedelta(days=2))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
async def test_full_location_keeps_what_it_has(site: Site) -> None:
    with tmpfs(site.folder, 1) as _:
        await site.archive()
        before = site.files()
        noise = np.random.default_rng(1).normal(50, 10, 200_000)
        late = [(24 * HOUR_US + i * 1000, bits(value), 0) for i, value in enumerate(noise)]
        await site.plant.late("unit/odd", late)
        await site.plant.seal()
        with pytest.raises(OperationError, match=r"samples/.*00001.parquet: No space left on device"):
            await site.archive(DAY + timedelta(days=1))
        assert site.files() == before
        assert problems_of(site.opened) == []
