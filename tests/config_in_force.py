"""Activates a configuration, as ``up`` does, for processes that a test starts."""

from __future__ import annotations

from pathlib import Path

from core.config import snapshot
from core.config.load import load_with_digests


def activate(state: Path, config: Path) -> snapshot.Snapshot:
    """Put ``config`` in force for the processes of ``state``."""
    plant, digests = load_with_digests(config)
    return snapshot.save(state, config, digests, plant)
