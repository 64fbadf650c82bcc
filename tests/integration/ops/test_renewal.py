"""The routines and views in the database are what the files of schema/routines say, after each start."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.errors import DatabaseError
from ops.migration.editions import FOLDER, Edition, detect, routines
from ops.migration.migrate import migrate
from ops.migration.renewal import renew
from tests.database import Database

_BODY = "SELECT prosrc FROM pg_proc WHERE pronamespace = 'plant'::regnamespace AND proname = $1"
_RECORDED = "SELECT substr(key, 9) FROM plant.setting WHERE key LIKE 'routine/%'"
_PROCEDURE = "CREATE OR REPLACE PROCEDURE plant.fresh({}) LANGUAGE sql AS 'SELECT {}';"
_FUNCTION = "CREATE OR REPLACE FUNCTION plant.{}() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT {}; END;"
_TABLE = """
CREATE OR REPLACE FUNCTION plant.fresh(since timestamptz) RETURNS TABLE (n int) LANGUAGE sql STABLE AS $$ SELECT 1 $$;
COMMENT ON FUNCTION plant.fresh IS 'Its name says which one as long as there is one.';
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the files, to be changed."""
    return Path(shutil.copytree(FOLDER, tmp_path / "routines"))


async def renewed(owner: asyncpg.Connection[Any], folder: Path = FOLDER) -> list[str]:
    return await renew(owner, routines(await detect(owner), folder))


async def test_recorded_routines_equal_the_files(owner: asyncpg.Connection[Any]) -> None:
    edition: Edition = await owner.fetchval("SELECT value FROM plant.setting WHERE key = 'edition'")
    assert {row[0] for row in await owner.fetch(_RECORDED)} == set(routines(edition))
    assert await renewed(owner) == []


async def test_changed_and_new_files_are_run(database: Database, owner: asyncpg.Connection[Any], folder: Path) -> None:
    for changed in (folder / "packing").glob("compression.*.sql"):
        changed.write_text(changed.read_text().replace("USING ERRCODE", "USING /* changed */ ERRCODE"))
    (folder / "packing" / "fresh.sql").write_text(_PROCEDURE.format("", 1) + _PROCEDURE.format("n int", 2))
    assert set(await renewed(owner, folder)) == {"fresh", "compression"}
    assert await renewed(owner, folder) == []
    assert "/* changed */" in await owner.fetchval(_BODY, "compression")
    assert len(await owner.fetch(_BODY, "fresh")) == 2
    await migrate(database.owner_dsn)  # as the files of this version say
    assert await owner.fetch(_BODY, "fresh") == []
    assert "/* changed */" not in await owner.fetchval(_BODY, "compression")


async def test_dropped_routine_is_restored(database: Database, owner: asyncpg.Connection[Any]) -> None:
    await owner.execute("DROP FUNCTION plant.detail_text")
    await owner.execute("DROP VIEW plant.samples CASCADE")
    assert await migrate(database.owner_dsn) == []
    assert await owner.fetch("SELECT * FROM plant.samples_named") == []
    assert await owner.fetchval("SELECT plant.detail_text('{\"n\": 1}')") == "n 1"


async def test_failing_file_changes_nothing_and_is_named(owner: asyncpg.Connection[Any], folder: Path) -> None:
    (folder / "packing" / "fresh.sql").write_text(_PROCEDURE.format("", 1))
    (folder / "packing" / "rotten.sql").write_text("SELECT 1 / 0;")
    (folder / "charts" / "points_of.sql").unlink()
    with pytest.raises(asyncpg.DivisionByZeroError) as raised:
        await renewed(owner, folder)
    assert raised.value.__notes__ == ["in the file of rotten"]
    assert await owner.fetch(_BODY, "fresh") == []
    assert len(await owner.fetch(_BODY, "points_of")) == 1
    assert await renewed(owner) == []


async def test_removed_file_used_by_a_changed_one(owner: asyncpg.Connection[Any], folder: Path) -> None:
    (folder / "packing" / "fresh.sql").write_text(_FUNCTION.format("fresh", "1"))
    (folder / "packing" / "caller.sql").write_text(_FUNCTION.format("caller", "plant.fresh()"))
    assert await renewed(owner, folder) == ["fresh", "caller"], "what is called is there before its caller"
    (folder / "packing" / "fresh.sql").unlink()
    (folder / "packing" / "caller.sql").write_text(_FUNCTION.format("caller", "2"))
    assert await renewed(owner, folder) == ["fresh", "caller"]
    assert await owner.fetch(_BODY, "fresh") == []
    assert await owner.fetchval("SELECT plant.caller()") == 2


async def test_removed_files_that_used_each_other(owner: asyncpg.Connection[Any], folder: Path) -> None:
    files = [folder / "packing" / f"{name}.sql" for name in ("a_view", "fresh", "z_view")]
    files[0].write_text("CREATE OR REPLACE VIEW plant.a_view AS SELECT plant.fresh() AS n;")
    files[1].write_text(_FUNCTION.format("fresh", "1"))
    files[2].write_text("CREATE OR REPLACE VIEW plant.z_view AS SELECT v.n FROM plant.a_view AS v;")
    await renewed(owner, folder)
    assert await owner.fetchval("SELECT n FROM plant.z_view") == 1
    assert sorted(await renewed(owner)) == ["a_view", "fresh", "z_view"]
    assert await owner.fetchval("SELECT to_regclass('plant.a_view')") is None


@pytest.mark.parametrize(
    ("before", "after", "argument"),
    [
        ("(n int)", "(n text)", "now()"),
        ("(n int)", "(m int)", "now()"),
        ("(since timestamptz)", "(until timestamptz)", "now()"),
        ("(since timestamptz)", "(since timestamptz, more int DEFAULT 1)", "now()"),
        ("(since timestamptz)", "(since interval)", "INTERVAL '1 s'"),
    ],
)
@pytest.mark.parametrize("commented", [True, False])
async def test_changed_signature_replaces_the_former_one(
    owner: asyncpg.Connection[Any], folder: Path, before: str, after: str, argument: str, commented: bool
) -> None:
    """CREATE OR REPLACE alone refuses them, or makes another form beside the former one."""
    file = folder / "packing" / "fresh.sql"
    sql = _TABLE if commented else _TABLE.partition("COMMENT")[0]
    file.write_text(sql)
    await renewed(owner, folder)
    file.write_text(sql.replace(before, after))
    assert await renewed(owner, folder) == ["fresh"]
    assert len(await owner.fetch(_BODY, "fresh")) == 1
    assert len(await owner.fetch(f"SELECT * FROM plant.fresh({argument})")) == 1


async def test_a_function_becomes_a_procedure(owner: asyncpg.Connection[Any], folder: Path) -> None:
    file = folder / "packing" / "fresh.sql"
    file.write_text(_FUNCTION.format("fresh", 1))
    await renewed(owner, folder)
    file.write_text(_PROCEDURE.format("", 2))
    assert await renewed(owner, folder) == ["fresh"]
    assert len(await owner.fetch(_BODY, "fresh")) == 1


async def test_a_view_becomes_a_function_and_a_view_again(owner: asyncpg.Connection[Any], folder: Path) -> None:
    file = folder / "packing" / "fresh.sql"
    view = "CREATE OR REPLACE VIEW plant.fresh AS SELECT 1 AS n;"
    for sql, views, functions in ((view, 1, 0), (_FUNCTION.format("fresh", 1), 0, 1), (view, 1, 0)):
        file.write_text(sql)
        assert await renewed(owner, folder) == ["fresh"]
        assert len(await owner.fetch("SELECT FROM pg_views WHERE viewname = 'fresh'")) == views
        assert len(await owner.fetch(_BODY, "fresh")) == functions


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("RETURNS int", "RETURNS numeric"),
        ("fresh()", "fresh(more int DEFAULT 1)"),
        ("fresh()", "fresh(VARIADIC more int[] DEFAULT '{}')"),
    ],
)
async def test_dependents_of_a_changed_routine_are_recreated(
    owner: asyncpg.Connection[Any], folder: Path, before: str, after: str
) -> None:
    """Files that did not change, too: of the routine's callers, and of those in turn."""
    fresh = _FUNCTION.format("fresh", "1")
    files = {
        "fresh": fresh,
        "a_view": "CREATE OR REPLACE VIEW plant.a_view AS SELECT plant.fresh() AS n;",
        "rows": "CREATE OR REPLACE FUNCTION plant.rows() RETURNS SETOF plant.a_view LANGUAGE sql "
        "AS 'TABLE plant.a_view';",
        "caller": _FUNCTION.format("caller", "(SELECT max(n)::int FROM plant.rows())"),
    }
    for name, sql in files.items():
        (folder / "packing" / f"{name}.sql").write_text(sql)
    await renewed(owner, folder)
    (folder / "packing" / "fresh.sql").write_text(fresh.replace(before, after).replace("SELECT 1", "SELECT 2"))
    assert set(await renewed(owner, folder)) == set(files)
    assert len(await owner.fetch(_BODY, "fresh")) == 1
    assert await owner.fetchval("SELECT plant.caller()") == 2
    assert await renewed(owner, folder) == []


