"""Files are replaced as a whole, with the permissions of the call; a lock is that of the folder that is there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from core.files import atomic_path, folder_lock, write_atomically


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
