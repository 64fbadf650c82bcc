"""Command lines and environments of processes, which may end while one looks at them."""

from __future__ import annotations

from contextlib import suppress

import psutil


def command_line(process: psutil.Process) -> list[str]:
    """Command and arguments; empty of a process that has ended."""
    with suppress(psutil.Error):  # ZombieProcess included: nobody has waited for it yet
        return list(process.cmdline())
    return []


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def environment(process: psutil.Process) -> dict[str, str]:
    """Environment; empty of a process that has ended."""
    with suppress(psutil.Error, OSError):
        return dict(process.environ())
    return {}
