"""Folders of tests that other accounts may enter, as the database's: those of pytest are closed to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@contextmanager
def enterable_folder() -> Iterator[Path]:
    """A temporary folder that everybody may enter."""
    with TemporaryDirectory(prefix="plantlog-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture(name="tmp_path")
def enterable_tmp_path() -> Iterator[Path]:
    """In place of pytest's, where a module imports this."""
    with enterable_folder() as folder:
        yield folder
