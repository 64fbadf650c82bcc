"""The archive's files without a database: every bit, every divisor, and which rows lie together."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.batch import Float64s
from core.errors import OperationError
from core.samples import Samples
from core.timestamps import begin, microseconds
from history.archive import location
from history.archive.day_files import DayFiles
from history.archive.location import Location
from history.archive.manifest import ArchivedFile, DayFolder, Manifest, footer_crc32
from history.archive.sample_file import OWN_GROUP, SampleWriter
from history.archive_days.writer import files_of
from history.codec import row_groups
from history.codec.row_groups import MAX_GROUP
from history.codec.scaling import ScaledValues, scale
from history.codec.segments import Segments
from tests.waiting import until

DAY = date(2026, 3, 9)
FOLDER = DayFolder(UUID(int=7), DAY)
_SPECIAL = (0x7FF8000000000ABC, 0xFFF8DEADBEEF0001, 0x7FF0000000000001, 0x7FF0000000000000, 1 << 63, 0, 1)
_decimal = st.builds(lambda whole, k: whole / 10**k, st.integers(-(2**53), 2**53), st.integers(0, 9))
_single = st.floats(width=32).map(np.float64)
_bits = st.one_of(
    st.sampled_from(_SPECIAL),
    st.integers(0, 2**64 - 1),
    st.one_of(_decimal, _single).map(lambda value: int(np.float64(value).view(np.uint64))),
)


def series(channel: int, bits: list[int] | Float64s, step: int = 1_000_000) -> Samples:
    """Values at regular times of the day."""
    n = len(bits)
    value = bits if isinstance(bits, np.ndarray) else np.array(bits, np.uint64).view(np.float64)
    time = microseconds(begin(DAY)) + np.arange(n, dtype=np.int64) * step
    return Samples(np.full(n, channel, np.int32), time, value, (np.arange(n) % 3).astype(np.uint32))


def written(samples: list[Samples]) -> tuple[pq.ParquetFile, list[tuple[int, int]]]:
    """A file with these channels, and the row groups of each."""
    groups = list[tuple[int, int]]()
    return pq.ParquetFile(pa.BufferReader(file_of(samples, groups))), groups


def file_of(samples: list[Samples], groups: list[tuple[int, int]] | None = None) -> bytes:
    """The bytes of a file with these channels. ``groups``: the row groups of each are added."""
    sink = pa.BufferOutputStream()
    writer = SampleWriter(sink, FOLDER.identity("samples"))
    where = [writer.write(sample) for sample in samples]
    writer.close()
    if groups is not None:
        groups += where
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def by_channel(parquet: Any) -> Iterator[tuple[int, Samples]]:
    groups = range(parquet.num_row_groups)
    for some in row_groups.joined_parts(row_groups.read(parquet, groups, row_groups.VALUES, None, checked=False)):
        yield from some.by_channel()


@given(values=st.lists(st.lists(_bits, min_size=1, max_size=40), min_size=1, max_size=4))
def test_every_bit_survives_the_file(values: list[list[int]]) -> None:
    samples = [series(number, one) for number, one in enumerate(values, 1)]
    file, _ = written(samples)
    found = list(by_channel(file))
    assert [channel for channel, _ in found] == [int(sample.channel[0]) for sample in samples]
    for (_, one), other in zip(found, samples, strict=True):
        for name in ("time", "bits", "status"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_statistics_prove_nothing(tmp_path: Path) -> None:
    """A footer that says other statuses than the pages, which DuckDB shows, must not pass for what was sealed."""
    pages, footer = (file_of([replace(series(1, [0] * 50), status=np.full(50, code, np.uint32))]) for code in (7, 8))
    length = int.from_bytes(footer[-8:-4], "little") + 8
    assert len(pages) == len(footer) and pages[-length:] != footer[-length:]
    (tmp_path / "forged.parquet").write_bytes(pages[:-length] + footer[-length:])
    location = Location.at(str(tmp_path))
    with location.opened("forged.parquet") as source:
        crc32 = footer_crc32(source)
    file = ArchivedFile("forged.parquet", "samples", 50, len(pages), "", footer_crc32=crc32)
    manifest = Manifest(1, "", "", "", 1, 0, 1, "", 50, 1, (file,))
    [(_, found)] = DayFiles(location, FOLDER, manifest).samples()
    assert set(found.status.tolist()) == {7}
    everything = (0, 2**62)
    by_statistics = row_groups.joined_parts(DayFiles(location, FOLDER, manifest).parts(file, None, bounds=everything))
    assert set(next(by_statistics).status.tolist()) == {8}  # what questions read, of files whose day was compared


def walk(n: int = 4000) -> Float64s:
    """Values of a transmitter with a resolution of 0.01."""
    return (5000 + np.cumsum(np.rint(np.random.default_rng(1).normal(0, 2.5, n)))) / 100


def scaled(values: Float64s) -> ScaledValues:
    """Scaled integers of doubles."""
    return scale(values.view(np.uint64), Segments.single(len(values)))


@pytest.mark.parametrize(
    ("change", "divisor", "single", "exact"),
    [
        (lambda v: v, 100.0, False, 4000),
        (np.rint, 1.0, False, 4000),
        (lambda v: v.astype(np.float32).astype(np.float64), 100.0, True, 4000),
        (lambda v: np.where(np.arange(4000) % 50 == 0, np.nan, v), 100.0, False, 3920),
        (lambda v: np.where(np.arange(4000) < 3000, np.nan, v), 100.0, False, 1000),  # Bad for most of the day
        (lambda v: np.where(np.arange(4000) % 20 == 0, v * np.pi, v), 100.0, False, 3800),
        (lambda v: v * np.pi, 1.0, False, 0),
        (lambda v: (v * np.pi).astype(np.float32).astype(np.float64), 1.0, False, 0),
        (lambda v: np.full(4000, -0.0), 1.0, False, 0),
        (lambda v: np.full(4000, np.nan), 1.0, False, 0),
    ],
)
def test_divisor_of_a_channel(change: Callable[[Float64s], Float64s], divisor: float, single: bool, exact: int) -> None:
    found = scaled(change(walk()))
    assert (found.divisor[0], found.single[0], int(found.exact.sum())) == (divisor, single, exact)


@pytest.mark.parametrize(
    ("values", "most"), [(walk(86_400), 0.52), (np.random.default_rng(1).normal(50, 10, 86_400), 6.95)]
)
def test_bytes_a_sample(values: Float64s, most: float) -> None:
    """A transmitter's and noise, with three statuses that take turns."""
    file, _ = written([series(1, values)])
    sizes = [file.metadata.row_group(0).column(i).total_compressed_size / len(values) for i in range(7)]
    assert sum(sizes) < most, sizes


