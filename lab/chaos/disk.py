"""A small disk of its own for the spool: a file with an ext4 inside, mounted, so that it can be filled up."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.errors import OperationError

_FILL = "fill"  # the file that takes the room
_TRY_MEGABYTES = 4
_BLOCK = bytes(1024**2)


def problem(folder: Path) -> str | None:
    """Reason why there can be none, tried in ``folder``; None: there can."""
    if os.geteuid() != 0:
        return "only root may mount"
    missing = [name for name in ("mkfs.ext4", "mount", "umount") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    image, at = folder / "try.img", folder / "try"
    try:
        with mounted(image, at, _TRY_MEGABYTES):
            return None
    except OperationError as error:  # a container may have no loop devices
        return str(error)
    finally:
        image.unlink(missing_ok=True)
        with suppress(OSError):
            at.rmdir()


@contextmanager
def mounted(image: Path, at: Path, megabytes: int) -> Iterator[None]:
    """A disk of that size mounted at ``at`` inside the block. Raises OperationError where that fails."""
    at.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(megabytes * 1024**2)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
    _run("mount", "-o", "loop", str(image), str(at))
    try:
        shutil.rmtree(at / "lost+found", ignore_errors=True)
        yield
    finally:
        _run("umount", "-l", str(at))


def fill(at: Path) -> None:
    """Take all the room that is left."""
    # A disk so full that not even the file can be made is what was wanted.
    with suppress(OSError), (at / _FILL).open("wb", buffering=0) as file:
        size = len(_BLOCK)
        while size:
            try:
                file.write(_BLOCK[:size])
            except OSError:
                size //= 2


def free(at: Path) -> None:
    """Give the room back."""
    (at / _FILL).unlink(missing_ok=True)


def _run(*command: str) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise OperationError(f"{' '.join(command)}: {run.stderr.strip()}")
