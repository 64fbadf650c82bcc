"""A push collector that kills itself when the first samples or counts are on disk, before it responds.

Run as ``python -m tests.crashing_push_collector``, with the arguments of ``python -m ingest``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from core.batch import Batch, CountBatch, EventBatch, SampleBatch
from ingest import __main__
from ingest.appender import Notes
from ingest.run import process
from ingest.spool.append import Spool


class _CrashingSpool(Spool):
    async def append(self, batch: Batch, notes: Notes | None = None, beside: Sequence[EventBatch] = ()) -> None:
        await super().append(batch, notes, beside)
        if isinstance(batch, SampleBatch | CountBatch):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    process.Spool = _CrashingSpool  # type: ignore[attr-defined]
    sys.exit(__main__.main())