def test_channel_with_many_samples_has_row_groups_of_its_own() -> None:
    small = [series(number, walk(100)) for number in range(1, 401)]
    large = [series(number, walk(OWN_GROUP)) for number in (401, 402)]
    huge = series(403, np.zeros(MAX_GROUP + 1), step=1000)
    file, groups = written([*small, *large, huge, series(404, walk(100))])
    assert groups[0] == (0, 0)
    assert groups[400:] == [(2, 2), (3, 3), (4, 5), (6, 6)]
    for number, (first, last) in enumerate(groups, 1):
        table = file.read_row_groups(list(range(first, last + 1)))
        assert number in table["channel_id"].to_pylist()
    statistics = [file.metadata.row_group(i).column(0).statistics for i in range(file.num_row_groups)]
    assert [(s.min, s.max) for s in statistics][2:] == [(401, 401), (402, 402), (403, 403), (403, 403), (404, 404)]
    assert [len(one) for _, one in by_channel(file)] == [100] * 400 + [OWN_GROUP] * 2 + [MAX_GROUP + 1, 100]


def test_values_are_read_by_the_documented_formula() -> None:
    """With nothing of plantlog: docs/archive.md says how."""
    samples = [series(1, walk()), series(2, walk().astype(np.float32).astype(np.float64)), series(3, walk() * np.pi)]
    file, _ = written(samples)
    table = file.read()
    quotient = pc.divide(table["scaled"].cast(pa.float64()), table["divisor"])
    rounded = quotient.cast(pa.float32(), safe=False).cast(pa.float64())
    value = pc.coalesce(table["unscaled"], pc.if_else(table["single"], rounded, quotient))
    expected = np.concatenate([sample.bits for sample in samples])
    assert np.array_equal(value.to_numpy().view(np.uint64), expected)


def test_small_units_share_a_file() -> None:
    names = {1: "a/x/t", 2: "a/y/t", 3: "a/x/p", 4: "b/t", 6: "root"}
    assert files_of({1: 5, 2: 5, 3: 5, 4: 5, 5: 5, 6: 5}, names) == [[1, 2, 3, 4, 5, 6]]
    assert files_of({1: 9_000_000, 2: 4_000_000, 3: 3_000_000, 4: 6_000_000, 6: 1}, names) == [[6], [1, 3], [2, 4]]
    assert files_of({}, {}) == []


def test_file_that_fails_is_not_there(tmp_path: Path) -> None:
    location = Location.at(str(tmp_path))
    with pytest.raises(ZeroDivisionError), location.created("a/b.parquet") as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert location.listing("") == []
    location.write("a/manifest.json", b"one")
    with pytest.raises(OperationError, match=r"archive .*: a/manifest.json/c.partial: Not a directory"):
        location.write("a/manifest.json/c", b"two")
    assert [location.read(path) for path in location.listing("")] == [b"one"]
    assert location.size("nothing") is None
    with pytest.raises(OperationError, match="nothing: No such file or directory"):
        location.read("nothing")
    with pytest.raises(OperationError, match="S3 requires an endpoint and a key"):
        Location.at("s3://bucket/archive")


async def test_storage_that_does_not_answer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An access can't be ended, as on NFS. Until it ends by itself, there is no other."""
    monkeypatch.setattr(location, "_CANCEL_SECONDS", 0.0)
    answer = threading.Event()
    task = asyncio.create_task(location.in_thread(answer.wait))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    with pytest.raises(OperationError, match="does not answer: an earlier access to it still waits"):
        await location.in_thread(len, "abc")
    answer.set()

    async def works() -> bool:
        try:
            return await location.in_thread(len, "abc") == 3
        except OperationError:
            return False

    await until(works)


async def test_access_that_nobody_waits_for_may_fail() -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    task = location.in_background(Location.at, "/no/such/folder")
    await until(task.done)
    del task
    gc.collect()
    assert errors == []
