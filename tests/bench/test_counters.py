"""The counters' benchmark: all three ways count, exactly, and a table that holds something else ends it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import asyncpg
import pytest

from core.errors import OperationError
from lab.bench.copy_speed import BenchDatabase
from lab.bench.counters import Method, measure
from lab.bench.increments import BATCH
from tests.database import Database

_WRONG = """
CREATE FUNCTION plant.wrong() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := NEW.n + 1; RETURN NEW; END';
CREATE TRIGGER wrong BEFORE INSERT ON plant.event_count_1m FOR EACH ROW EXECUTE FUNCTION plant.wrong();
"""


def bench(database: Database, folder: Path) -> BenchDatabase:
    return BenchDatabase(database.owner_dsn, database.ingest_dsn, (), {}, folder)


async def test_every_counting_method_is_exact(database: Database, tmp_path: Path) -> None:
    lines: list[str] = []
    ways = await measure(bench(database, tmp_path), 40, 2, 0.2, 1, lines.append)
    assert [way.way for way in ways] == list(get_args(Method))
    assert all(way.increments >= BATCH and way.increments % BATCH == 0 for way in ways)
    assert [way.ratio for way in ways if way.way == "one upsert per increment"] == [1.0]
    assert len(lines) == len(ways)


async def test_missing_increments_are_reported(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    await owner.execute(_WRONG)
    with pytest.raises(OperationError, match=r"spool \+ writer: \d+ increments were sent, the table holds \d+"):
        await measure(bench(database, tmp_path), 40, 1, 0.1, 1, lambda line: None)
