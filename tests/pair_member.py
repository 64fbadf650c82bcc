"""The writer of a member of a redundant pair as a process: folder, DSN, installation, number of the member."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from uuid import UUID

from core.config.model import WriterOptions
from ingest.spool import member

if __name__ == "__main__":
    member.LEASE_SECONDS = 6.0  # a busy machine may stop a holder for the usual 1.5 s
    from ingest.journal import journal
    from ingest.writer.member import PairWriter
    from ingest.writer.pair import standby

    journal._LEFT_FREE = 0.0  # of the machine's disk
    standby._SETTLE_SECONDS = 60.0  # and take longer than a second to find what the other member has written

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    folder, dsn, installation, number = sys.argv[1:]
    asyncio.run(PairWriter(Path(folder), dsn, UUID(installation), int(number), WriterOptions()).run())
