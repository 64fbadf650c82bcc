"""No link is followed where others can write: among temporary files, in archives and beside files that are made."""

from __future__ import annotations

import os
import tempfile
from datetime import date
from pathlib import Path
from uuid import UUID

import pytest

from core.errors import OperationError
from core.files import atomic_path, write_atomically
from core.paths import temporary_folder
from history.archive.location import Location
from history.archive.manifest import DayFolder, remove_leftovers, unfinished_days
from history.sql.session import _temporary_files

DAY = DayFolder(UUID(int=7), date(2026, 3, 9))


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A folder behind a link."""
    folder = tmp_path / "others"
    (folder / "below").mkdir(parents=True)
    for path in (folder / "00001-00001.parquet", folder / "below" / "00002-00001.parquet"):
        path.write_text("kept")
    return folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that others share."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def files_of(folder: Path) -> list[str]:
    """The files of a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_link_is_no_folder_for_temporary_files(temporary: Path, others: Path) -> None:
    (temporary / f"plantlog-sql-{os.geteuid()}").symlink_to(others)
    with pytest.raises(OperationError, match="is not a folder, but a link"), _temporary_files():
        pass
    assert files_of(others) == ["00001-00001.parquet", "below/00002-00001.parquet"]


def test_folder_for_temporary_files_that_others_can_write_to_is_refused(temporary: Path) -> None:
    folder = temporary_folder("plantlog-sql")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(OperationError, match="can be written to by others"):
        temporary_folder("plantlog-sql")
    temporary.chmod(0o777)
    with pytest.raises(OperationError, match=r"others can replace what is in .*: run chmod \+t"):
        temporary_folder("plantlog-sql")


def test_only_folders_of_sessions_are_removed(temporary: Path, others: Path) -> None:
    folder = temporary_folder("plantlog-sql")
    (folder / "mine").mkdir()
    (folder / "session-killed").mkdir()
    (folder / "session-link").symlink_to(others)
    with _temporary_files():
        assert (folder / "mine").exists()
        assert not (folder / "session-killed").exists()
    assert files_of(others) == ["00001-00001.parquet", "below/00002-00001.parquet"]


@pytest.mark.parametrize("linked", ["samples", f"samples/installation={DAY.installation}", DAY.table("samples")])
def test_sweep_of_an_archive_follows_no_link(tmp_path: Path, others: Path, linked: str) -> None:
    root = tmp_path / "archive"
    (root / linked).parent.mkdir(parents=True)
    (others / f"day={DAY.day}").symlink_to(".")
    (others / f"installation={DAY.installation}").symlink_to(".")
    (root / linked).symlink_to(others)
    with pytest.raises(OperationError, match="is a link, and links are not followed here"):
        remove_leftovers(Location.at(str(root)), DAY)
    assert files_of(others) == ["00001-00001.parquet", "below/00002-00001.parquet"]


def test_sweep_removes_files_of_a_writer_alone(tmp_path: Path, others: Path) -> None:
    root = tmp_path / "archive"
    folder = root / DAY.table("samples")
    (folder / "sub").mkdir(parents=True)
    for name in ("00001-00001.parquet", "notes.txt", "sub/00001-00001.parquet"):
        (folder / name).write_text("")
    (folder / "00003-00001.parquet").symlink_to(others / "00001-00001.parquet")
    (folder / "linked").symlink_to(others)
    incoming = root / DAY.incoming
    incoming.mkdir(parents=True)
    (incoming / "linked").symlink_to(others)
    (incoming / "file").write_text("")
    (incoming.parent / "no day").mkdir()
    (incoming.parent / "no day" / "file").write_text("")
    location = Location.at(str(root))
    assert unfinished_days(location, DAY.installation) == [DAY]
    remove_leftovers(location, DAY)
    assert not incoming.exists()
    assert sorted(path.name for path in folder.iterdir()) == ["00003-00001.parquet", "linked", "notes.txt", "sub"]
    assert files_of(others) == ["00001-00001.parquet", "below/00002-00001.parquet"]


def test_archive_is_not_written_through_a_link(tmp_path: Path, others: Path) -> None:
    root = tmp_path / "archive"
    root.mkdir()
    (root / "incoming").symlink_to(others)
    location = Location.at(str(root))
    for path in ("incoming/x", "incoming/below/x"):
        with pytest.raises(OperationError, match="incoming is a link"):
            location.write(path, b"new")
    (root / "x").symlink_to(others / "00001-00001.parquet")
    (root / "y").symlink_to(others / "00001-00001.parquet")
    with location.created("x") as stream:
        stream.write(b"new")
    location.write("y", b"new")
    assert [(root / name).read_bytes() for name in "xy"] == [b"new", b"new"]
    assert (others / "00001-00001.parquet").read_text() == "kept"
    with pytest.raises(OperationError, match="full"), location.created("z") as stream:
        raise OSError("full")
    assert not (root / "z").exists()


def test_file_is_written_to_itself_whatever_takes_its_name(tmp_path: Path, others: Path) -> None:
    target = others / "00001-00001.parquet"
    path = tmp_path / "verify_plantlog.py"
    path.symlink_to(target)
    write_atomically(path, "new")
    assert (path.is_symlink(), path.read_text(), target.read_text()) == (False, "new", "kept")
    with pytest.raises(FileExistsError, match="Another process"), atomic_path(path) as partial:
        (tmp_path / "verify_plantlog.py.partial").unlink()
        (tmp_path / "verify_plantlog.py.partial").symlink_to(target)
        partial.write_text("newer")
    assert (path.is_symlink(), path.read_text(), target.read_text()) == (False, "new", "kept")
