"""A day as Parquet: equal to the bit, readable elsewhere, and verified with nothing of plantlog."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import OperationError
from core.timestamps import begin, microseconds
from history.exports.export import VERIFIER, ExportResult, export
from history.seals.keys import rotate
from history.standalone import METADATA, UnverifiableError, read_keys, report, verify_file
from tests.integration.history.sealed_plant import DAY, SealedPlant, public_key
from tests.sample_tables import HOUR_US, bits

SPECIAL = (0x7FF8000000000ABC, 0xFFF8DEADBEEF0001, 0x7FF0000000000001, 0x8000000000000000, 0, 1, 0x7FF0000000000000)


async def exported(plant: SealedPlant, folder: Path, channels: tuple[str, ...] = ()) -> tuple[Path, ExportResult]:
    """The first day, written by the reader."""
    path = folder / "day.parquet"
    done = await export(plant.database.reader_dsn, plant.state, DAY, path, channels, with_verifier=True)
    return path, done


def alone(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The verifier beside the file, run where plantlog is not."""
    command = [sys.executable, "-I", str(path.parent / VERIFIER), str(path), *words]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("packed", [False, True])
async def test_exported_day_round_trips_to_the_bit(plant: SealedPlant, tmp_path: Path, packed: bool) -> None:
    odd = [(i * 1_000_003, SPECIAL[i % len(SPECIAL)], 0x80050000 if i % 3 else 0) for i in range(200)]
    await plant.samples("unit/odd", odd)
    await plant.seal()
    if packed:
        await plant.pack()
    path, done = await exported(plant, tmp_path)
    assert done.differs == 0
    assert [rows for _, rows in done.files] == [680, 1, 1]
    table = pq.read_table(path)
    assert table.column_names == ["time", "channel_id", "channel", "unit", "value", "status"]
    assert table.schema.field("time").type == pa.timestamp("us", tz="UTC")
    one = table.filter(pa.compute.equal(table["channel_id"], plant.ids["unit/odd"]))
    value = one["value"].to_numpy().view(np.uint64).tolist()
    time = (one["time"].cast(pa.int64()).to_numpy() - microseconds(begin(DAY))).tolist()
    assert list(zip(time, value, one["status"].to_pylist(), strict=True)) == odd
    assert set(one["channel"].to_pylist()) == {"unit/odd"}
    assert set(one["unit"].to_pylist()) == {"bar"}
    for file, _ in done.files:
        assert verify_file(str(file), None).ok
        assert not file.with_name(file.name + ".partial").exists()


async def test_export_is_verified_without_plantlog(plant: SealedPlant, tmp_path: Path) -> None:
    await plant.seal()
    await plant.late("unit/flow", [(9 * HOUR_US, bits(1.0), 0)])
    await rotate(plant.owner, plant.state)
    await plant.seal()
    path, done = await exported(plant, tmp_path)
    key = public_key(plant, tmp_path / "key.pem")
    run = alone(path, "--key", str(key))
    assert run.returncode == 0, run.stdout + run.stderr
    for file, _ in done.files:
        verified = report(str(file), verify_file(str(file), read_keys(key.read_bytes())), True)
        assert "every row is as sealed (serial 4, revision 1)" in verified
        assert "which is in the file" not in verified
        assert verified in run.stdout
    unanchored = report(str(path), verify_file(str(path), None), False)
    assert "which is in the file: compare it with the plant's public key" in unanchored
    body = json.loads(alone(path, "--json").stdout)
    assert (body["ok"], body["rows"], [seal["revision"] for seal in body["seals"]]) == (True, 481, [0, 1])


async def test_export_of_some_channels(plant: SealedPlant, tmp_path: Path) -> None:
    await plant.seal()
    path, done = await exported(plant, tmp_path, ("unit/pr*",))
    assert [rows for _, rows in done.files] == [240, 1, 1]
    run = alone(path)
    assert run.returncode == 0, run.stdout
    assert "contains only some of the day's channels" in run.stdout
    with pytest.raises(OperationError, match="already exists"):
        await exported(plant, tmp_path)
    with pytest.raises(OperationError, match="no channel with samples on 2026-03-09 matches nothing"):
        await export(plant.database.reader_dsn, plant.state, DAY, tmp_path / "b.parquet", ["nothing"], False)
    assert not any(name.startswith("b.") for _, _, names in os.walk(tmp_path) for name in names)


async def test_unsealed_and_differing_days_are_not_exported(plant: SealedPlant, tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="2026-03-09 is not sealed: run `plantlog evidence seal 2026-03-09`"):
        await exported(plant, tmp_path)
    await plant.seal()
    await plant.owner.execute("UPDATE plant.samples_raw SET value = 1 WHERE time = $1", begin(DAY, 5))
    path, done = await exported(plant, tmp_path)
    assert done.differs == 2
    assert [difference.describe() for difference in verify_file(str(path), None).differences] == [
        "unit/pressure, hour 05: at least 1 changed (120 sealed, 120 found)",
        "unit/flow, hour 05: at least 1 changed (120 sealed, 120 found)",
    ]


