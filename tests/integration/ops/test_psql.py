"""psql of a user who is no engineer: SQL alone, as the reader, whatever it contains."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import in_a_process
from tests.database import Database
from tests.states import claimed
from tests.users import add_users, hash_quickly, recorded_actions


@pytest.fixture
def state(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with a database and a viewer, who comes by sudo."""
    hash_quickly(monkeypatch)
    folder = claimed(tmp_path / "state", reader=database.reader_dsn)
    add_users(folder.root, anna="engineer", vera="viewer")
    monkeypatch.setenv("SUDO_USER", "vera")
    monkeypatch.setenv("PSQLRC", str(tmp_path / "psqlrc"))
    monkeypatch.setenv("PSQL_PAGER", f"tee {tmp_path}/paged")
    (tmp_path / "psqlrc").write_text(f"\\! touch {tmp_path}/started\n")
    return folder.root


def names(folder: Path) -> list[str]:
    """The files and folders in a folder."""
    return sorted(path.name for path in folder.iterdir())


async def test_sql_is_answered_and_recorded(state: Path) -> None:
    query = "SELECT current_user AS who, 1 + 1 AS two"
    done = await in_a_process(state, "psql", "-c", query)
    assert (done.code, done.err) == (0, "")
    assert "plantlog_reader |   2" in done.out
    texts = [event.text for event in recorded_actions(state)]
    assert texts == [f"vera: psql -c arguments=-c {query}: begun", f"vera: psql -c arguments=-c {query}"]


@pytest.mark.parametrize(
    "query",
    [
        " \\! touch {0}/made",
        "SELECT 1\n\\! touch {0}/made",
        "SELECT 1 \\g |touch {0}/made",
        "SELECT 1 \\o {0}/made",
        "SELECT 1 \\gx {0}/made",
        "SELECT :`touch {0}/made`",
        "COPY (SELECT 1) TO '{0}/made'",
        "COPY (SELECT 1) TO PROGRAM 'touch {0}/made'",
        "DELETE FROM plant.event",
        "SELECT pg_read_file('/etc/hostname')",
    ],
)
async def test_nothing_but_sql_is_done(state: Path, tmp_path: Path, query: str) -> None:
    done = await in_a_process(state, "psql", "-c", query.format(tmp_path))
    assert (done.code, done.out) == (1, ""), done
    assert "ERROR:" in done.err
    assert names(tmp_path) == ["psqlrc", "state"]
    assert [event.detail["outcome"] for event in recorded_actions(state)] == ["begun", "failed"]
