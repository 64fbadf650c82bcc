"""The states of a source, as ``/health`` and ``plantlog status`` show them."""

from __future__ import annotations

from typing import Literal, TypeAlias

SourceState: TypeAlias = Literal[
    "starting", "connecting", "connected", "degraded", "disconnected", "standby", "stopped"
]
"""``degraded``: connected, but some channels can't be read. ``standby``: the other member of the pair polls."""

UP: tuple[SourceState, ...] = ("connected", "degraded", "standby")
"""States of a source that is read as it should be."""