def rewritten(path: Path, change: Any = None, metadata: Any = None) -> None:
    """The file again, with changed rows or another seal."""
    file = pq.ParquetFile(path)
    text = file.metadata.metadata[METADATA]
    table = file.read()
    file.close()
    if change is not None:
        table = change(table)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        if metadata is None or metadata(json.loads(text)) is not None:
            body = text if metadata is None else json.dumps(metadata(json.loads(text))).encode()
            writer.add_key_value_metadata({METADATA: body})


def with_value(table: pa.Table, row: int, value: float) -> pa.Table:
    """One value otherwise."""
    values = table["value"].to_numpy().copy()
    values[row] = value
    return table.set_column(4, table.schema.field("value"), pa.array(values))


@pytest.mark.slow
async def test_tampered_export_rows_are_detected(plant: SealedPlant, tmp_path: Path) -> None:
    await plant.seal()
    path, _ = await exported(plant, tmp_path)
    whole = path.read_bytes()

    def problems_of_file() -> list[str]:
        verdict = verify_file(str(path), None)
        assert verdict.ok == (alone(path).returncode == 0)
        return [*verdict.problems, *(difference.describe() for difference in verdict.differences)]

    rewritten(path)
    assert problems_of_file() == []
    rewritten(path, lambda table: with_value(table, 130, np.nextafter(40.1, 41)))
    assert problems_of_file() == ["unit/pressure, hour 06: at least 1 changed (120 sealed, 120 found)"]
    path.write_bytes(whole)
    rewritten(path, lambda table: table.slice(0, 479))
    assert problems_of_file() == [
        "unit/flow, hour 06: at least 1 missing, and others may have changed (120 sealed, 119 found)"
    ]
    path.write_bytes(whole)
    rewritten(path, lambda table: pa.concat_tables([table, table.slice(479)]))
    assert problems_of_file() == [
        "unit/flow, hour 06: at least 1 added, and others may have changed (120 sealed, 121 found)"
    ]
    path.write_bytes(whole)
    rewritten(path, lambda table: pa.concat_tables([table.slice(240), table.slice(0, 240)]))
    assert problems_of_file() == []  # channels in another order are the same samples
    path.write_bytes(whole)
    flow = pa.array(["unit/flow"] * 480).dictionary_encode()
    rewritten(path, lambda t: t.set_column(2, t.schema.field("channel"), flow))
    [problem] = problems_of_file()
    assert problem.endswith("is called unit/flow in bar in rows of the file, and unit/pressure in bar in the seal")


def with_type(table: pa.Table, name: str, kind: pa.DataType) -> pa.Table:
    """The same integers as another type."""
    place = table.schema.get_field_index(name)
    column = table[name].cast(pa.int64()).cast(kind)
    return table.set_column(place, table.schema.field(name).with_type(kind), column)


@pytest.mark.parametrize("table", ["samples", "events", "gaps"])
async def test_other_columns_are_refused(plant: SealedPlant, tmp_path: Path, table: str) -> None:
    """The same integers are other times with another unit or zone, and other readers see other columns."""
    await plant.seal()
    _, done = await exported(plant, tmp_path)
    path = {"samples": done.files[0], "events": done.files[1], "gaps": done.files[2]}[table][0]
    whole, name = path.read_bytes(), "from_time" if table == "gaps" else "time"
    for change in (
        lambda t: with_type(t, name, pa.timestamp("ns", tz="UTC")),
        lambda t: with_type(t, name, pa.timestamp("ms", tz="UTC")),
        lambda t: with_type(t, name, pa.timestamp("us", tz="Europe/Berlin")),
        lambda t: with_type(t, name, pa.timestamp("us")),
        lambda t: with_type(t, name, pa.int64()),
        lambda t: t.append_column("corrected", pa.array([1.0] * len(t))),
        lambda t: t.rename_columns([*t.column_names[:-1], "Status"]),
        lambda t: t.select([*t.column_names[1:], t.column_names[0]]),
        lambda t: t.select(t.column_names[:-1]),
    ):
        rewritten(path, change)
        with pytest.raises(UnverifiableError, match=r"column[\s\S]*legal: "):
            verify_file(str(path), None)
        path.write_bytes(whole)
    assert verify_file(str(path), None).ok


