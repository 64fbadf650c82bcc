"""Files are replaced as a whole, with the permissions of the call; a lock is that of the folder that is there;
work that is killed leaves nothing behind the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from core.files import atomic_path, folder_lock, work_folder, write_atomically
from core.paths import CHECKOUT


def test_file_is_written_with_content_and_permissions(tmp_path: Path) -> None:
    path = tmp_path / "owner.dsn"
    write_atomically(path, "µ\n", 0o600)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == ("µ\n".encode(), 0o600)
    write_atomically(path, b"\x00", 0o600)
    assert path.read_bytes() == b"\x00"
    assert list(tmp_path.iterdir()) == [path]


def test_secret_is_not_written_to_a_readable_file(tmp_path: Path) -> None:
    left = tmp_path / "owner.dsn.partial"
    left.touch(0o644)
    with left.open() as reader:  # of another user, from when a killed process left it
        write_atomically(tmp_path / "owner.dsn", "secret", 0o600)
        assert reader.read() == ""
    assert (tmp_path / "owner.dsn").stat().st_mode & 0o777 == 0o600


def test_failed_write_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    write_atomically(path, "old")
    with pytest.raises(OSError, match="disk full"), atomic_path(path) as partial:
        partial.write_text("ne")
        raise OSError("disk full")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_of_two_that_write_a_file_one_fails(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    with ExitStack() as begun_first:
        begun_first.enter_context(atomic_path(path)).write_text("half")
        with atomic_path(path) as partial:
            with pytest.raises(FileExistsError, match="Another process writes this file"):
                begun_first.close()
            partial.write_text("second")
    assert path.read_text() == "second"
    assert list(tmp_path.iterdir()) == [path]


def test_who_waits_for_a_folder_that_is_removed_locks_the_next_one(tmp_path: Path) -> None:
    folder, waits = tmp_path / "state", Event()

    def lock() -> bool:
        with folder_lock(folder, waits.set):
            return folder.is_dir()

    with ThreadPoolExecutor() as threads:
        with folder_lock(folder):
            locked = threads.submit(lock)
            waits.wait()
            folder.rmdir()
        assert locked.result()


def test_work_that_is_killed_is_cleaned_up_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from core.files import work_folder\n"
        "with work_folder(Path(sys.argv[1])) as folder: (folder / 'half').mkdir(); os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    run = subprocess.run([sys.executable, "-P", "-c", code, tmp_path / "made"], env=environment, check=False)
    assert run.returncode == -9
    (left,) = tmp_path.iterdir()
    assert [path.name for path in left.iterdir()] == ["half"]
    with work_folder(tmp_path / "made") as folder:
        assert (folder, [*folder.iterdir()]) == (left, [])
        (folder / "whole").mkdir()
        (folder / "whole").rename(tmp_path / "made")
    assert list(tmp_path.iterdir()) == [tmp_path / "made"]


def test_link_in_place_of_a_work_folder_is_not_followed(tmp_path: Path) -> None:
    """Somebody may put one into a folder for all."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    (tmp_path / ".made.partial").symlink_to(tmp_path / "theirs")
    with pytest.raises(PermissionError, match="It belongs to another user"), work_folder(tmp_path / "made"):
        pass
    assert (tmp_path / "theirs" / "file").exists()
