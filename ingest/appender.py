"""What a collector needs of the spool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from ingest.batch import Batch

Notes: TypeAlias = Mapping[str, str | None]


class Appender(Protocol):
    """The collectors' side of the spool."""

    @property
    def notes(self) -> Mapping[str, str]:
        """Small facts that were made durable with :meth:`append` or :meth:`note`, by this process or one before it."""

    async def append(self, batch: Batch, notes: Notes | None = None) -> None:
        """Return once ``batch`` is on disk (fsync), and ``notes`` with it; only then may the source be told.

        Appends become durable in the order in which they were called, several in one transaction.
        A note replaces the one of its name; None removes it.

        Raises :class:`ingest.errors.SpoolFull` at the limit, which for samples and counts is a reserve lower than for
        events and gaps, and :class:`ingest.errors.SpoolError` where the disk refuses: the batch was not taken.
        """

    async def note(self, notes: Notes) -> None:
        """Return once ``notes`` are on disk. Raises SpoolError where the disk refuses."""

    async def wait_for_room(self) -> None:
        """Return when the spool can take batches again."""
