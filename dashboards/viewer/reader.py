"""Database access of the viewer: few connections, read-only, with statement timeouts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg

from core.database import connect
from core.errors import DatabaseError, OperationError, QueryError
from dashboards.viewer.frames import MAX_BYTES, Frame, frame, text_bytes
from dashboards.viewer.library import PanelQuestion
from dashboards.viewer.macros import ChartRange
from history.questions.ask import find_question
from history.questions.database_request import prepare

if TYPE_CHECKING:
    from dashboards.viewer.archive import ArchiveReader
    from dashboards.viewer.questions import Questions

log = logging.getLogger(__name__)

CONNECTIONS = 6
_MAX_ROWS = 50_000  # per result
_PORTION = 50  # rows that are fetched first
_REPETITIONS = 2  # of a query that met the removal of a chunk
_CONTENTION = (asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError)
_SAMPLES_MISSING = "02000"  # SQLSTATE of the notice of plant.series_width

_SETTINGS = {
    "default_transaction_read_only": "on",
    "idle_in_transaction_session_timeout": "30s",
    "lock_timeout": "5s",
    "search_path": "plant, public",
    "timezone": "UTC",
    "jit": "off",  # compiling takes longer than it saves here
    "plan_cache_mode": "force_custom_plan",  # chunk exclusion needs the actual times
}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time (s) after which the viewer gives up."""

    statement: float = 15.0  # and question
    connection: float = 5.0
    free_connection: float = 20.0  # while others run statements
    archive: float = 2.0  # samples of a chart


TIMEOUTS = Timeouts()


class _ContendedError(DatabaseError):
    """A query and the removal of what it reads were in each other's way."""


class ReaderPool:
    """Connections to one database, which may be unavailable at any time, even at the start."""

    def __init__(self, state: Path, timeouts: Timeouts = TIMEOUTS) -> None:
        """``state``: the state folder."""
        self._state = state
        self._timeouts = timeouts
        self._dsn_file = state / "secrets" / "reader.dsn"
        self._archive: ArchiveReader | None = None
        self._questions: Questions | None = None
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()

    async def query(self, sql: str, parameters: list[object]) -> Frame:
        """Fetch the rows of one statement, at most ``_MAX_ROWS``, over archived samples as well if it is of a chart.

        Raises DatabaseError, and QueryError on a timeout.
        """
        for _ in range(_REPETITIONS):
            with suppress(_ContendedError):
                return await self._query(sql, parameters)
        return await self._query(sql, parameters)

    async def _query(self, sql: str, parameters: list[object]) -> Frame:
        async with self._transaction() as connection:
            with _details_of_missing_samples(connection) as details:
                answer = await _fetched(connection, sql, parameters)
            if details:
                try:
                    archive = await self._archive_opened()
                    if await archive.load_samples(connection, details):
                        answer = await _fetched(connection, sql, parameters)
                except OperationError as error:
                    answer.notice = f"Minutes instead of samples: {error}"
        return answer

    async def ask(self, question: PanelQuestion, over: ChartRange, sql: str, parameters: list[object]) -> Frame:
        """The rows of a query over the answer to a question, which is filled.

        Raises DatabaseError, and QueryError if it can't be answered.
        """
        since = max(over.since, over.until - question.within)
        arguments = {"since": since.isoformat(), "until": over.until.isoformat(), **question.options}
        try:
            definition = find_question(question.name)
            async with self._transaction() as connection:
                request = await prepare(connection, definition, arguments, question.channels, None, strict=False)
        except OperationError as error:
            raise QueryError(400, str(error)) from error
        return await (await self._questions_opened()).answer(request, sql, parameters, question.is_drawn)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        """A connection in a transaction that reads. Raises DatabaseError and QueryError for what fails in the block."""
        try:
            pool = await self._pool_opened()
            acquired = pool.acquire(timeout=self._timeouts.free_connection)
            async with acquired as connection, connection.transaction(readonly=True):
                yield connection
        except asyncpg.QueryCanceledError as error:
            raise QueryError(
                504, f"query cancelled after {self._timeouts.statement:g} s: choose a shorter time range"
            ) from error
        except (asyncpg.DataError, UnicodeEncodeError) as error:
            raise QueryError(400, str(error)) from error
        except (asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError, OSError, TimeoutError) as error:
            log.warning("the database does not answer: %s: %s", type(error).__name__, error)
            raise DatabaseError("the database does not answer") from error
        except _CONTENTION as error:
            log.info("query failed: %s: %s", type(error).__name__, error)
            raise _ContendedError("the database is busy with maintenance: try again") from error
        except (asyncpg.PLPGSQLError, asyncpg.ProgramLimitExceededError) as error:  # plantlog's own words
            raise DatabaseError(str(error)) from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("query failed: %s: %s", type(error).__name__, error)
            raise DatabaseError("the query failed: see the log of the viewer") from error

    # What both import takes its time, and most charts and questions need neither.
    async def _archive_opened(self) -> ArchiveReader:
        module = await asyncio.to_thread(import_module, "dashboards.viewer.archive")
        self._archive = self._archive or module.ArchiveReader(self._state, self._timeouts.archive)
        return self._archive

    async def _questions_opened(self) -> Questions:
        module = await asyncio.to_thread(import_module, "dashboards.viewer.questions")
        self._questions = self._questions or module.Questions(self._state, self._timeouts.statement)
        return self._questions

    async def _pool_opened(self) -> asyncpg.Pool[Any]:
        async with self._opening:
            if self._pool is None:
                try:
                    dsn = self._dsn_file.read_text().strip()
                except FileNotFoundError:
                    raise DatabaseError(f"{self._dsn_file} is missing: run `plantlog up`") from None
                self._pool = await asyncpg.create_pool(dsn, min_size=0, max_size=CONNECTIONS, connect=self._connect)
        return self._pool

    async def _connect(self, *dsn: Any, **_: Any) -> asyncpg.Connection[Any]:
        settings = {**_SETTINGS, "statement_timeout": f"{self._timeouts.statement:g}s"}
        return await connect(dsn[0], "plantlog viewer", settings, self._timeouts.connection)

    async def close(self) -> None:
        """Close the connections; running statements are cancelled."""
        if self._pool is not None:
            self._pool.terminate()


@contextmanager
def _details_of_missing_samples(connection: Any) -> Iterator[list[str]]:
    """Details of the notices of samples that are missing in the charts computed in the block."""
    details: list[str] = []

    def noticed(_: object, message: asyncpg.PostgresLogMessage) -> None:
        if message.sqlstate == _SAMPLES_MISSING:
            details.append(message.detail or "")

    connection.add_log_listener(noticed)
    try:
        yield details
    finally:
        connection.remove_log_listener(noticed)


async def _fetched(connection: Any, sql: str, parameters: list[object]) -> Frame:
    statement = await connection.prepare(sql)
    cursor = await statement.cursor(*parameters)
    rows: list[tuple[Any, ...]] = []
    portion, size = _PORTION, 0
    while size < MAX_BYTES and (most := min(portion, _MAX_ROWS - len(rows))):
        if not (fetched := await cursor.fetch(most)):
            break
        rows += map(tuple, fetched)
        size += text_bytes(fetched)
        portion *= 2
    attributes = statement.get_attributes()
    answer = frame([a.name for a in attributes], [a.type.name for a in attributes], rows)
    if size >= MAX_BYTES:
        answer.notice = f"Only {len(rows):,} rows: their texts have more than {MAX_BYTES:,} bytes"
    elif len(rows) == _MAX_ROWS:
        answer.notice = f"Only the first {len(rows):,} rows"
    return answer
