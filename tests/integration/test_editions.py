"""What the files of schema/editions make is in the database as they say it, after each start."""

from __future__ import annotations

import shutil
from pathlib import Path

import asyncpg
import pytest

from schema.editions import FOLDER, bring, files
from schema.migrate import migrate
from tests.database import Database

_BODY = "SELECT prosrc FROM pg_proc WHERE pronamespace = 'plant'::regnamespace AND proname = $1"
_RECORDED = "SELECT substr(key, 9) FROM plant.setting WHERE key LIKE 'edition/%'"


@pytest.fixture
async def owner(database: Database):  # type: ignore[no-untyped-def]
    connection = await asyncpg.connect(database.owner_dsn)
    yield connection
    await connection.close()


async def test_what_is_recorded_is_what_the_files_say(database: Database, owner: asyncpg.Connection) -> None:
    edition = await owner.fetchval("SELECT value FROM plant.setting WHERE key = 'edition'")
    assert {row[0] for row in await owner.fetch(_RECORDED)} == set(files(edition))
    assert await bring(owner) == []


async def test_a_changed_file_is_run_again_and_a_new_one_too(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    folder = tmp_path / "editions"
    shutil.copytree(FOLDER, folder)
    for edition in ("apache", "community"):
        changed = folder / edition / "compression.sql"
        changed.write_text(changed.read_text().replace("USING ERRCODE", "USING /* changed */ ERRCODE"))
    (folder / "common" / "fresh.sql").write_text(
        "CREATE OR REPLACE PROCEDURE plant.fresh() LANGUAGE sql AS 'SELECT 1';"
        "CREATE OR REPLACE PROCEDURE plant.fresh(n int) LANGUAGE sql AS 'SELECT 2';"
    )
    assert await bring(owner, folder) == ["fresh", "compression"]
    assert await bring(owner, folder) == []
    assert "/* changed */" in await owner.fetchval(_BODY, "compression")
    assert len(await owner.fetch(_BODY, "fresh")) == 2
    await migrate(database.owner_dsn)  # as the files of this version say
    assert await owner.fetch(_BODY, "fresh") == []
    assert "/* changed */" not in await owner.fetchval(_BODY, "compression")


async def test_a_file_that_fails_changes_nothing(owner: asyncpg.Connection, tmp_path: Path) -> None:
    folder = tmp_path / "editions"
    shutil.copytree(FOLDER, folder)
    (folder / "common" / "fresh.sql").write_text("CREATE OR REPLACE PROCEDURE plant.fresh() LANGUAGE sql AS 'SELECT 1'")
    (folder / "common" / "rotten.sql").write_text("SELECT 1 / 0;")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await bring(owner, folder)
    assert await owner.fetch(_BODY, "fresh") == []
    assert await bring(owner) == []


async def test_a_file_that_is_gone_may_have_been_used_by_one_that_changes(
    owner: asyncpg.Connection, tmp_path: Path
) -> None:
    folder = tmp_path / "editions"
    shutil.copytree(FOLDER, folder)
    made = "CREATE OR REPLACE FUNCTION plant.{}() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT {}; END;"
    (folder / "common" / "fresh.sql").write_text(made.format("fresh", "1"))
    (folder / "common" / "user_of.sql").write_text(made.format("user_of", "plant.fresh()"))
    assert await bring(owner, folder) == ["fresh", "user_of"]
    (folder / "common" / "fresh.sql").unlink()
    (folder / "common" / "user_of.sql").write_text(made.format("user_of", "2"))
    assert await bring(owner, folder) == ["fresh", "user_of"]
    assert await owner.fetch(_BODY, "fresh") == []
    assert await owner.fetchval("SELECT plant.user_of()") == 2
