"""Command lines and environments of processes, which may end while one looks at them."""

from __future__ import annotations

from contextlib import suppress

import psutil


def command_line(process: psutil.Process) -> list[str]:
    """Command and arguments; empty of a process that has ended."""
    with suppress(psutil.Error):  # ZombieProcess included: nobody has waited for it yet
        return list(process.cmdline())
    return []


def environment(process: psutil.Process) -> dict[str, str]:
    """Environment; empty of a process that has ended."""
    with suppress(psutil.Error, OSError):
        return dict(process.environ())
    return {}
