"""Files below a folder that others may write to, too: no link below it is followed, and none is written through."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from shutil import rmtree
from typing import Any

import pyarrow as pa

from core.files import sync


class FolderFiles:
    """Files by their paths from the folder. Raises OSError, also for a link among the folders of a path."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def created(self, path: str) -> Iterator[Any]:
        """A file object to be written in the block; durable when it ends, gone if anything raises."""
        with self._parent(path, create=True) as (folder, name):
            with suppress(FileNotFoundError):
                if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
                    os.unlink(name, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            descriptor = os.open(name, flags, 0o666, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                stream = pa.PythonFile(file, mode="w")
                try:
                    yield stream
                    stream.flush()
                    os.fsync(descriptor)
                except BaseException:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)
                    raise

    def move(self, path: str, to: str) -> None:
        """Rename a file, durably; it replaces what is there."""
        with self._parent(path) as (source, old), self._parent(to, create=True) as (target, new):
            os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
        for folder in (self._root / to).parents:
            sync(folder)
            if folder == self._root:
                break

    def listing(self, path: str) -> list[str]:
        """Paths of the files below a folder; none where there is no such folder."""
        found: list[str] = []
        with suppress(FileNotFoundError), self._parent(f"{path}/.") as (top, _):
            for folder, _, names, descriptor in os.fwalk(".", dir_fd=top):
                files = (n for n in names if stat.S_ISREG(os.lstat(n, dir_fd=descriptor).st_mode))
                found += [str(PurePosixPath(path, folder, name)) for name in files]
        return found

    def remove(self, path: str) -> None:
        """Remove a file."""
        with self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def clear(self, path: str) -> None:
        """Remove a folder with all that it holds, where there is one; of links in it, the links."""
        with suppress(FileNotFoundError), self._parent(path) as (folder, name):
            rmtree(name, dir_fd=folder)

    @contextmanager
    def _parent(self, path: str, create: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the folder that a path is in, and the last name of the path."""
        *folders, name = path.split("/")
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder in filter(None, folders):
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=descriptor)
                below = _opened(folder, descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor, name
        finally:
            os.close(descriptor)


def _opened(folder: str, above: int) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except NotADirectoryError:
        if stat.S_ISLNK(os.lstat(folder, dir_fd=above).st_mode):
            raise OSError(f"{folder} is a link, and links are not followed here") from None
        raise