async def test_file_of_another_table_is_refused(plant: SealedPlant, tmp_path: Path) -> None:
    await plant.seal()
    path, _ = await exported(plant, tmp_path)
    files = {name: tmp_path / f"day{name}.parquet" for name in ("", ".events", ".gaps")}
    contents = {name: file.read_bytes() for name, file in files.items()}
    for name, file in files.items():
        for other in set(files) - {name}:
            file.write_bytes(contents[other])
            with pytest.raises(UnverifiableError, match="by its name it has"):
                verify_file(str(file), None)
        file.write_bytes(contents[name])
    run = alone(path.rename(path.with_name("day.gaps.parquet")))
    assert (run.returncode, run.stdout) == (1, "")
    assert "by its name it has" in run.stderr


async def test_amendments_are_verified_from_files_alone(plant: SealedPlant, tmp_path: Path) -> None:
    """Without what came, the rows of the files are those of the revision before."""
    await plant.seal()
    await plant.late("unit/flow", [(5 * HOUR_US + 500_000, bits(1.0), 0), (9 * HOUR_US, bits(1.0), 0)])
    await plant.late_event(begin(DAY, 5), "text", "said late")
    await plant.gap("UPDATE plant.gap SET backfilled_at = now()")
    await plant.seal()
    await plant.late("unit/flow", [(5 * HOUR_US + 600_000, bits(2.0), 0)])
    await plant.seal()
    path, done = await exported(plant, tmp_path)
    listed = [
        "amended: revision 1: unit/flow, hour 05: 1 sample added",
        "amended: revision 1: unit/flow, hour 09: 1 sample added",
        "amended: revision 1: events, hour 05: 1 event added",
        f"amended: revision 1: gap of source {plant.source} from 2026-03-09T07:00:00Z was reported anew",
        "amended: revision 2: unit/flow, hour 05: 1 sample added",
    ]
    run = alone(path, "--strict")
    assert run.returncode == 0, run.stdout + run.stderr
    for file, _ in done.files:
        verified = report(str(file), verify_file(str(file), None), False)
        assert [line.strip() for line in verified.splitlines() if "amended" in line] == listed
        assert verified in run.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda message: {**message, "day": "2026-03-10"}, "is of 2026-03-09, not of 2026-03-10"),
        (
            lambda message: {**message, "seals": [{**message["seals"][0], "samples": 1}]},
            "the signature does not match key",
        ),
        (lambda message: {**message, "rows": message["rows"][:1]}, "the digests in the file do not make up its root"),
        (lambda message: {**message, "keys": []}, "signed by the unknown key"),
        (lambda message: {**message, "differs": ["x"]}, "its list of differences from the revision before was altered"),
    ],
)
async def test_tampered_export_seal_is_detected(plant: SealedPlant, tmp_path: Path, change: Any, message: str) -> None:
    await plant.seal()
    path, _ = await exported(plant, tmp_path)
    rewritten(path, metadata=change)
    run = alone(path)
    assert run.returncode == 1
    assert message in run.stdout


async def test_foreign_parquet_files_are_refused(plant: SealedPlant, tmp_path: Path) -> None:
    await plant.seal()
    path, _ = await exported(plant, tmp_path)
    whole = path.read_bytes()
    for damaged, message in (
        (whole[:-100], "is not a complete Parquet file"),
        (b"time,value\n", "is not a complete Parquet file"),
        (b"", "is not a complete Parquet file"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(UnverifiableError, match=message):
            verify_file(str(path), None)
        run = alone(path)
        assert run.returncode == 1
        assert message in run.stderr
        assert "Traceback" not in run.stderr
    path.write_bytes(whole[:2000] + bytes(40) + whole[2040:])
    assert alone(path).returncode == 1
    pq.write_table(pa.table({"value": [1.0]}), path)
    with pytest.raises(UnverifiableError, match="contains no seal"):
        verify_file(str(path), None)
    path.write_bytes(whole)
    rewritten(path, metadata=lambda message: {**message, "specification": 3})
    with pytest.raises(UnverifiableError, match="specification 3 is not supported, only 1 and 2"):
        verify_file(str(path), None)
    rewritten(path, metadata=lambda message: {"specification": 1})
    with pytest.raises(UnverifiableError, match="cannot read the seal"):
        verify_file(str(path), None)
    missing = alone(tmp_path / "nothing.parquet")
    assert "found no such file; legal: a Parquet file" in missing.stderr


@pytest.mark.slow
async def test_export_with_many_row_groups(plant: SealedPlant, tmp_path: Path) -> None:
    """More than one, with channels cut by their bounds."""
    for i in range(6):
        seconds = np.arange(86_400).tolist()
        await plant.samples(f"fast/{i}", [(s * 1_000_000, bits((s * 7 + i) % 997 / 100), 0) for s in seconds])
    await plant.seal()
    path, done = await exported(plant, tmp_path)
    assert done.differs == 0
    file = pq.ParquetFile(path)
    assert file.metadata.num_row_groups > 1
    assert file.metadata.num_rows == 6 * 86_400 + 480
    file.close()
    assert verify_file(str(path), None).ok
