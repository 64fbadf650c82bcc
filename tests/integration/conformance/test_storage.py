"""storage(): what is there, in which form, by day; bytes as the disk has them."""

from __future__ import annotations

from datetime import timedelta

from tests.integration.conformance.plant import CHANNELS, NEXT_DAY, ConformancePlant
from tests.sample_tables import DAY, bits

_DAY = 1440 * CHANNELS


async def test_storage_shows_each_day_in_its_form(plant: ConformancePlant) -> None:
    await plant.fill()
    await plant.fill(NEXT_DAY)
    await plant.owner.execute("VACUUM (ANALYZE) plant.samples_raw")
    open_days = await plant.forms()
    assert {key: rows for key, (rows, _) in open_days.items()} == {(DAY, "rows"): _DAY, (NEXT_DAY, "rows"): _DAY}
    await plant.compress()
    await plant.compress()  # an emptied chunk goes
    await plant.owner.execute("VACUUM (ANALYZE) plant.samples_raw, plant.samples_packed")
    closed = await plant.closed_form()
    forms = await plant.forms()
    assert {key: rows for key, (rows, _) in forms.items()} == {(DAY, closed): _DAY, (NEXT_DAY, "rows"): _DAY}
    assert forms[DAY, closed][1] * 5 < open_days[DAY, "rows"][1]
    assert forms[NEXT_DAY, "rows"] == open_days[NEXT_DAY, "rows"]
    await plant.copy(1, [(n * 60_000_000 + 1, bits(1.0), 0) for n in range(1440)])
    assert set(await plant.forms()) == {(DAY, closed), (DAY, "rows"), (NEXT_DAY, "rows")}


async def test_storage_of_archived_channels(plant: ConformancePlant) -> None:
    """Their column n has arrays, of which PostgreSQL keeps statistics, too."""
    await plant.owner.execute(
        "INSERT INTO plant.installation (id, plant, class_prefix, number) VALUES (gen_random_uuid(), 'p', '', 1)"
    )
    await plant.owner.execute(
        "INSERT INTO plant.archived_channel (day, channel_id, installation, n, whole)"
        " SELECT $1, c, 1, array_fill(3600, ARRAY[24]), true FROM generate_series(1, 50) AS c",
        DAY,
    )
    await plant.owner.execute("ANALYZE plant.archived_channel")
    stored = "SELECT s.rows FROM plant.storage() AS s WHERE s.relation = 'archived_channel'"
    assert await plant.owner.fetchval(stored) == 50


async def test_storage_bytes_equal_the_disk(plant: ConformancePlant) -> None:
    """Indexes and TOAST included, and of all that the schema holds."""
    await plant.fill()
    await plant.fill(NEXT_DAY, 60)
    await plant.compress()
    await plant.compress()
    rows = await plant.owner.fetch("SELECT relation, sum(bytes)::bigint AS bytes FROM plant.storage() GROUP BY 1")
    bytes_by_relation = {row["relation"]: row["bytes"] for row in rows}
    for hypertable in ("samples_raw", "samples_packed", "event"):
        whole, root = await plant.owner.fetchrow(
            "SELECT public.hypertable_size($1), pg_total_relation_size($1)", f"plant.{hypertable}"
        ) or (0, 0)
        assert bytes_by_relation.get(hypertable, 0) == whole - root
    assert bytes_by_relation["channel"] == await plant.owner.fetchval("SELECT pg_total_relation_size('plant.channel')")
    tables = await plant.owner.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'plant'::regnamespace AND relkind = 'r'"
    )
    hypertables = await plant.owner.fetch("SELECT hypertable_name FROM timescaledb_information.hypertables")
    empty = {row["hypertable_name"] for row in hypertables} - set(bytes_by_relation)  # they have no chunk
    assert {row["relname"] for row in tables} - empty == set(bytes_by_relation)


async def test_storage_rows_are_planner_estimates(plant: ConformancePlant) -> None:
    """Rows of a table that was never analyzed are unknown; growth since the last analysis is estimated."""
    await plant.owner.execute("ALTER TABLE plant.samples_raw SET (autovacuum_enabled = off)")
    await plant.fill(minutes=600)
    assert (await plant.forms())[DAY, "rows"][0] is None
    await plant.owner.execute("ANALYZE plant.samples_raw")
    await plant.fill(DAY + timedelta(hours=10), 600)
    rows = (await plant.forms())[DAY, "rows"][0]
    assert rows is not None
    assert abs(rows - 1200 * CHANNELS) < 0.05 * 1200 * CHANNELS
