"""A lock on a folder, held by one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folder_lock(folder: Path, before_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of ``folder``, which is created if it is missing; wait while another process holds it.

    ``before_waiting`` is called before waiting.
    """
    while not _is(folder, descriptor := _locked(folder, before_waiting)):  # who had it removed the folder
        os.close(descriptor)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(folder: Path, before_waiting: Callable[[], None]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            before_waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