async def test_triggers_are_dropped_with_their_function(owner: asyncpg.Connection[Any], folder: Path) -> None:
    (folder / "packing" / "fresh.sql").write_text("""
CREATE OR REPLACE FUNCTION plant.fresh() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE OR REPLACE TRIGGER fresh AFTER DELETE ON plant.source EXECUTE FUNCTION plant.fresh();
""")
    await renewed(owner, folder)
    assert await owner.fetchval("SELECT count(*) FROM pg_trigger WHERE tgname = 'fresh'") == 1
    assert await renewed(owner) == ["fresh"]
    assert await owner.fetchval("SELECT count(*) FROM pg_trigger WHERE tgname = 'fresh'") == 0


async def test_foreign_dependents_of_a_changed_view_are_named(owner: asyncpg.Connection[Any], folder: Path) -> None:
    file = folder / "packing" / "fresh.sql"
    file.write_text("CREATE OR REPLACE VIEW plant.fresh AS SELECT 1 AS n, 2 AS m;")
    await renewed(owner, folder)
    await owner.execute("CREATE VIEW public.report AS SELECT * FROM plant.fresh")
    file.write_text("CREATE OR REPLACE VIEW plant.fresh AS SELECT 1 AS n;")
    with pytest.raises(DatabaseError, match=r"plant\.fresh can't be .*view report"):
        await renewed(owner, folder)
    file.write_text("CREATE OR REPLACE VIEW plant.fresh AS SELECT 1 AS n, 2 AS m, 3 AS more;")
    assert await renewed(owner, folder) == ["fresh"], "a column more is no other one"
    assert await owner.fetchval("SELECT n FROM public.report") == 1


