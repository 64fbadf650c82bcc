"""The headers of the questions say what the functions in the database are, which are planned as one query."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from schema.forensics import FOLDER, duckdb_forms, questions, read, read_duckdb
from tests.database import Database
from tests.integration.forensics.recording import Recording

_FILES = sorted(FOLDER.glob("*.sql"))
_SIGNATURE = """
SELECT p.proargnames[:p.pronargs] AS names, p.proargnames[p.pronargs + 1:] AS columns,
       (SELECT array_agg(format_type(t, NULL) ORDER BY n)
        FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n)) AS types,
       p.pronargs - p.pronargdefaults AS required
FROM pg_proc AS p WHERE p.pronamespace = 'plant'::regnamespace AND p.proname = $1
"""
_WORDS = {"timestamp with time zone": "timestamptz", "integer": "int", "double precision": "float8"}


async def test_question_header_equals_the_function_signature(reader: asyncpg.Connection) -> None:
    for path in _FILES:
        question = read(path)
        [row] = await reader.fetch(_SIGNATURE, question.name)
        assert [p.name for p in question.parameters] == row["names"], path.name
        assert [p.type for p in question.parameters] == [_WORDS.get(t, t) for t in row["types"]], path.name
        if question.name in questions():
            required = [p.name for p in question.parameters if p.required]
            assert required == row["names"][: row["required"]], path.name
        assert set(question.summary_columns) <= {*row["columns"]}, path.name


_PACKED = "SELECT k.chunk_name FROM timescaledb_information.chunks AS k WHERE k.hypertable_name = 'samples_packed'"


@pytest.mark.parametrize("name", sorted(questions()))
async def test_question_example_runs_and_reads_only_its_interval(
    database: Database, owner: asyncpg.Connection, reader: asyncpg.Connection, tmp_path: Path, name: str
) -> None:
    """Inlined: else the planner would know neither the interval, and look into every chunk, nor how many rows come."""
    question = questions()[name]
    [example] = re.findall(r"^-- Example: (.+);$", question.sql, re.MULTILINE)
    assert "-- Cost: " in question.sql
    async with Recording(database, tmp_path / "recorded") as recorded:
        for days in (-10, 0, 10):
            await recorded.samples("unit/level", [86400 * days], [1.0])
    assert len(await _chunks(reader, example)) == 1
    await owner.execute("CALL plant.pack_before('2030-01-01')")
    packed = {row[0] for row in await reader.fetch(_PACKED)}
    assert len(packed) == 3
    assert len(packed & await _chunks(reader, example)) == 1


async def _chunks(connection: asyncpg.Connection[Any], example: str) -> set[str]:
    """Those that the plan reads."""
    await connection.fetch(example)
    plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {example}"))
    others = re.sub(r"Function Scan on (generate_series|unnest|regexp|_packed_days)\w*", "", plan)
    assert "Function Scan on" not in others, plan
    return set(re.findall(r" on (_hyper_\d+_\d+_chunk)", plan))


def test_question_file_without_header_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "asked.sql"
    file.write_text("SELECT 1;")
    with pytest.raises(ValueError, match=r"asked\.sql must begin with '-- asked: purpose'"):
        read(file)


_DEFAULTS = """
SELECT a.name, pg_get_function_arg_default(p.oid, a.place::int) AS value
FROM pg_proc AS p CROSS JOIN unnest(p.proargnames[:p.pronargs]) WITH ORDINALITY AS a (name, place)
WHERE p.pronamespace = 'plant'::regnamespace AND p.proname = $1
"""


@pytest.mark.parametrize("name", sorted(duckdb_forms()))
async def test_duckdb_form_has_the_parameters_of_the_function(reader: asyncpg.Connection, name: str) -> None:
    """The same names and types in the same order, with the same defaults."""
    sql, types = duckdb_forms()[name].sql, {one.name: one.type for one in questions()[name].parameters}
    found = re.findall(r"^CREATE MACRO \w+\(([^;]*?)\) AS TABLE$", sql, re.MULTILINE)
    [inner, outer] = (" ".join(one.split()) for one in found)
    assert inner.split(", ") == [*types]
    defaults = dict(one.partition(" := ")[::2] for one in outer.split(", "))
    rows = await reader.fetch(_DEFAULTS, name)
    assert [*defaults] == [row["name"] for row in rows]
    for row in rows:
        assert bool(defaults[row["name"]]) == bool(row["value"]), row["name"]
        if row["value"]:
            kind = types[row["name"]]
            same = f"SELECT ({defaults[row['name']]})::{kind} IS NOT DISTINCT FROM ({row['value']})::{kind}"
            assert await reader.fetchval(same), row["name"]
    [call] = re.findall(rf"FROM {name}_of\(([^)]*)\)", sql)
    assert [one.strip().lower().replace("double", "float8") for one in call.split(",")] == [
        f"{one}::{kind}" for one, kind in types.items()
    ]


def test_duckdb_form_without_portions_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "asked.sql"
    file.write_text("CREATE MACRO asked(since) AS TABLE SELECT 1;")
    with pytest.raises(ValueError, match=r"duckdb/asked\.sql must contain '-- Portions: ' and end with a macro asked"):
        read_duckdb(file)
