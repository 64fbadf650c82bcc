"""``import history.notebook``: what a notebook gets of an archive, and what it is told if the archive is damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.paths import CHECKOUT
from core.timestamps import begin
from history import notebook
from history.seals.keys import public_pem
from tests.integration.history.archive_site import Site
from tests.integration.history.sealed_plant import DAY, public_key

NEXT = DAY + timedelta(days=1)


@pytest.fixture
async def archive(site: Site) -> str:
    """Two days."""
    await site.archive()
    await site.archive(NEXT)
    return str(site.folder)


def only(folder: str, pattern: str) -> Path:
    [path] = Path(folder).glob(pattern)
    return path


def raised(*arguments: Any, **options: Any) -> str:
    with pytest.raises(notebook.ArchiveError) as error:
        notebook.samples(*arguments, **options)
    return str(error.value)


@pytest.fixture
def key(archive: str, site: Site, tmp_path: Path) -> Path:
    """The plant's public key."""
    return public_key(site.plant, tmp_path / "plant.pem")


def test_samples_are_chosen_by_channel_and_time(archive: str, key: Path) -> None:
    assert notebook.samples(archive).num_rows == 1160
    span: dict[str, Any] = {"start": f"{DAY}T05:00:01Z", "end": f"{DAY}T05:00:03"}
    table = notebook.samples(archive, ["unit/p*"], **span, verify=True, key=key)
    assert table.equals(notebook.samples(archive, ["unit/p*"], **span, verify=True, key=key.read_text()))
    assert [row["value"] for row in table.to_pylist()] == [40.01, 40.02]
    assert [row["time"].second for row in table.to_pylist()] == [1, 2]
    assert {(row["name"], row["unit"], row["status"]) for row in table.to_pylist()} == {("unit/pressure", "bar", 0)}
    [number] = {row["channel_id"] for row in table.to_pylist()}
    assert notebook.samples(archive, [number], end=f"{DAY}T05:01").num_rows == 60
    assert notebook.samples(archive, number, end=f"{DAY}T05:01").num_rows == 60
    assert notebook.samples(archive, "unit/p*").num_rows == notebook.samples(archive, ["unit/p*"]).num_rows
    assert notebook.samples(archive, "unit/p*", end=f"{DAY}T00:01").num_rows == 0
    assert notebook.samples(archive, number, start="2030-01-01").num_rows == 0, "it is known on other days"
    assert ": channels: no channel matches none, x* (* matches any text)" in raised(archive, ["none", "unit/p*", "x*"])
    assert "no channel matches 4711" in raised(archive, 4711)


def test_series_has_the_extremes_of_each_bucket(archive: str) -> None:
    span: dict[str, Any] = {"start": f"{DAY}T05:00:10Z", "end": f"{DAY}T05:02:00"}
    rows = notebook.series(archive, ["unit/pressure", "other/flow"], **span, step="1m").to_pylist()
    values = {(row["name"], row["time"].minute): (row["min"], row["avg"], row["max"], row["n"]) for row in rows}
    assert values["unit/pressure", 0] == (40.1, pytest.approx(40.345), 40.59, 50)
    assert values["unit/pressure", 1] == (40.6, pytest.approx(40.895), 41.19, 60)
    assert len(rows) == 4
    assert [row["name"] for row in rows] == sorted((row["name"] for row in rows), reverse=rows[0]["name"] > "p")
    assert {row["unit"] for row in rows if row["name"] == "unit/pressure"} == {"bar"}
    whole = notebook.series(archive, "unit/pressure", step=timedelta(days=2)).to_pylist()
    assert sum(row["n"] for row in whole) == notebook.samples(archive, "unit/pressure").num_rows
    assert len(notebook.series(archive, "unit/pressure", **span)) <= 1001


def test_series_counts_bad_and_nan_samples_only(archive: str) -> None:
    [row] = notebook.series(archive, "unit/odd", step="1d", end=f"{NEXT}").to_pylist()
    samples = notebook.samples(archive, "unit/odd").to_pylist()
    good = [sample for sample in samples if sample["status"] < 1 << 31 and sample["value"] == sample["value"]]
    assert 0 < len(good) == row["n_good"] < row["n"] == len(samples)
    assert (row["min"], row["max"]) == (min(g["value"] for g in good), max(g["value"] for g in good))
    with pytest.raises(notebook.ArchiveError, match="no day from 2030"):  # that a step follows from
        notebook.series(archive, "unit/odd", start="2030-01-01")
    nothing = notebook.series(archive, "unit/odd", start="2030-01-01", step="1d")
    assert nothing.num_rows == 0 and nothing.column_names[:4] == ["channel_id", "name", "unit", "time"]
    bad: tuple[Any, ...] = ("soon", timedelta(), "-1m")
    for step in bad:
        with pytest.raises(notebook.ArchiveError, match="step: found"):
            notebook.series(archive, "unit/odd", step=step)