async def test_view_of_a_user_on_former_coverage_is_named(owner: asyncpg.Connection[Any]) -> None:
    """Its days were times once: what a user built on it can't stay, and the upgrade says what that is."""
    await owner.execute("DROP VIEW plant.coverage")
    await owner.execute("CREATE VIEW plant.coverage AS SELECT now() AS day, * FROM plant.coverage_of(current_date)")
    await owner.execute("DELETE FROM plant.setting WHERE key = 'routine/coverage'")
    await owner.execute("CREATE VIEW public.monthly AS SELECT date_trunc('month', day) AS month FROM plant.coverage")
    with pytest.raises(DatabaseError) as raised:
        await renewed(owner)
    assert str(raised.value) == (
        "plant.coverage can't be dropped or changed: view monthly depends on view plant.coverage. "
        "Drop objects that are not plantlog's first, and create them again afterwards"
    )
    await owner.execute("DROP VIEW public.monthly")
    await renewed(owner)
    assert await owner.fetchval("SELECT pg_typeof(day)::text FROM plant.coverage LIMIT 1") in ("date", None)


async def test_foreign_grants_are_kept(owner: asyncpg.Connection[Any], folder: Path) -> None:
    await owner.execute("GRANT UPDATE ON plant.samples TO plant_reader")
    for file in (folder / "samples").glob("samples.*sql"):
        file.write_text(file.read_text() + "-- changed\n")
    assert await renewed(owner, folder) == ["samples"]
    assert await owner.fetchval("SELECT has_table_privilege('plant_reader', 'plant.samples', 'UPDATE')")
