"""Content of a spool's batches."""

from __future__ import annotations

from collections.abc import Iterable

from core.batch import Batch, Event, EventBatch, Gap, GapBatch


def events_of(batches: Iterable[Batch], *kinds: str) -> list[Event]:
    """Events of these types (none: of all), in order."""
    events = [event for batch in batches if isinstance(batch, EventBatch) for event in batch.events]
    return [event for event in events if not kinds or event.type in kinds]


def gaps_of(batches: Iterable[Batch]) -> list[Gap]:
    """Every record of a gap, in order."""
    return [gap for batch in batches if isinstance(batch, GapBatch) for gap in batch.gaps]
