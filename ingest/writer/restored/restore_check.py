"""Notices that the database lost what was committed to it: restored, failed over to a standby that lagged, reset.

Each new connection compares the database with the writer's mark and with the newest records of the journal. All of
them are committed batches, so the database has a row in ``plant.ingest_batch`` for each. No loss is reported

- where such a row is 30 days old, and retention may have deleted it: it is not looked for;
- where a batch was committed, and the writer killed before it noted that: the mark is older than the database;
- where a batch is not committed, or was rejected as a whole: it is neither in the mark nor in the journal;
- while a request of an earlier loss or of ``plantlog admin spool replay`` waits: only the mark is compared, which
  begins anew with each recorded loss;
- after ``down --wipe``, with which the mark is gone;
- in a database in which ``up`` has registered the state folder anew: one that was created again, or taken over. A
  backup has the time of the first registration;
- on another server or timeline that has all batches of the journal: a failover, a move with pg_dump.

On another server or timeline, the whole journal is compared, as the mark may be a second old. A loss is recorded
once: the time at which it was noticed is durable first; a writer that was killed writes the same event and gaps again.

A promoted standby begins a new timeline. A server on an older one than the mark is a former primary that came back:
it is refused, unless ``plantlog admin spool accept-database`` has left the file ``ACCEPT``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import asyncpg

from core.batch import Gap, GapBatch
from core.database import FAILURES, bounded
from core.errors import OldTimeline, OperationError
from core.installation import installation_of
from core.registry import Registry
from core.timestamps import iso, now_us, timestamp
from ingest.journal.replay import JournalKey, has_requests, keys, replay
from ingest.writer.restored.commit_mark import CommitMark, DatabaseState, Key
from ingest.writer.transaction.rows import write_gaps
from schema.queries import load

log = logging.getLogger(__name__)

Result = TypeVar("Result")

ACCEPT = "accept-database"  # in the spool folder
_NEWEST = 200  # records of the journal that are compared at the start
_KEYS_PER_STATEMENT = 10_000  # keys a statement
_GAP_DETAIL = "the database was restored, and the journal does not reach back to what it has"
_KEPT_US = 29 * 86_400_000_000  # rows of ingest_batch, at least


class RestoreCheck:
    """Compares each connection of the writer.

    ``thread`` is that of ``mark``; ``restored`` is called before anything is written to a database with a loss.
    ``member``: of a redundant pair.
    """

    def __init__(
        self,
        spool: Path,
        mark: CommitMark,
        thread: Executor,
        time_out: float,
        restored: Callable[[], None] = lambda: None,
        member: int | None = None,
    ) -> None:
        self._spool = spool
        self._member = member
        self._mark = mark
        self._thread = thread
        self._time_out = time_out
        self._restored = restored
        self._lock = asyncio.Lock()
        self._started = False
        self._checked: WeakSet[asyncpg.Connection[Any]] = WeakSet()  # all to the server of the mark

    async def check(self, connection: asyncpg.Connection[Any]) -> None:
        """Compare; record a loss and have the journal write again what is missing, before anything else is written.

        Raises OperationError if the database has to be registered first, OldTimeline if another server has replaced
        it, or what the database or the disk raises; then nothing may be written to it.
        """
        async with self._lock:
            try:
                await self._compare(connection)
            except (*FAILURES, OldTimeline, OperationError):
                raise
            except Exception:
                log.exception("cannot compare the database with the journal")  # a bug: ingest continues
            self._checked.add(connection)

    async def has_lost_batches(self, connection: asyncpg.Connection[Any]) -> bool:
        """Return whether the database lacks what this member of a pair committed, or was asked to write again."""
        identity, mark = await self._identify(connection), await self._in_thread(self._mark.state)
        if identity is None or mark.server is None or identity[1] != mark.registered:
            return False
        if await asyncio.to_thread(has_requests, self._spool, own_only=True):
            return True
        newest = await asyncio.to_thread(self._newest, mark)
        return bool(await self._missing(connection, newest | set(_recent(mark.keys, mark))))

    async def _identify(self, connection: asyncpg.Connection[Any]) -> tuple[str, str | None] | None:
        """Server and timeline, and when the state folder was registered; None: a standby."""
        installation = await asyncio.to_thread(installation_of, self._spool.parent)
        rows = await self._fetch(connection, "select_identity", installation)
        if not rows:
            return None
        server, registered = rows[0]
        with suppress(asyncpg.InsufficientPrivilegeError):  # the timeline has to do
            [(identifier,)] = await self._fetch(connection, "select_server")
            server = f"{identifier}/{server}"
        return server, registered

    async def _compare(self, connection: asyncpg.Connection[Any]) -> None:
        if (identity := await self._identify(connection)) is None:
            return  # nothing can be written
        server, registered = identity
        mark = await self._in_thread(self._mark.state)
        if mark.server is None or registered != mark.registered:
            await self._in_thread(self._mark.begin, server, registered)
        else:
            if server != mark.server:
                await asyncio.to_thread(self._check_timeline, server, mark.server)
                for other in self._checked:
                    other.terminate()  # what it commits now, this server lacks
                self._checked.clear()
            newest = set() if self._started else await asyncio.to_thread(self._newest, mark)
            lost = await self._missing(connection, newest | set(_recent(mark.keys, mark)))
            if lost or mark.noticed_at or server != mark.server:
                await self._compare_all(connection, mark, server, bool(lost))
        self._started = True
        await asyncio.to_thread((self._spool / ACCEPT).unlink, missing_ok=True)

    def _check_timeline(self, server: str, former: str) -> None:
        """Raise OldTimeline if it is a server that the known one has replaced, and the operator does not want it."""
        (identifier, _, timeline), (former_identifier, _, newest) = server.rpartition("/"), former.rpartition("/")
        if identifier != former_identifier or timeline >= newest:  # of eight digits each
            return
        if not (self._spool / ACCEPT).exists():
            raise OldTimeline(
                f"is a former primary, on timeline {int(timeline, 16)}: data were committed on {int(newest, 16)}. Make "
                "it a standby (pg_rewind), or run `plantlog admin spool accept-database` to write to it"
            )

    def _newest(self, mark: DatabaseState) -> set[Key]:
        if has_requests(self._spool, own_only=True):
            return set()
        return set(_recent(map(_committed, islice(keys(self._spool), _NEWEST)), mark))

    async def _compare_all(
        self, connection: asyncpg.Connection[Any], mark: DatabaseState, server: str, lost: bool
    ) -> None:
        journal = await asyncio.to_thread(lambda: list(keys(self._spool)))
        absent = await self._missing(connection, _recent(map(_committed, journal), mark))
        missing = [key for key in journal if key[:2] in absent]
        if not missing and not lost and not mark.noticed_at:
            log.info("database: server and timeline %s instead of %s; nothing is missing", server, mark.server)
            await self._in_thread(self._mark.move, server)
            return
        await self._check_registered(connection)
        noticed_at = mark.noticed_at or now_us()
        await self._in_thread(self._mark.notice, noticed_at)
        self._restored()
        sources = sorted({*mark.newest, *(key.source_id for key in missing)})
        rows = await self._fetch(connection, "select_newest_samples", sources)
        newest_stored: dict[int, int | None] = {row["id"]: row["time"] for row in rows}
        # If the oldest record is in both, nothing is between database and journal.
        gaps = _gaps(
            mark, missing, newest_stored, noticed_at, journal_reaches=bool(journal) and journal[-1] not in missing
        )
        if missing:
            await asyncio.to_thread(replay, self._spool, min(key.committed_at for key in missing))
        newest_known = max((*mark.newest.values(), *(key.received_at for key in missing)), default=noticed_at)
        newest_time = max((time for time in newest_stored.values() if time), default=None)
        newest = iso(newest_time) if newest_time else "none"
        text = f"newest data: {newest}; known: {iso(newest_known)}; {len(absent):,} batches missing"
        detail = {
            "newest_here": newest_time and iso(newest_time),
            "newest_known": iso(newest_known),
            "batches": len(absent),
            "gaps": len(gaps),
            "servers": [mark.server, server],
        }
        await bounded(connection, self._time_out, self._record(connection, noticed_at, text, json.dumps(detail), gaps))
        await self._in_thread(self._mark.begin_restored, server, noticed_at, mark)
        log.warning("database restored: %s", text)

    async def _record(
        self, connection: asyncpg.Connection[Any], noticed_at: int, text: str, detail: str, gaps: Sequence[GapBatch]
    ) -> None:
        async with connection.transaction():
            await connection.execute(load("write")["insert_restored"], timestamp(noticed_at), text, detail)
            await write_gaps(connection, gaps, (), self._member)

    async def _check_registered(self, connection: asyncpg.Connection[Any]) -> None:
        """Raise OperationError if the database lacks sources or channels: what belongs to them cannot be written."""
        registry = await asyncio.to_thread(_registry, self._spool.parent / "registry.json")
        if registry is not None:
            channels = sorted({number for _, number in registry.pairs()})
            [row] = await self._fetch(connection, "count_registered", list(registry.sources.values()), channels)
            if (row["sources"], row["channels"]) != (len(registry.sources), len(channels)):
                raise OperationError("the database was restored and lacks sources or channels: run `plantlog up`")

    async def _missing(self, connection: asyncpg.Connection[Any], keys: Iterable[Key]) -> set[Key]:
        """Batches that the database does not have."""
        absent = set(keys)
        rest = iter(sorted(absent))
        while portion := list(islice(rest, _KEYS_PER_STATEMENT)):
            rows = await self._fetch(connection, "select_batches", [s for s, _ in portion], [n for _, n in portion])
            absent.difference_update((row["source_id"], row["sequence"]) for row in rows)
        return absent

    async def _fetch(self, connection: asyncpg.Connection[Any], query: str, *parameters: Any) -> list[asyncpg.Record]:
        return await bounded(connection, self._time_out, connection.fetch(load("write")[query], *parameters))

    async def _in_thread(self, work: Callable[..., Result], *parameters: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *parameters)


def _recent(committed: Iterable[tuple[int, int, int]], mark: DatabaseState) -> Iterator[Key]:
    """Keys of batches (source id, sequence, when it was committed) that the database must have."""
    oldest = max(mark.since, now_us() - _KEPT_US)
    return ((source, sequence) for source, sequence, at in committed if at >= oldest)


def _committed(key: JournalKey) -> tuple[int, int, int]:
    return key.source_id, key.sequence, key.committed_at


def _registry(path: Path) -> Registry | None:
    return Registry.load(path) if path.exists() else None


def _gaps(
    mark: DatabaseState,
    missing: Sequence[JournalKey],
    newest_stored: Mapping[int, int | None],
    noticed_at: int,
    journal_reaches: bool,
) -> list[GapBatch]:
    """Gaps of samples that neither the database nor the journal has: between both, and after a journal that failed."""
    gaps = []
    for source, begin in newest_stored.items():
        lost = [key for key in missing if key.source_id == source]
        last = max((key.last_time for key in lost), default=begin)
        spans: list[tuple[int | None, int | None]] = [(last, mark.newest.get(source))]
        if begin is not None and not journal_reaches:
            # The first one that was committed: some that came later have earlier samples.
            spans.append((begin, next((key.first_time for key in reversed(lost) if key.first_time > begin), None)))
        gaps_of_source = [
            Gap(start, end, "database_restored", None, _GAP_DETAIL)
            for start, end in spans
            if start is not None and end is not None and start < end
        ]
        if gaps_of_source:
            gaps.append(GapBatch(source, noticed_at, gaps_of_source))
    return gaps
