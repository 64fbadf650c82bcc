"""Files that hold a secret: nobody else on this machine may read them, and a token is one that nobody guesses."""

from __future__ import annotations

import stat
from pathlib import Path

LEAST = 16  # characters of a token
_DIFFERENT = 8  # of them
TOKEN_LEGAL = f"one line of {LEAST} or more characters, {_DIFFERENT} of them different, as `openssl rand -hex 24` gives"


def open_to_others(file: Path) -> str | None:
    """The file's permissions where others may read or change it, as ``0644``; None: all is well, or it is not ours."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except (OSError, ValueError):
        return None
    return f"{mode:04o}" if mode & (stat.S_IROTH | stat.S_IWOTH) else None


def weak(token: bytes) -> str | None:
    """What is wrong with a token, without saying it; None: nothing."""
    if len(token.split()) != 1:
        return "nothing" if not token.split() else "spaces or line ends within it"
    if len(token) < LEAST:
        return f"{len(token)} characters"
    if len(set(token)) < _DIFFERENT:
        return f"{len(set(token))} different characters"
    return None
