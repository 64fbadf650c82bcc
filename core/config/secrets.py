"""Checks of secret files: permissions, and the strength of tokens."""

from __future__ import annotations

import stat
from pathlib import Path

MIN_LENGTH = 16  # characters of a token
_MIN_DISTINCT = 8  # of them
TOKEN_LEGAL = (
    f"one line of {MIN_LENGTH} or more characters, {_MIN_DISTINCT} of them different, as `openssl rand -hex 24` gives"
)


def loose_permissions(file: Path) -> str | None:
    """The file's permissions (such as ``0644``) if others can read or write it; None: safe, or not accessible."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except (OSError, ValueError):
        return None
    return f"{mode:04o}" if mode & (stat.S_IROTH | stat.S_IWOTH) else None


def token_fault(token: bytes) -> str | None:
    """Fault of a token, which the text does not reveal; None: there is none."""
    if len(token.split()) != 1:
        return "nothing" if not token.split() else "spaces or line breaks in it"
    if len(token) < MIN_LENGTH:
        return f"{len(token)} characters"
    if len(set(token)) < _MIN_DISTINCT:
        return f"{len(set(token))} different characters"
    return None
