"""Plans of samples_between: it reads only the chunks and packed hours within its bounds, each by an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from tests.integration.conformance.plant import ConformancePlant
from tests.sample_tables import DAY

_CHANNELS = 60
_EACH = timedelta(minutes=6)
_HOUR = timedelta(hours=1)
_CLOSED, _PACKED, _OPEN = (DAY + timedelta(days=n) for n in range(3))
_BOUNDS = [
    *((day + 5 * _HOUR, day + 6 * _HOUR) for day in (_CLOSED, _PACKED, _OPEN)),
    *((day, day + 24 * _HOUR) for day in (_CLOSED, _PACKED, _OPEN)),
    *((day - _HOUR / 2, day + _HOUR / 2) for day in (_PACKED, _OPEN)),
    (_CLOSED + 12 * _HOUR, _OPEN + 12 * _HOUR),
]
_FILL = """
INSERT INTO plant.samples_raw (time, value, channel_id, status)
SELECT t, c, c, 0
FROM generate_series($1::timestamptz, $1::timestamptz + INTERVAL '3 days' - $2::interval, $2) AS t,
     generate_series(1, $3::int) AS c
"""
_CHUNKS = """
SELECT k.chunk_schema || '.' || k.chunk_name AS name, k.hypertable_name = 'samples_packed' AS packed,
       k.range_start < $2 AND k.range_end > $1 AS within
FROM timescaledb_information.chunks AS k
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name IN ('samples_raw', 'samples_packed')
"""


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from _nodes(part)


async def _explain(
    plant: ConformancePlant, channels: list[int], first: datetime, last: datetime
) -> list[dict[str, Any]]:
    plan = await plant.owner.fetchval(
        "EXPLAIN (ANALYZE, VERBOSE, TIMING off, FORMAT json)"
        f" SELECT * FROM plant.samples_between('{{{','.join(map(str, channels))}}}', '{first}', '{last}')"
    )
    return list(_nodes(json.loads(plan)[0]["Plan"]))


async def test_only_chunks_within_the_bounds_are_read(plant: ConformancePlant) -> None:
    """A day in the edition's own form, a packed one, and one of rows; one channel and 11; an hour, a day, across."""
    await plant.owner.execute(_FILL, DAY, _EACH, _CHANNELS)
    await plant.compress(_PACKED)
    await plant.compress(_PACKED)
    await plant.set_compression("packed")
    await plant.compress(_OPEN)
    await plant.compress(_OPEN)
    await plant.owner.execute("VACUUM (ANALYZE) plant.samples_raw, plant.samples_packed")
    forms = set(await plant.forms())
    assert {(_PACKED, "packed"), (_OPEN, "rows")} < forms
    assert len(forms) == 3
    packed_from = DAY if (DAY, "packed") in forms else _PACKED
    for first, last in _BOUNDS:
        chunks = await plant.owner.fetch(_CHUNKS, first, last)
        within = {chunk["name"] for chunk in chunks if chunk["within"]}
        for channels in ([18], list(range(3, 58, 5))):
            nodes = await _explain(plant, channels, first, last)
            asked = f"{len(channels)} channels, {first} to {last}: {json.dumps(nodes[0], indent=1)}"
            named = [(n["Node Type"], f"{n['Schema']}.{n['Relation Name']}", n) for n in nodes if "Relation Name" in n]
            touched = {name for _, name, _ in named} & {chunk["name"] for chunk in chunks}
            assert touched == within, asked
            in_sequence = {name for kind, name, _ in named if kind == "Seq Scan"}
            assert in_sequence <= {"plant.packed_until"}, asked
            packed = {chunk["name"] for chunk in chunks if chunk["packed"]}
            hours = sum(round(n["Actual Rows"] * n["Actual Loops"]) for _, name, n in named if name in packed)
            length = min(last, _OPEN) - max(first - (first - DAY) % _HOUR, packed_from)
            assert hours == max(0, -(-length // _HOUR)) * len(channels), asked
            assert nodes[0]["Actual Rows"] == (last - first) // _EACH * len(channels), asked


async def test_bounds_given_as_parameters_limit_the_chunks(plant: ConformancePlant) -> None:
    """A prepared statement whose plan is made once: what it need not touch, it does not start to read."""
    await plant.owner.execute(_FILL, DAY, _EACH, 50)
    await plant.compress(_PACKED)
    await plant.compress(_PACKED)
    await plant.owner.execute("VACUUM (ANALYZE) plant.samples_raw, plant.samples_packed")
    await plant.owner.execute("SET plan_cache_mode = force_generic_plan")
    await plant.owner.execute(
        "PREPARE asked (int[], timestamptz, timestamptz) AS SELECT * FROM plant.samples_between($1, $2, $3)"
    )
    for first, last in ((DAY + _HOUR, DAY + 2 * _HOUR), (_OPEN, _OPEN + 24 * _HOUR)):
        chunks = await plant.owner.fetch(_CHUNKS, first, last)
        plan = await plant.owner.fetchval(
            f"EXPLAIN (ANALYZE, VERBOSE, TIMING off, FORMAT json) EXECUTE asked ('{{3,4}}', '{first}', '{last}')"
        )
        nodes = list(_nodes(json.loads(plan)[0]["Plan"]))
        read = {f"{n['Schema']}.{n['Relation Name']}" for n in nodes if "Relation Name" in n and n["Actual Loops"]}
        assert read & {chunk["name"] for chunk in chunks} == {chunk["name"] for chunk in chunks if chunk["within"]}
        assert nodes[0]["Actual Rows"] == (last - first) // _EACH * 2
