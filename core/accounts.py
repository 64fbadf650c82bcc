"""Accounts of the operating system."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def account_name(uid: int) -> str | None:
    """The name of an account; None: it has no name here, as in a container."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Let root make files for the owner of ``folder``, whose processes have to read and write them.

    It holds for all threads of this process: for short commands only.
    """
    owner = folder.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    group = os.getegid()
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
