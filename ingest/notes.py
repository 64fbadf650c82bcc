"""Names of notes: what a collector writes with its batches, and reads at its next start.

Spools of 1.0 have these names. Each note is of a source.
"""

from __future__ import annotations

from enum import StrEnum


class Note(StrEnum):
    """Subject of a note."""

    OPEN_GAPS = "gaps"
    CLOSED_GAP = "closed-gap"  # the last one of the source as a whole
    REPEATED_TIMES = "clock-set"
    GAP_REVISION = "gaps-said"
    LAST_SEEN = "heard"
    STOPPED = "stopped"
    COUNTERS = "counters"
    VERSIONS = "versions"
    BACKFILL = "backfill"
    CLOCKS = "clocks"
    REPEATS = "repeats"
    OPCUA = "opcua"  # subscriptions, and with the id of one behind: its progress
    PUSH = "push"  # with ``arrived`` or ``newest`` behind

    def of(self, source_id: int, part: str | int = "") -> str:
        """The name for a source, and a part of it."""
        return f"{self}:{source_id}" if part == "" else f"{self}:{source_id}:{part}"
