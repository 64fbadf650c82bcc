"""State folders of tests."""

from __future__ import annotations

from pathlib import Path

from core.paths import State


def claimed(folder: Path, **dsns: str) -> State:
    """A state folder that is in use, with DSNs by role."""
    state = State(folder)
    state.claim()
    store_dsns(state, **dsns)
    return state


def store_dsns(state: State, **dsns: str) -> None:
    """Let commands on a state folder find databases, by role."""
    for role, dsn in dsns.items():
        state.dsn_file(role).parent.mkdir(parents=True, exist_ok=True)
        state.dsn_file(role).write_text(f"{dsn}\n")
