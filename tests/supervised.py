"""Supervisors that tests start."""

from __future__ import annotations

from contextlib import suppress

import psutil

from ops.appliance import orphans
from ops.paths import State


def end(state: State) -> None:
    """End the supervisor and what it started. It is killed: told to end, it would take a second or two to notice."""
    for supervisor in orphans.find(state).get("supervisord", ()):
        with suppress(psutil.NoSuchProcess):
            supervisor.kill()
    orphans.end(state, lambda line: None)