def test_gap_of_a_source_is_one_of_each_of_its_channels(archive: str) -> None:
    gaps = notebook.gaps(archive, "unit/*").to_pylist()
    assert {gap["name"] for gap in gaps} == {"unit/pressure", "unit/odd"}
    assert {(gap["from_time"].hour, gap["to_time"].hour, gap["reason"]) for gap in gaps} == {(7, 8, "disconnected")}
    assert notebook.gaps(archive, "unit/*", start=f"{DAY}T08:00").num_rows == 0
    assert notebook.gaps(archive, "unit/*", start=f"{DAY}T07:59", end=f"{DAY}T08:30").num_rows == 2
    with pytest.raises(notebook.ArchiveError, match="no channel matches none"):
        notebook.gaps(archive, ["none"])


async def test_gap_over_midnight_is_one_row(site: Site) -> None:
    first, second = DAY + timedelta(days=3), DAY + timedelta(days=4)  # which are not sealed yet
    times = begin(first, 23), begin(second, 1)
    channel = await site.plant.owner.fetchval("SELECT id FROM plant.channel WHERE name = 'unit/pressure'")
    await site.plant.owner.execute(
        "INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason) VALUES ($1, $2, $3, $4, 'restart')",
        *(site.plant.source, channel, *times),
    )
    await site.plant.seal(begin(second, 24))
    for day in (first, second):
        await site.archive(day)
    [gap] = [gap for gap in notebook.gaps(str(site.folder)).to_pylist() if gap["reason"] == "restart"]
    assert (gap["name"], gap["from_time"], gap["to_time"]) == ("unit/pressure", *times)


def test_polars_frame_has_the_same(archive: str) -> None:
    frame = notebook.polars(archive, ["other/flow"], start=str(DAY), end=f"{DAY}T06")
    assert frame.height == 120
    assert frame["value"].to_list() == notebook.samples(archive, ["other/flow"], end=f"{DAY}T06")["value"].to_pylist()
    assert frame.select(pl.col("name").cast(pl.String).unique()).to_series().to_list() == ["other/flow"]


def test_polars_is_not_needed() -> None:
    code = "import sys; sys.modules['polars'] = None; import history.notebook"
    subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=True)


def test_truncated_file_is_an_error(archive: str) -> None:
    path = only(archive, f"samples/*/day={DAY}/*")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert f"{path.name} has {len(content) - 1:,} bytes, {len(content):,} by the manifest" in raised(archive)
    assert notebook.samples(archive, start=str(NEXT)).num_rows == 480, "other days are as they were"


def test_swapped_file_is_an_error(archive: str) -> None:
    first, second = (only(archive, f"channels/*/day={day}/*") for day in (DAY, NEXT))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    manifest = only(archive, f"manifests/*/{DAY}.json")
    data = json.loads(manifest.read_text())
    for file in data["files"]:
        if file["table"] == "channels":
            file["bytes"] = len(second.read_bytes())
    manifest.write_text(json.dumps(data))
    assert f"{first.name} is another file: found" in raised(archive)
    first.write_bytes(content)


def test_verification_needs_the_plants_key(archive: str, key: Path, tmp_path: Path) -> None:
    """Whoever replaces files can bring a key that fits."""
    assert raised(archive, verify=True) == "key: found none; legal: the plant's public key, which verify requires"
    foreign = tmp_path / "foreign.pem"
    foreign.write_text(public_pem(Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()))
    assert "WRONG KEY: signed by key " in raised(archive, verify=True, key=foreign)
    foreign.write_text("nothing")
    assert "key: not a public key in PEM format" in raised(archive, verify=True, key=foreign)


async def test_removed_day_between_others_is_found(site: Site, archive: str, key: Path) -> None:
    await site.plant.seal()
    await site.archive(NEXT + timedelta(days=1))
    assert notebook.samples(archive, verify=True, key=key).num_rows > 0
    only(archive, f"manifests/*/{NEXT}.json").unlink()
    assert "the chain is cut before seal 3 (2026-03-11, revision 0): seal 2 is missing" in raised(
        archive, start=f"{NEXT + timedelta(days=1)}", verify=True, key=key
    )


@pytest.mark.parametrize("name", ["samples", "channels", "serial", "revision", "rows"])
def test_counts_of_the_manifest_are_verified(archive: str, key: Path, name: str) -> None:
    path = only(archive, f"manifests/*/{DAY}.json")
    data = json.loads(path.read_text())
    of = data["files"][0] if name == "rows" else data
    of[name] += 1
    path.write_text(json.dumps(data))
    assert "by the manifest" in raised(archive, verify=True, key=key)


def test_file_with_other_bytes_is_found_by_the_seal(archive: str, key: Path) -> None:
    path = only(archive, f"samples/*/day={DAY}/*")
    content = path.read_bytes()
    path.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    problem = f"{DAY}: {path.relative_to(archive)} is not the file of the manifest"
    assert problem in raised(archive, verify=True, key=key)


