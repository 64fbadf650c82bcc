"""What a collector needs of the spool."""

from __future__ import annotations

from typing import Protocol

from ingest.batch import Batch


class Appender(Protocol):
    """The collectors' side of the spool."""

    async def append(self, batch: Batch) -> None:
        """Return once ``batch`` is on disk (fsync); only then may the source be told.

        Raises :class:`ingest.errors.SpoolFull` at the limit: the batch was not taken.
        """

    async def wait_for_room(self) -> None:
        """Return when the spool can take batches again."""
