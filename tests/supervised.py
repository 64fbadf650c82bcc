"""Supervisors that tests start."""

from __future__ import annotations

from contextlib import suppress

import psutil

from core.paths import State
from ops.appliance import orphans


def end(state: State) -> None:
    """End the supervisor and what it started. It is killed: told to end, it would take a second or two to notice."""
    for supervisor in orphans.find(state).get("supervisord", ()):
        with suppress(psutil.NoSuchProcess):
            supervisor.kill()
    orphans.end(state, lambda line: None)