def test_other_files_beside_the_manifests_are_ignored(archive: str) -> None:
    folder = only(archive, f"manifests/*/{DAY}.json").parent
    for name in ("notes.json", "2026-02-30.json", "20260309.json", f"{DAY}.json.old"):
        (folder / name).write_text("{}")
    (folder.parent / "notes.json").write_text("{}")
    assert notebook.samples(archive).num_rows == 1160
    assert notebook.samples(archive, installation=folder.name.partition("=")[2]).num_rows == 1160


def test_key_counts_without_verification(archive: str, key: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.pem"
    foreign.write_text(public_pem(Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()))
    functions = (notebook.samples, notebook.series, notebook.gaps, notebook.aggregates, notebook.interpolated)
    for function in (*functions, notebook.polars):
        assert len(function(archive, "unit/pressure", str(DAY), f"{DAY}T08", key=key))
        with pytest.raises(notebook.ArchiveError, match=f"{DAY}: WRONG KEY: signed by key "):
            function(archive, "unit/pressure", str(DAY), f"{DAY}T08", key=foreign)
    manifest = only(archive, f"manifests/*/{NEXT}.json")
    data = json.loads(manifest.read_text())
    data["proof"]["seals"][0]["root"] = data["root"] = "0" * 64
    manifest.write_text(json.dumps(data))
    assert notebook.samples(archive, end=str(NEXT), key=key).num_rows > 0, "another day is not read"
    assert "the signature does not match key" in raised(archive, key=key)


def test_manifest_of_another_plant_is_an_error(archive: str) -> None:
    path = only(archive, f"manifests/*/{DAY}.json")
    data = {**json.loads(path.read_text()), "installation": "00000000-0000-0000-0000-000000000000", "plant": "south"}
    path.write_text(json.dumps(data))
    assert "installation: found 00000000-0000-0000-0000-000000000000, of plant south; legal: " in raised(archive)
    path.write_text("{")
    assert f"{path.name} is not a manifest" in raised(archive)


def test_manifest_without_a_table_is_an_error(archive: str, key: Path) -> None:
    path = only(archive, f"manifests/*/{DAY}.json")
    data = json.loads(path.read_text())
    data["files"] = [file for file in data["files"] if file["table"] != "seal"]
    path.write_text(json.dumps(data))
    assert f"{path.name}: files: found 0 of the table seal; legal: 1" in raised(archive, verify=True, key=key)


def test_wrong_arguments_are_errors(archive: str, key: Path, tmp_path: Path) -> None:
    assert notebook.samples(Path(archive), end=f"{DAY}T05:01").num_rows > 0
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"location": 3}, "location: found 3; legal: a folder"),
        ({"location": None}, "location: found None; legal: a folder"),
        ({"location": b"folder"}, "location: found b'folder'; legal: a folder"),
        ({"start": DAY}, f"start: found {DAY!r}; legal: a time such as"),
        ({"end": 3}, "end: found 3; legal: a time such as"),
        ({"channels": 1.5}, "channels: found 1.5; legal: a name"),
        ({"channels": [None]}, "channels: found None; legal: a name"),
        ({"installation": 3}, "installation: found 3; legal: an id"),
        ({"s3": {"endpoint": "a"}}, "s3: found {'endpoint': 'a'}; legal: S3Options(…)"),
        ({"key": 3}, "key: found 3; legal: the plant's public key"),
    )
    for arguments, problem in wrong:
        assert problem in raised(**{"location": archive, **arguments})
    functions: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (notebook.series, {"step": 3}, "step: found 3; legal: a duration"),
        (notebook.gaps, {"channels": True}, "channels: found True; legal: a name"),
        (notebook.aggregates, {"step": 3}, "step: found 3; legal: a duration"),
        (notebook.aggregates, {"per": "-1m"}, "per: found '-1m'; legal: a duration"),
        (notebook.aggregates, {"aggregate": 3}, "aggregate: found 3; legal: a name"),
        (notebook.aggregates, {"channels": 4711}, "no channel matches 4711"),
        (notebook.interpolated, {"times": 3}, "times: found 3; legal: a time such as"),
        (notebook.interpolated, {"holds": True}, "interpolated has no option '--holds=True'; legal: "),
        (notebook.plot, {"channels": 1.5}, "channels: found 1.5; legal: a name"),
    )
    for function, arguments, problem in functions:
        with pytest.raises(notebook.ArchiveError) as error:
            function(archive, **arguments)
        assert problem in str(error.value)
    assert "start: found 'noon'; legal: a time such as" in raised(archive, start="noon")
    assert "installation: found 'x'; legal: an id" in raised(archive, installation="x")
    other = "00000000-0000-4000-8000-000000000000"
    [own] = (path.name.partition("=")[2] for path in Path(archive).glob("manifests/*"))
    for options in ({}, {"verify": True, "key": key}):
        assert f"installation: found {other}; legal: one of {own}" in raised(archive, installation=other, **options)
    for function in (notebook.series, notebook.gaps, notebook.plot):
        with pytest.raises(notebook.ArchiveError, match=f"installation: found {other}; legal: one of {own}"):
            function(archive, installation=other)
    assert "no such folder" in raised(str(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    assert "a location with archived days" in raised(str(tmp_path / "empty"))
