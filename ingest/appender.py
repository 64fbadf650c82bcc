"""The interface through which collectors append to the spool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from core.batch import Batch, EventBatch
from core.errors import SpoolError, SpoolFull
from core.time_limits import TimeLimits

log = logging.getLogger(__name__)

Notes: TypeAlias = Mapping[str, str | None]
_RETRY_SECONDS = 1.0  # after a disk error


class Appender(Protocol):
    """The collectors' side of the spool."""

    @property
    def notes(self) -> Mapping[str, str]:
        """Key-value notes that :meth:`append` or :meth:`note` made durable, in this process or an earlier one."""

    @property
    def limits(self) -> TimeLimits:
        """Limits of times; a sample outside is not stored as one."""

    async def append(self, batch: Batch, notes: Notes | None = None, beside: Sequence[EventBatch] = ()) -> None:
        """Return once ``batch``, the events ``beside`` it and ``notes`` are on disk (fsync), in one transaction.

        Acknowledge to the source only after that.

        Appends become durable in the order in which they were called, several in one transaction.
        A note replaces the one of its name; None removes it.

        Raises :class:`core.errors.SpoolFull` at the size limit, which is lower for samples and counts than for
        events and gaps, and :class:`core.errors.SpoolError` on a disk error. The batch is not stored then.
        """

    async def note(self, notes: Notes) -> None:
        """Return once ``notes`` are on disk. Raises SpoolError on a disk error."""

    async def wait_for_room(self) -> None:
        """Return when the spool accepts batches again."""


async def until_durable(spool: Appender, source: str, append: Callable[[], Awaitable[None]]) -> None:
    """Repeat ``append`` (to ``spool``, for this source) until it succeeds, however long the disk is full or fails."""
    while True:
        try:
            return await append()
        except SpoolFull:
            await spool.wait_for_room()
        except SpoolError as error:
            log.error("source %s: %s", source, error)
            await asyncio.sleep(_RETRY_SECONDS)
