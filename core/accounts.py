"""Accounts of the operating system."""

from __future__ import annotations

import pwd


def account_name(uid: int) -> str | None:
    """The name of an account; None: it has no name here, as in a container."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
