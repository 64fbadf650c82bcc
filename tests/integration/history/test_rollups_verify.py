"""``plantlog evidence verify rollups`` finds each change, names it, and takes nothing for one that is none."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

from history.rollups import RollupDifference, verify
from ops.cli.evidence import app
from tests.database import Database
from tests.integration.schema.test_rollups import SECOND, WrittenSamples, random_samples, refresh, registered_channels
from tests.sample_tables import DAY, DAY_US, HOUR_US

__all__ = ["registered_channels"]  # a fixture
_HOUR = timedelta(hours=1)


async def filled(connection: asyncpg.Connection[Any]) -> WrittenSamples:
    """Channels 1 and 2 with a sample a minute for three hours, and others with all sorts."""
    plant = WrittenSamples()
    await plant.write(connection, [(c, DAY_US + i * 60 * SECOND, float(i % 7), 0) for c in (1, 2) for i in range(180)])
    await plant.write(connection, random_samples(random.Random(3), (3, 4), 5, 1000))
    await refresh(connection)
    return plant


async def test_verify_names_each_difference(owner: asyncpg.Connection[Any]) -> None:
    await filled(owner)
    assert (await verify(owner)).differences == []
    # A packed day to rows again, so that a row of it can be changed.
    await owner.execute("SELECT plant.refresh_minutes(ARRAY[1, 2], NULL, $1, $2)", DAY, DAY + _HOUR)
    await owner.execute("DELETE FROM plant.rollup_dirty")
    at = DAY + 0.5 * _HOUR
    await owner.execute("UPDATE plant.rollup_1m SET max = 98.5 WHERE channel_id = 1 AND bucket = $1", at)
    await owner.execute("DELETE FROM plant.rollup_1m WHERE channel_id = 2 AND bucket = $1", at)
    await owner.execute("UPDATE plant.rollup_1h SET n = 59 WHERE channel_id = 1 AND bucket = $1", DAY + _HOUR)
    await owner.execute(
        "DELETE FROM plant.rollup_states_1m WHERE channel_id = 2 AND bucket = $1 AND state = 3", at - _HOUR / 60
    )
    await owner.execute(
        "UPDATE plant.rollup_states_1h SET known = 1 WHERE channel_id = 2 AND bucket = $1 AND state = 5", DAY + _HOUR
    )
    found = (await verify(owner)).differences
    assert RollupDifference("samples_1m", "c1", at, None, "max", 98.5, 2) in found
    assert RollupDifference("samples_1m", "c2", at, None, "row", None, True) in found
    assert RollupDifference("samples_1h", "c1", DAY + _HOUR, None, "n", 59, 60) in found
    assert any(d.relation == "states_1h" and d.column == "known" and d.found == 1 for d in found)
    assert {d.channel for d in found} == {"c1", "c2"}
    # What follows from it in the hour, and nothing else.
    assert {(d.relation, d.bucket) for d in found} <= {
        ("samples_1m", at),
        ("samples_1h", DAY),
        ("samples_1h", DAY + _HOUR),
        ("states_1m", at - _HOUR / 60),
        ("states_1h", DAY),
        ("states_1h", DAY + _HOUR),
    }


async def test_verify_finds_rows_in_hours_without_samples(owner: asyncpg.Connection[Any]) -> None:
    await filled(owner)
    await owner.execute(
        """INSERT INTO plant.rollup_1h
           SELECT (jsonb_populate_record(h, jsonb_build_object('bucket', $1::timestamptz))).*
           FROM plant.rollup_1h AS h WHERE h.channel_id = 1 AND h.bucket = $2""",
        DAY + 10 * _HOUR,
        DAY,
    )
    await owner.execute("INSERT INTO plant.rollup_states_1h VALUES (2, 1, $1, 3, 5)", DAY + 11 * _HOUR)
    await owner.execute("INSERT INTO plant.rollup_states_1m VALUES (2, 1, $1, 3, 5)", DAY + 12 * _HOUR)
    found = (await verify(owner)).differences
    assert {(d.relation, d.bucket, d.column, d.found) for d in found} >= {
        ("samples_1h", DAY + 10 * _HOUR, "row", True),
        ("states_1h", DAY + 11 * _HOUR, "row", True),
        ("states_1m", DAY + 12 * _HOUR, "row", True),
    }
    assert len(found) == 3


async def test_dirty_or_expired_rollups_are_no_difference(owner: asyncpg.Connection[Any]) -> None:
    plant = await filled(owner)
    await plant.write(owner, [(1, DAY_US + HOUR_US + 1, 4.0, 0)])
    assert (await verify(owner)).differences == []
    await refresh(owner)
    await owner.execute("DELETE FROM plant.samples_raw WHERE time < $1", DAY + _HOUR)
    assert (await verify(owner)).differences == []
    found = (await verify(owner, DAY + 24 * _HOUR)).differences
    assert found == []


@pytest.mark.slow
async def test_rollup_verify_command(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(owner)
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path))
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "reader.dsn").write_text(database.reader_dsn)
    run = CliRunner()
    result = await asyncio.to_thread(run.invoke, app, ["verify", "rollups"])
    assert (result.exit_code, "all rollups match their samples: 8 channels, 1 day\n" in result.output) == (0, True)
    await owner.execute("UPDATE plant.rollup_1h SET first = 42 WHERE channel_id = 1 AND bucket = $1", DAY + _HOUR)
    result = await asyncio.to_thread(
        run.invoke, app, ["verify", "rollups", "--from", "2026-03-09", "--to", "2026-03-10"]
    )
    assert result.exit_code == 1
    for word in ("samples_1h", "c1", "first", "42", "1 difference in"):
        assert word in result.output
