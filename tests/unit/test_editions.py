"""The files of the two editions: one set of names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schema.editions import FOLDER, files


def test_both_make_the_same_names() -> None:
    apache, community = (
        {name for name in files(edition) if not name.startswith("_")} for edition in ("apache", "community")
    )
    assert apache == community
    assert {"compress_before", "pack_before", "samples", "samples_between", "storage", "compression"} <= apache


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/*.sql")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_makes_what_it_is_named_for(path: Path) -> None:
    """So that what a file made can be dropped when it goes."""
    sql = path.read_text()
    made = set(re.findall(r"^CREATE OR REPLACE (?:FUNCTION|PROCEDURE|VIEW) plant\.(\w+)", sql, re.MULTILINE))
    assert made in ({path.stem}, set())
    assert "DROP" not in re.sub(r"'DROP|-- .*", "", sql)


def test_a_name_that_stands_twice(tmp_path: Path) -> None:
    for folder in ("common", "apache"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "storage.sql").write_text("SELECT 1;")
    with pytest.raises(ValueError, match=r"apache/storage\.sql is in common too"):
        files("apache", tmp_path)
