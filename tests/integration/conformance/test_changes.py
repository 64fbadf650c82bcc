"""Changes of closed days: late samples, gaps, deletions, another unit. Rollups and names follow each of them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from history.rollups import verify
from tests.integration.conformance.plant import NEXT_DAY, ConformancePlant
from tests.sample_tables import DAY
from tests.samples import T0, batch

_NOON = DAY + timedelta(hours=12)


@pytest.mark.slow
async def test_rollups_and_names_follow_what_changes_a_closed_day(plant: ConformancePlant, tmp_path: Path) -> None:
    owner = plant.owner
    await plant.fill(channels=4)
    await plant.fill(NEXT_DAY, 60, 4)
    # As the writer says it of what it writes
    await owner.execute(
        "INSERT INTO plant.rollup_dirty (from_time, to_time, channels) VALUES ($1, $2, '{1,2,3,4}')",
        *(DAY, NEXT_DAY + timedelta(hours=1)),
    )
    await owner.execute("CALL plant.refresh_rollups()")
    for _ in range(2):
        await plant.compress()
    assert (DAY, await plant.closed_form()) in await plant.form_of_days()

    late = int(DAY.timestamp() * 1_000_000) - T0 + 30_000_000
    await plant.write(tmp_path, batch([(1, late + n * 600_000_000, 1e6, 0) for n in range(100)]))
    gone = await owner.fetchval(
        "SELECT plant.delete_samples('{1,2}', $1, $2, 'test')", _NOON, DAY + timedelta(hours=14)
    )
    assert gone == 2 * 120 + 12
    await owner.execute(
        "INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason) VALUES (1, 3, $1, $2, 'stale')",
        *(DAY + timedelta(seconds=30), DAY + timedelta(minutes=5)),
    )
    await owner.execute(
        "UPDATE plant.channel SET unit = 'mbar' WHERE id = 4;"
        f"UPDATE plant.channel_version SET valid_to = '{_NOON}' WHERE channel_id = 4 AND unit = 'bar';"
        f"UPDATE plant.channel_version SET valid_from = '{_NOON}' WHERE channel_id = 4 AND unit = 'mbar'"
    )

    assert (await verify(owner)).differences == [], "what is dirty is not compared"
    await owner.execute("CALL plant.refresh_rollups()")
    assert (await verify(owner)).differences == []
    assert not await owner.fetchval("SELECT count(*) FROM plant.rollup_dirty WHERE from_time < $1", NEXT_DAY)
    counted = await owner.fetch(
        "SELECT channel_id, sum(n)::int AS n FROM plant.samples_1h WHERE bucket < $1 GROUP BY 1 ORDER BY 1", NEXT_DAY
    )
    assert [tuple(row) for row in counted] == [(1, 1440 - 120 + 88), (2, 1440 - 120), (3, 1440), (4, 1440)]
    named = await owner.fetch(
        "SELECT unit, count(*)::int FROM plant.samples_named WHERE channel_id = 4 AND time < $1 GROUP BY 1 ORDER BY 1",
        NEXT_DAY,
    )
    assert [tuple(row) for row in named] == [("bar", 720), ("mbar", 720)]
    for _ in range(2):
        await plant.compress()
    assert (await verify(owner)).differences == []
    assert {form for day, form in await plant.form_of_days() if day == DAY} == {await plant.closed_form()}
