"""Statements of SQL: the names that they take, whatever comments hide, and what ends them."""

from __future__ import annotations

import pytest

from history.sql.statements import body, named


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("-- pumps of the hall (über 5 kW)\nCREATE /* TEMP VIEW v */ TEMP VIEW samples AS SELECT 0;", "samples"),
        ('create or replace local temp view temp.main."Samples" AS SELECT 1', "Samples"),
        ("CREATE RECURSIVE VIEW samples(n) AS SELECT 1", "samples"),
        ("CREATE TABLE IF NOT EXISTS gap(n INT)", "gap"),
        ("ALTER VIEW temp.v RENAME TO samples;", "samples"),
        ("ALTER TABLE v RENAME COLUMN n TO samples", None),
        ("CREATE MACRO samples(n) AS TABLE FROM range(n)", None),
        ("SELECT 'CREATE VIEW samples AS'", None),
        ("SELECT 1", None),
    ],
)
def test_name_that_a_statement_takes(statement: str, name: str | None) -> None:
    assert named(statement) == name


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("SELECT 'ü;' AS a; -- done; all of it", "SELECT 'ü;' AS a"),
        ("SELECT '--;'", "SELECT '--;'"),
        ("SELECT 1 -- one;", "SELECT 1 -- one;"),
    ],
)
def test_body_has_no_semicolon_behind_it(statement: str, text: str) -> None:
    assert body(statement) == text
