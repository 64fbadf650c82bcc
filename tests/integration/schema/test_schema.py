"""Migrations and roles, on a real server."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import asyncpg
import pytest

from core.errors import DatabaseError
from ops.migration.migrate import BASELINE, is_current, migrate, migrations
from ops.postgres.bootstrap import maintenance_dsn
from schema import FOLDER
from schema.queries import load
from tests.database import Database, connected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the schema's files, to be changed."""
    return Path(shutil.copytree(FOLDER, tmp_path / "schema", ignore=shutil.ignore_patterns("*.py*", "queries")))


def added_migration(folder: Path, sql: str) -> Path:
    """One more file, with the next number."""
    file = folder / "migrations" / f"{migrations()[-1].version + 1:04d}_one_more.sql"
    file.parent.mkdir(exist_ok=True)
    file.write_text(sql)
    return file


async def create(dsn: str) -> None:
    async with connected(maintenance_dsn(dsn)) as connection:
        await connection.execute(
            await connection.fetchval(load("migrate")["format_create_database"], dsn.rpartition("/")[2])
        )


async def test_concurrent_migrations_apply_each_version_once(empty_database: str) -> None:
    await create(empty_database)
    applied = await asyncio.gather(*(migrate(empty_database) for _ in range(4)))
    assert sorted(version for versions in applied for version in versions) == [m.version for m in migrations()]


async def test_a_newer_schema_says_what_to_do(database: Database, owner: asyncpg.Connection) -> None:
    assert await is_current(owner)
    await owner.execute(load("migrate")["insert_migration"], 999, "future", "0")
    for refusing in (is_current(owner), migrate(database.owner_dsn)):
        with pytest.raises(DatabaseError, match=r"schema version 999 \(future\).*upgrade this one"):
            await refusing


async def test_changed_migration_file_is_named(database: Database, folder: Path) -> None:
    file = added_migration(folder, "CREATE TABLE plant.more ();")
    await migrate(database.owner_dsn, folder)
    file.write_text(file.read_text() + "-- changed\n")
    with pytest.raises(DatabaseError, match=rf"{re.escape(file.name)} is not the file that was applied"):
        await migrate(database.owner_dsn, folder)


async def test_failed_creation_leaves_nothing(empty_database: str, folder: Path) -> None:
    await create(empty_database)
    (folder / "tables" / "half.sql").write_text("CREATE TABLE plant.half (); SELECT 1 / 0;")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(empty_database, folder)
    async with connected(empty_database) as connection:
        assert await connection.fetchval("SELECT to_regnamespace('plant')") is None
    assert await migrate(empty_database) == [m.version for m in migrations()]


async def test_a_migration_that_fails_leaves_nothing(
    database: Database, owner: asyncpg.Connection, folder: Path
) -> None:
    file = added_migration(folder, "CREATE TABLE plant.half (); SELECT 1 / 0;")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(database.owner_dsn, folder)
    assert await owner.fetchval("SELECT to_regclass('plant.half')") is None
    file.write_text("CREATE TABLE plant.half ();")
    assert await migrate(database.owner_dsn, folder) == [int(file.name[:4])]
    assert await owner.fetchval("SELECT to_regclass('plant.half')") == "plant.half"


async def test_a_schema_from_before_1_0_says_what_to_do(database: Database, owner: asyncpg.Connection) -> None:
    await owner.execute("DELETE FROM plant.migration")
    await owner.execute(load("migrate")["insert_migration"], 113, "removed", "0")
    with pytest.raises(DatabaseError, match=r"schema version 113, from before plantlog 1\.0, .* run `up` of the last"):
        await migrate(database.owner_dsn)


async def test_a_schema_that_former_migrations_brought_to_1_0_is_that_of_1_0(
    database: Database, owner: asyncpg.Connection
) -> None:
    await owner.execute("DELETE FROM plant.migration WHERE version <= $1", BASELINE)
    for version, name in ((100, "version_1_0"), (BASELINE, "notifies_from")):
        await owner.execute(load("migrate")["insert_migration"], version, name, "0")
    assert await migrate(database.owner_dsn) == []
    assert await is_current(owner)


async def test_edition_and_chunks(reader: asyncpg.Connection) -> None:
    edition = await reader.fetchval("SELECT value FROM plant.setting WHERE key = 'edition'")
    licence = await reader.fetchval("SELECT current_setting('timescaledb.license')")
    assert edition == {"apache": "apache", "timescale": "community"}[licence]
    interval = await reader.fetchval(
        "SELECT time_interval::text FROM timescaledb_information.dimensions WHERE hypertable_name = 'samples_raw'"
    )
    assert interval == "1 day"


async def test_quality_and_hex(reader: asyncpg.Connection) -> None:
    rows = await reader.fetch(
        "SELECT plant.quality(s) AS q, plant.status_hex(s) AS h"
        " FROM unnest(ARRAY[0, x'40920000'::int, x'80050000'::int]) s"
    )
    assert [tuple(row) for row in rows] == [
        ("good", "0x00000000"),
        ("uncertain", "0x40920000"),
        ("bad", "0x80050000"),
    ]
