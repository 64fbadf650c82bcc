"""The push collector, killed by SIGKILL when the first samples or counts are on disk, before the gateway is answered.

Run as ``python -m tests.push_killed``, with the arguments of ``python -m ingest``.
"""

from __future__ import annotations

import os
import signal
import sys

from ingest import __main__, process
from ingest.appender import Notes
from ingest.batch import Batch, CountBatch, SampleBatch
from ingest.spool.append import Spool


class _Killed(Spool):
    async def append(self, batch: Batch, notes: Notes | None = None) -> None:
        await super().append(batch, notes)
        if isinstance(batch, SampleBatch | CountBatch):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    process.Spool = _Killed  # type: ignore[attr-defined]
    sys.exit(__main__.main())
