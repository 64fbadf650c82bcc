"""Files that are replaced atomically: readers, also after a power failure, find the old content or the new one.

Faults of files that can't be read, in words. Locks on folders, which one process holds at a time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.errors import OperationError

CERTIFICATE_SUFFIXES = (".der", ".pem", ".crt", ".cer")


def fault(error: Exception) -> str:
    """Description of what is in the place of a file that can't be read."""
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return "no such file"
        case IsADirectoryError():
            return "a folder"
        case PermissionError():
            return "a file that this account may not read"
        case UnicodeDecodeError():
            return f"byte 0x{error.object[error.start]:02x}, which is not UTF-8"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


@contextmanager
def file_errors(path: Path, legal: str = "") -> Iterator[None]:
    """Raise OperationError, which names the file, for an OSError of the block.

    ``legal``: what a file should be that is read there; it also raises OperationError for one that is not UTF-8.
    """
    try:
        yield
    except OSError as error:
        found = f"found {fault(error)}; legal: {legal}" if legal else error.strerror
        raise OperationError(f"{path}: {found}") from error
    except UnicodeDecodeError as error:
        if not legal:
            raise
        raise OperationError(f"{path}: found {fault(error)}; legal: {legal}") from error


@contextmanager
def atomic_path(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """A new file beside ``path``, to be written in the block; it replaces ``path`` durably when the block ends.

    The path of the block is that of the open file, so that nobody can put a link in its place. A link at ``path`` is
    replaced, too. ``mode``: its permissions, less the umask. If anything raises, ``path`` stays as it was. Raises
    OSError, also where another process began to write the same file meanwhile.
    """
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)  # left by a killed process, perhaps with other permissions
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
        os.fsync(descriptor)
        if not _is_at(partial, descriptor):
            raise FileExistsError(errno.EEXIST, "Another process writes this file, too", str(path))
        partial.replace(path)
    finally:
        if _is_at(partial, descriptor):
            partial.unlink()
        os.close(descriptor)
    sync(path.parent)


def write_atomically(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Replace the content of a file, atomically and durably. Text is UTF-8, written as it is."""
    with atomic_path(path, mode) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all it contains. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def folder_lock(folder: Path, before_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of ``folder``, which is created if it is missing; wait while another process holds it.

    ``before_waiting`` is called before waiting.
    """
    while not _is_at(folder, descriptor := _locked(folder, before_waiting)):  # who had it removed the folder
        os.close(descriptor)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def work_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside ``path`` for the block that makes it, which can rename it from there.

    It is removed with the block; what a killed process left, by the next one. A second process waits. Raises OSError.
    """
    folder = path.absolute().with_name(f".{path.name}.partial")
    with folder_lock(folder):
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "It belongs to another user", str(folder))
        for left in folder.iterdir():
            remove(left)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


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


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether an open file or folder is the one at a path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def sync(path: Path) -> None:
    """Make a file's content durable, or a folder's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a network file system that cannot do it for folders
            raise
    finally:
        os.close(descriptor)


def make_trust_folders(pki: Path) -> None:
    """Make the folders of a trust list for OPC UA (OPC 10000-12, 7.8.2), where they are missing.

    Certificates that somebody put into ``trusted`` itself go to ``trusted/certs``.
    """
    folder = pki / "trusted"
    if folder.is_file():  # moved there before the folder existed
        moved = folder.rename(pki / "trusted.der")
        folder.mkdir()
        moved.rename(folder / moved.name)
    for name in ("trusted/certs", "trusted/crl", "issuers/certs", "issuers/crl", "rejected"):
        (pki / name).mkdir(parents=True, exist_ok=True)
    for path in list(folder.iterdir()):
        if path.suffix.lower() in CERTIFICATE_SUFFIXES:
            with suppress(FileNotFoundError):  # another collector was faster
                path.rename(folder / "certs" / path.name)
