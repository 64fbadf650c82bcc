"""A digest is the samples', not their form's: rows, packed hours, late rows beside packed ones, and Parquet agree."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.samples import Samples
from core.timestamps import begin, microseconds
from history.archive.parquet_writers import SampleFile
from history.reading.hours import hour_digests
from history.reading.reader import read
from history.standalone import sample_hours, tagged_hash
from tests.integration.history.sealed_plant import DAY, SealedPlant
from tests.sample_tables import HOUR_US, Sample

_SPECIAL = (0x7FF8000000000000, 0x7FF8000000000ABC, 0xFFF8DEADBEEF0001, 0x7FF0000000000001, 0x7FF << 52, 1 << 63, 0, 1)
_bits = st.one_of(
    st.sampled_from(_SPECIAL),
    st.integers(0, 2**64 - 1),
    st.integers(-(10**6), 10**6).map(lambda n: _double(n / 100)),
)
_sample = st.tuples(st.integers(0, 3 * HOUR_US - 1), _bits, st.sampled_from([0, 0x80050000, 0x40000000, 0xFFFFFFFF]))
_samples = st.lists(_sample, min_size=1, max_size=80, unique_by=lambda one: one[0]).map(sorted)
_numbers = itertools.count(1)


def _double(value: float) -> int:
    import struct

    return int.from_bytes(struct.pack(">d", value), "big")


def expected(samples: list[Sample]) -> dict[int, tuple[int, bytes]]:
    """The specification, said plainly."""
    first = microseconds(begin(DAY))
    found = {}
    for hour in {time // HOUR_US for time, _, _ in samples}:
        rows = [row for row in samples if row[0] // HOUR_US == hour]
        parts = [(t + first).to_bytes(8, "big") + v.to_bytes(8, "big") + s.to_bytes(4, "big") for t, v, s in rows]
        found[hour] = (len(rows), tagged_hash("hour", *parts))
    return found


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(samples=_samples, data=st.data())
async def test_every_form_has_the_same_digests(plant: SealedPlant, samples: list[Sample], data: st.DataObject) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = f"any/{next(_numbers)}"
    late = data.draw(st.sets(st.sampled_from(range(len(samples)))))
    number = await plant.channel(name)

    async def stored() -> Samples:
        return (await read(plant.owner, [number], begin(DAY), begin(DAY, 24)))[number]

    early = [row for i, row in enumerate(samples) if i not in late]
    if early:
        await plant.samples(name, early)
        assert hour_digests(await stored(), DAY) == expected(early)
        await plant.pack()
        assert hour_digests(await stored(), DAY) == expected(early)
    if late:
        await plant.samples(name, [samples[i] for i in sorted(late)])
    assert hour_digests(await stored(), DAY) == expected(samples)
    await plant.pack()
    one = await stored()
    assert hour_digests(one, DAY) == expected(samples)
    sink = pa.BufferOutputStream()
    file = SampleFile(sink, data.draw(st.sampled_from(["dictionary", "byte_stream_split"])))
    file.write(one, name, "bar")
    file.close()
    parquet = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    assert {hour: (n, digest) for _, hour, n, digest in sample_hours(parquet, DAY.isoformat(), {}, {}, {})} == expected(
        samples
    )


async def test_digests_at_the_bounds_of_an_hour(plant: SealedPlant) -> None:
    """The first µs of an hour is its own, and the last is not the next one's."""
    edges = [(hour * HOUR_US + us, 1, 0) for hour in (0, 1, 23) for us in (0, HOUR_US - 1)]
    await plant.samples("unit/edges", [*edges, (24 * HOUR_US, 1, 0), (-1, 1, 0)])
    done = await plant.seal(begin(DAY, 24) + timedelta(days=2))
    assert {sealed_day.seal.day: sealed_day.seal.samples for sealed_day in done}["2026-03-09"] == 480 + 6
    assert (await plant.verify()).ok
