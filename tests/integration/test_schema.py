"""Migrations and roles, on a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from ingest.errors import DatabaseError
from ops.postgres.bootstrap import maintenance_dsn
from schema.migrate import FOLDER, migrate, migrations
from schema.queries import load
from tests.database import Database, drop

_CATALOG = """
SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull AS item
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relnamespace = 'plant'::regnamespace
UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'plant'
UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
          WHERE connamespace = 'plant'::regnamespace
UNION ALL SELECT proname || prosrc FROM pg_proc WHERE pronamespace = 'plant'::regnamespace
UNION ALL SELECT relname || coalesce(relacl::text, '') FROM pg_class WHERE relnamespace = 'plant'::regnamespace
ORDER BY 1
"""


async def catalog(dsn: str) -> list[str]:
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch(_CATALOG)
    await connection.close()
    return [row["item"] for row in rows]


async def create(dsn: str) -> None:
    connection = await asyncpg.connect(maintenance_dsn(dsn))
    await connection.execute(await connection.fetchval(load("migrate")["create_database"], dsn.rpartition("/")[2]))
    await connection.close()


async def test_from_every_earlier_version_as_from_nothing(
    empty_database: str, database: Database, tmp_path: Path
) -> None:
    """``database`` was built in one go; each step here stops at a version first."""
    for upto in range(1, len(migrations())):
        folder = tmp_path / str(upto)
        folder.mkdir()
        for file in sorted(FOLDER.glob("*.sql"))[:upto]:
            (folder / file.name).write_text(file.read_text())
        name = empty_database + f"_{upto}"
        await create(name)
        assert await migrate(name, folder) == list(range(1, upto + 1))
        assert await migrate(name) == list(range(upto + 1, len(migrations()) + 1))
        assert await catalog(name) == await catalog(database.owner_dsn)
        await drop(name, name.rpartition("/")[2])


async def test_two_at_once_apply_each_version_once(empty_database: str) -> None:
    await create(empty_database)
    applied = await asyncio.gather(*(migrate(empty_database) for _ in range(4)))
    assert sorted(version for versions in applied for version in versions) == [m.version for m in migrations()]


async def test_a_newer_schema_says_what_to_do(database: Database) -> None:
    connection = await asyncpg.connect(database.owner_dsn)
    await connection.execute(load("migrate")["record"], 999, "future", "0")
    await connection.close()
    with pytest.raises(DatabaseError, match=r"schema version 999 \(future\).*upgrade this one"):
        await migrate(database.owner_dsn)


async def test_a_changed_file_is_named(database: Database, tmp_path: Path) -> None:
    for file in FOLDER.glob("*.sql"):
        (tmp_path / file.name).write_text(file.read_text() + "-- changed\n")
    with pytest.raises(DatabaseError, match=r"0001_plant\.sql is not the file that was applied"):
        await migrate(database.owner_dsn, tmp_path)


async def test_a_migration_that_fails_leaves_nothing(empty_database: str, tmp_path: Path) -> None:
    await create(empty_database)
    (tmp_path / "0001_half.sql").write_text("CREATE TABLE plant.half (); SELECT 1 / 0;")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(empty_database, tmp_path)
    connection = await asyncpg.connect(empty_database)
    assert await connection.fetchval("SELECT to_regclass('plant.half')") is None
    assert await connection.fetch(load("migrate")["applied"]) == []
    await connection.close()


async def test_edition_and_chunks(database: Database) -> None:
    connection = await asyncpg.connect(database.reader_dsn)
    edition = await connection.fetchval("SELECT value FROM plant.setting WHERE key = 'edition'")
    licence = await connection.fetchval("SELECT current_setting('timescaledb.license')")
    assert edition == {"apache": "apache", "timescale": "community"}[licence]
    interval = await connection.fetchval(
        "SELECT time_interval::text FROM timescaledb_information.dimensions WHERE hypertable_name = 'samples_raw'"
    )
    assert interval == "1 day"
    await connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO plant.samples_raw VALUES (now(), 1, 1, 0)",
        "DELETE FROM plant.event",
        "CREATE TABLE plant.mine ()",
    ],
)
async def test_the_reader_only_reads(database: Database, statement: str) -> None:
    connection = await asyncpg.connect(database.reader_dsn)
    assert await connection.fetchval("SELECT count(*) FROM plant.samples") == 0
    with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError)):
        await connection.execute(statement)
    await connection.execute("SET default_transaction_read_only = off")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
    await connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM plant.samples_raw",
        "UPDATE plant.samples_raw SET value = 0",
        "UPDATE plant.source SET name = 'x'",
        "DROP TABLE plant.event",
        "TRUNCATE plant.gap",
    ],
)
async def test_ingest_can_only_add(database: Database, statement: str) -> None:
    connection = await asyncpg.connect(database.ingest_dsn)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
    await connection.close()


async def test_quality_and_hex(database: Database) -> None:
    connection = await asyncpg.connect(database.reader_dsn)
    rows = await connection.fetch(
        "SELECT plant.quality(s) AS q, plant.status_hex(s) AS h"
        " FROM unnest(ARRAY[0, x'40920000'::int, x'80050000'::int]) s"
    )
    assert [tuple(row) for row in rows] == [
        ("good", "0x00000000"),
        ("uncertain", "0x40920000"),
        ("bad", "0x80050000"),
    ]
    await connection.close()
