"""The writer of a member of a redundant pair as a process: folder, DSN, installation, number of the member."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

from ingest.config.model import WriterOptions
from ingest.writer import lease
from ingest.writer.pair import PairWriter

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    folder, dsn, installation, number = sys.argv[1:]
    # On a busy machine a member may not run for longer than the real 1.5 s.
    with patch.object(lease, "LEASE_SECONDS", 6.0):
        asyncio.run(PairWriter(Path(folder), dsn, UUID(installation), int(number), WriterOptions()).run())
