"""The functions in the database are what the files say, and are planned as one query."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from schema.forensics import FOLDER, bring, questions, read
from schema.migrate import migrate
from tests.database import Database
from tests.integration.forensics.recorded import Recorded

_FILES = sorted(FOLDER.glob("*.sql"))
_SIGNATURE = """
SELECT p.proargnames[:p.pronargs] AS names, p.proargnames[p.pronargs + 1:] AS columns,
       (SELECT array_agg(format_type(t, NULL) ORDER BY n)
        FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n)) AS types,
       p.pronargs - p.pronargdefaults AS required
FROM pg_proc AS p WHERE p.pronamespace = 'plant'::regnamespace AND p.proname = $1
"""
_WORDS = {"timestamp with time zone": "timestamptz", "integer": "int", "double precision": "float8"}
_FIRST = """-- asked: a question of this test
--
-- Parameters
--   since  timestamptz  from this moment on
CREATE OR REPLACE FUNCTION plant.asked(since timestamptz) RETURNS TABLE (n int) LANGUAGE sql STABLE AS $$ SELECT 1 $$;
"""


async def test_every_header_says_what_its_function_takes(database: Database) -> None:
    connection = await asyncpg.connect(database.reader_dsn)
    for path in _FILES:
        question = read(path)
        [row] = await connection.fetch(_SIGNATURE, question.name)
        assert [p.name for p in question.parameters] == row["names"], path.name
        assert [p.type for p in question.parameters] == [_WORDS.get(t, t) for t in row["types"]], path.name
        if path.stem in questions():
            required = [p.name for p in question.parameters if p.required]
            assert required == row["names"][: row["required"]], path.name
        assert set(question.shown) <= {*row["columns"]}, path.name
    await connection.close()


_PACKED = "SELECT k.chunk_name FROM timescaledb_information.chunks AS k WHERE k.hypertable_name = 'samples_packed'"


@pytest.mark.parametrize("name", sorted(questions()))
async def test_its_example_runs_and_is_planned_with_its_interval(database: Database, name: str) -> None:
    """Inlined: else the planner would know neither the interval, and look into every chunk, nor how many rows come."""
    question = questions()[name]
    [example] = re.findall(r"^-- Example: (.+);$", question.sql, re.MULTILINE)
    assert "-- Cost: " in question.sql
    async with Recorded(database) as recorded:
        for days in (-10, 0, 10):
            await recorded.samples("unit/level", [86400 * days], [1.0])
    connection = await asyncpg.connect(database.reader_dsn)
    assert len(await _chunks(connection, example)) == 1
    owner = await asyncpg.connect(database.owner_dsn)
    await owner.execute("CALL plant.pack_before('2030-01-01')")
    await owner.close()
    packed = {row[0] for row in await connection.fetch(_PACKED)}
    assert len(packed) == 3
    assert len(packed & await _chunks(connection, example)) == 1
    await connection.close()


async def _chunks(connection: asyncpg.Connection[Any], example: str) -> set[str]:
    """Those that the plan reads."""
    await connection.fetch(example)
    plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {example}"))
    others = re.sub(r"Function Scan on (generate_series|unnest|regexp|_packed_days)\w*", "", plan)
    assert "Function Scan on" not in others, plan
    return set(re.findall(r" on (_hyper_\d+_\d+_chunk)", plan))


async def test_a_changed_file_is_run_again_and_a_file_that_is_gone_leaves_nothing(
    database: Database, tmp_path: Path
) -> None:
    connection = await asyncpg.connect(database.owner_dsn)
    for path in _FILES:
        (tmp_path / path.name).write_text(path.read_text())
    assert await bring(connection, tmp_path) == []
    file = tmp_path / "asked.sql"
    file.write_text(_FIRST)
    assert await bring(connection, tmp_path) == ["asked"]
    assert await connection.fetchval("SELECT n FROM plant.asked(now())") == 1
    # Other columns: CREATE OR REPLACE alone would refuse them.
    file.write_text(_FIRST.replace("(n int)", "(n text)").replace("SELECT 1", "SELECT 'two'"))
    assert await bring(connection, tmp_path) == ["asked"]
    assert await connection.fetchval("SELECT n FROM plant.asked(now())") == "two"
    assert await bring(connection, tmp_path) == []
    file.unlink()
    assert await bring(connection, tmp_path) == ["asked"]
    assert await connection.fetchval("SELECT count(*) FROM pg_proc WHERE proname = 'asked'") == 0
    await connection.close()


async def test_a_file_that_fails_changes_nothing(database: Database, tmp_path: Path) -> None:
    connection = await asyncpg.connect(database.owner_dsn)
    for path in _FILES:
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "asked.sql").write_text(_FIRST.replace("SELECT 1", "SELECT nothing"))
    (tmp_path / "timeline.sql").unlink()
    with pytest.raises(asyncpg.UndefinedColumnError):
        await bring(connection, tmp_path)
    assert await connection.fetchval("SELECT count(*) FROM pg_proc WHERE proname = 'timeline'") == 1
    await connection.close()


async def test_migrate_brings_what_was_lost(database: Database) -> None:
    connection = await asyncpg.connect(database.owner_dsn)
    await connection.execute("UPDATE plant.setting SET value = 'older' WHERE key = 'forensics/timeline'")
    await connection.execute("DROP FUNCTION plant.timeline")
    assert await migrate(database.owner_dsn) == []
    assert await connection.fetch("SELECT * FROM plant.timeline(now(), now())") == []
    await connection.close()


def test_a_file_without_the_others_header_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "asked.sql"
    file.write_text("SELECT 1;")
    with pytest.raises(ValueError, match=r"asked\.sql does not begin with '-- asked: purpose'"):
        read(file)
