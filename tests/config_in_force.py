"""Activates a configuration, as ``up`` does, for processes that a test starts."""

from __future__ import annotations

from pathlib import Path

from core.config import snapshot
from core.config.load import load_with_digests


def activate(state: Path, config: Path) -> snapshot.Snapshot:
    """What ``config`` says is what processes of ``state`` run."""
    plant, digests = load_with_digests(config)
    return snapshot.save(state, config, digests, plant)
