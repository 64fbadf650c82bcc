"""A member of a redundant pair: stands by until the lease is free, then writes until it is lost."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

from ingest.config.model import SpoolOptions, WriterOptions
from ingest.errors import LeaseLost
from ingest.files import write_atomically
from ingest.time_limits import TimeLimits
from ingest.timestamps import now_us
from ingest.writer.lease import RENEW_SECONDS, SECONDS, Fence, Lease
from ingest.writer.standby import Standby
from ingest.writer.writer import Writer

log = logging.getLogger(__name__)

_BEAT_SECONDS = 2.0
_LET_SECONDS = 2 * SECONDS  # for the member that asked for the lease


class PairWriter:
    """The writer of member ``number`` of an installation."""

    def __init__(
        self,
        folder: Path,
        dsn: str,
        installation: UUID,
        number: int,
        options: WriterOptions,
        spool: SpoolOptions | None = None,
    ) -> None:
        self._folder = folder
        self._dsn = dsn
        self._options = options
        self._spool = spool
        self.lease = Lease(dsn, installation, number)
        self.writer: Writer | None = None  # None: this member is the standby
        self.standby: Standby | None = None  # None: this member writes

    async def run(self) -> None:
        """Run until cancelled."""
        beating = asyncio.create_task(self._beat(), name="heartbeat")
        try:
            while True:
                fence = await self._stand_by()
                await self._write(fence)
        finally:
            await _cancel(beating)
            await self.lease.release()
            self.lease.disconnect()

    async def _beat(self) -> None:
        folder = await asyncio.to_thread(_folder_id, self._folder)
        while True:
            await self.lease.seen(folder)
            await asyncio.sleep(_BEAT_SECONDS)

    async def _stand_by(self) -> Fence:
        with ThreadPoolExecutor(1, "standby") as thread:
            self.standby = Standby(
                self._folder,
                self._dsn,
                self.lease,
                TimeLimits(self._options.future_limit, self._options.oldest),
                self._options.max_rows,
                self._options.time_out,
                thread,
            )
            trimming = asyncio.create_task(self.standby.run(), name="standby")
            try:
                return await self.lease.acquire()
            finally:
                await _cancel(trimming)
                self.standby = None

    async def _write(self, fence: Fence) -> None:
        self.writer = Writer(self._folder, self._dsn, self._options, self._spool, fence)
        writing = asyncio.create_task(self.writer.run(), name="writer")
        holding = asyncio.create_task(self._hold(self.writer), name="lease")
        try:
            ended, _ = await asyncio.wait((writing, holding), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(holding, writing)
            self.writer = None
        error = (writing if writing in ended else holding).exception()
        if error is not None and not _is_lost(error):
            raise error
        log.info("the lease is %s", "handed over" if error is None else "lost")
        await self.lease.release()
        if error is None:
            await asyncio.sleep(_LET_SECONDS)

    async def _hold(self, writer: Writer) -> None:
        """Renew the lease until the other member asks for it. Raises LeaseLost."""
        while True:
            oldest = await writer.oldest()
            if await self.lease.renew(0.0 if oldest is None else max(0.0, (now_us() - oldest) / 1e6)):
                return
            await asyncio.sleep(RENEW_SECONDS)


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _folder_id(spool: Path) -> UUID:
    """The identity of a state folder: with a new folder, what was only in the former one is lost."""
    path = spool / "folder"
    if not path.exists():
        write_atomically(path, f"{uuid4()}\n")
    return UUID(path.read_text().strip())


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, LeaseLost) or (isinstance(error, BaseExceptionGroup) and error.split(LeaseLost)[1] is None)
