"""A member of a redundant pair: stands by until the lease is free, then writes until it is lost."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from core import metrics
from core.config.model import SpoolOptions, WriterOptions
from core.errors import LeaseLost, SpoolError
from core.timestamps import now_us
from ingest.journal.journal import JournalReport
from ingest.spool.member import LEASE_SECONDS, folder_id
from ingest.writer.pair.alarm_sync import AlarmSync
from ingest.writer.pair.lease import RENEW_SECONDS, Heartbeat, Lease, request_lost
from ingest.writer.pair.standby import Standby
from ingest.writer.transaction.write import Fence
from ingest.writer.writer import Writer

log = logging.getLogger(__name__)

_BEAT_SECONDS = 2.0
_YIELD_SECONDS = 2 * LEASE_SECONDS  # for the member that asked for the lease
_NO_JOURNAL = JournalReport(0, None, None)


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
        self._installation = installation
        self._draining = asyncio.Event()
        self._written = 0  # by former writers
        self.lease = Lease(dsn, installation, number, folder)
        self.writer: Writer | None = None  # None: this member is the standby
        self.standby: Standby | None = None  # None: this member writes

    @property
    def database(self) -> str:
        """State of the database, as of :class:`Writer`."""
        if self.writer is not None:
            return self.writer.database
        return "connected" if self.lease.state is not None else "unreachable"

    @property
    def written(self) -> int:
        """Samples that this member committed since its start."""
        return self._written + (0 if self.writer is None else self.writer.written)

    @property
    def lag_seconds(self) -> float | None:
        """Lag of the newest samples when they were committed (s), as of :class:`Writer`; None: unknown."""
        return None if self.writer is None else self.writer.lag_seconds

    async def backlog(self) -> tuple[int, int, JournalReport]:
        """Rows and bytes in the spools, and what the journal has."""
        with suppress(RuntimeError):  # it changes its role just now
            if self.writer is not None:
                return await self.writer.backlog()
            if self.standby is not None:
                return await self.standby.backlog()
        return 0, 0, _NO_JOURNAL

    def report(self) -> dict[str, Any]:
        """State of the writer for the health page."""
        return {"member": self.lease.member, "role": "standby" if self.writer is None else "writes"}

    def drain(self) -> None:
        """Make :meth:`run` end: the holder first writes what the spools have, the standby keeps it."""
        self._draining.set()
        if self.writer is not None:
            self.writer.drain()

    async def run(self) -> None:
        """Run until cancelled or drained."""
        beating = asyncio.create_task(self._beat(), name="heartbeat")
        alarms = AlarmSync(self._folder.parent / "run", self._installation, self.lease.fetch)
        syncing = asyncio.create_task(alarms.run(), name="alarms")
        try:
            while (fence := await self._stand_by()) is not None:
                await self._write(fence)
        finally:
            await _cancel(beating, syncing)
            await self.lease.release()
            self.lease.disconnect()

    async def _beat(self) -> None:
        folder = await asyncio.to_thread(folder_id, self._folder)
        other = str(3 - self.lease.member)
        receiving: set[int] = set()
        while True:
            try:
                rows, *_ = await self.backlog()
            except SpoolError:
                rows = 0
            if self.writer is not None:
                receiving |= self.writer.sources
            if self.standby is not None:
                receiving |= self.standby.sources
            heartbeat = await self.lease.heartbeat(folder, rows, receiving)
            metrics.member_writes.labels(member=str(self.lease.member)).set(self.writer is not None)
            if heartbeat is not None:
                metrics.member_away.labels(member=other).set(heartbeat.away)
                await self._request_lost(heartbeat)
            if self.writer is None:
                metrics.database_up.set(heartbeat is not None)
            await asyncio.sleep(_BEAT_SECONDS)

    async def _request_lost(self, heartbeat: Heartbeat) -> None:
        try:
            batches = await asyncio.to_thread(request_lost, self._folder, heartbeat)
        except OSError as error:
            log.error("cannot request what the database may lack: %s", error)  # again with the next heartbeat
            return
        if batches:
            log.warning(
                "the database was restored or failed over: looking up %d batches that the other member wrote", batches
            )
            if self.standby is not None:
                self.standby.reconnect()  # it may be connected to a former primary

    async def _stand_by(self) -> Fence | None:
        """Wait for the lease; None: drained."""
        with ThreadPoolExecutor(1, "standby") as thread:
            self.standby = Standby(
                self._folder,
                self._dsn,
                self.lease,
                self._options,
                self._spool or SpoolOptions(),
                thread,
            )
            trimming = asyncio.create_task(self.standby.run(), name="standby")
            acquiring = asyncio.create_task(self.lease.acquire(), name="lease")
            draining = asyncio.create_task(self._draining.wait(), name="drain")
            try:
                await asyncio.wait((acquiring, draining), return_when=asyncio.FIRST_COMPLETED)
                if self._draining.is_set():
                    return None
                fence = acquiring.result()
                await _cancel(trimming)
                if self.lease.took_over:
                    await self.standby.settle()
                return fence
            finally:
                await _cancel(trimming, acquiring, draining)
                await self.standby.close()
                self.standby = None

    async def _write(self, fence: Fence) -> None:
        self.writer = Writer(self._folder, self._dsn, self._options, self._spool, fence)
        writing = asyncio.create_task(self.writer.run(), name="writer")
        holding = asyncio.create_task(self._hold(self.writer), name="lease")
        try:
            ended, _ = await asyncio.wait((writing, holding), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(holding, writing)
            self._written += self.writer.written
            self.writer = None
        error = (writing if writing in ended else holding).exception()
        if error is not None and not _is_lost(error):
            raise error
        log.info("the lease is %s", "handed over" if error is None else "lost")
        await self.lease.release()
        if error is None and not self._draining.is_set():
            await asyncio.sleep(_YIELD_SECONDS)

    async def _hold(self, writer: Writer) -> None:
        """Renew the lease until the other member asks for it. Raises LeaseLost."""
        while True:
            oldest = await writer.oldest()
            if await self.lease.renew(0.0 if oldest is None else max(0.0, (now_us() - oldest) / 1e6)):
                return
            await asyncio.sleep(RENEW_SECONDS)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, LeaseLost) or (isinstance(error, BaseExceptionGroup) and error.split(LeaseLost)[1] is None)
