"""The files of the schema: what each makes, and for which edition of TimescaleDB."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from core.errors import DatabaseError
from core.paths import CHECKOUT
from ops.migration.editions import FOLDER, created, in_order, routines
from ops.migration.migrate import migrations, tables
from schema import FOLDER as SCHEMA


def test_sql_lines_have_at_most_120_characters() -> None:
    """As lines of Python, which ruff checks."""
    paths = [
        path for room in ("dashboards", "history", "schema", "tests") for path in (SCHEMA.parent / room).rglob("*.sql")
    ]
    assert len(paths) > 200
    lines = ((path, number, line) for path in paths for number, line in enumerate(path.read_text().splitlines(), 1))
    assert [f"{path}:{number}: {len(line)}" for path, number, line in lines if len(line) > 120] == []


def test_commits_and_editors_lint_the_same_sql() -> None:
    """By the hook of squawk, and by its own configuration."""
    patterns = tomllib.loads((CHECKOUT / ".squawk.toml").read_text())["excluded_paths"]
    [excluded] = re.findall(r"types: \[sql\]\n +exclude: (\S+)", (CHECKOUT / ".pre-commit-config.yaml").read_text())
    paths = [
        str(path.relative_to(CHECKOUT))
        for room in ("dashboards", "history", "schema")
        for path in (CHECKOUT / room).rglob("*.sql")
    ]
    assert [path for path in paths if any(fnmatch(path, p) for p in patterns) != bool(re.search(excluded, path))] == []
    assert [p for p in patterns if not any(fnmatch(path, p) for path in paths) and p != "tests/*"] == []


def test_both_editions_have_the_same_names() -> None:
    apache, community = (
        {name for name in routines(edition) if not name.startswith("_")} for edition in ("apache", "community")
    )
    assert apache == community
    assert {"samples", "samples_between", "storage", "compression"} <= apache


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/*.sql")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_schema_file_creates_the_object_of_its_name(path: Path) -> None:
    """So that what a file made can be dropped when it goes."""
    sql = path.read_text()
    name = path.stem.partition(".")[0]
    assert created(sql) in ({name}, set())
    assert len(re.findall(r"^CREATE (?!OR REPLACE )", sql, re.MULTILINE)) == 0, "it may be there already"
    assert "DROP" not in re.sub(r"'DROP|-- .*", "", sql)


def test_routine_is_defined_in_one_file_per_edition(tmp_path: Path) -> None:
    (tmp_path / "packing").mkdir()
    (tmp_path / "samples").mkdir()
    (tmp_path / "packing" / "storage.sql").write_text("SELECT 1;")
    (tmp_path / "samples" / "storage.apache.sql").write_text("SELECT 1;")
    assert routines("community", tmp_path) == {"storage": "SELECT 1;"}
    with pytest.raises(ValueError, match=r"samples/storage\.apache\.sql: another file also makes storage"):
        routines("apache", tmp_path)


def test_unknown_edition_suffix_is_refused(tmp_path: Path) -> None:
    (tmp_path / "packing").mkdir()
    (tmp_path / "packing" / "storage.comunity.sql").write_text("SELECT 1;")
    with pytest.raises(ValueError, match=r"packing/storage\.comunity\.sql: comunity is no edition"):
        routines("apache", tmp_path)


def test_referenced_routines_are_created_first() -> None:
    files = {
        "a": "CREATE OR REPLACE VIEW plant.a AS SELECT * FROM plant.b; -- not plant.c",
        "b": "CREATE TABLE plant.b (n int DEFAULT plant.d());",
        "c": "CREATE OR REPLACE FUNCTION plant.c() RETURNS text RETURN 'plant.a' || plant.a();",
        "d": "CREATE OR REPLACE FUNCTION plant.d() RETURNS int RETURN 1; -- it's not plant.b, nor 'plant.a'",
    }
    assert list(in_order(files)) == ["d", "b", "a", "c"]
    with pytest.raises(ValueError, match="cycle"):
        in_order({"a": "CREATE VIEW plant.a AS TABLE plant.b;", "b": "CREATE VIEW plant.b AS TABLE plant.a;"})


def test_every_table_is_created_once() -> None:
    names = [
        name
        for sql in tables()
        for name in re.findall(r"^CREATE TABLE (?:IF NOT EXISTS )?plant\.(\w+)", sql, re.MULTILINE)
    ]
    assert len(names) == len(set(names)) > 30
    assert {path.stem for path in (SCHEMA / "tables").glob("*.sql")} >= {"samples", "channel", "rollups"}


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["0200_a.sql", "0200_b.sql"], r"0200_b\.sql: another migration has this number"),
        (["0190_a.sql"], r"0190_a\.sql is not a valid migration name; legal: 0191_name\.sql, and higher numbers"),
        (["0200_a.sql", "201_b.sql"], r"201_b\.sql is not a valid migration name"),
    ],
)
def test_migrations_are_numbered(tmp_path: Path, names: list[str], complaint: str) -> None:
    (tmp_path / "migrations").mkdir()
    for name in names:
        (tmp_path / "migrations" / name).write_text("SELECT 1;")
    with pytest.raises(DatabaseError, match=complaint):
        migrations(tmp_path)
