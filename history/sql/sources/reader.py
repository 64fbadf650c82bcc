"""A session of the database's reader for DuckDB's threads, which know nothing of asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from core.database import FAILURES, database_errors
from history.reading.reader import connect
from schema.queries import load

Result = TypeVar("Result")
_APPLICATION = "plantlog sql"
_END_SECONDS = 5.0


class ReaderConnection:
    """One connection, whose statements run one at a time, whichever threads ask for them."""

    def __init__(self, dsn: str, installation: UUID | None = None, *, once: bool = False) -> None:
        """``installation``: the one whose channels ``plant.channels_like`` returns (None: all). ``once``: whether all
        queries are parts of one, for which :meth:`fetch_once` reads the same rows once.

        Raises DatabaseError, as all that uses the connection.
        """
        self._dsn = dsn
        self._installation = installation
        self._once = once
        self._known: dict[tuple[str, str], list[asyncpg.Record]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="plantlog sql", daemon=True)
        self._thread.start()
        self._turn = asyncio.Lock()
        self._running: set[Future[Any]] = set()
        try:
            with database_errors():
                self.connection: asyncpg.Connection[Any] = self._wait(self._connected())
        except BaseException:
            self._end()
            raise

    def run(self, work: Callable[[asyncpg.Connection[Any]], Awaitable[Result]]) -> Result:
        """Result of ``work``, which uses the connection."""

        async def alone() -> Result:
            async with self._turn:
                if self.connection.is_closed():  # the server was restarted, or ended a session that was idle
                    self.connection = await self._connected()
                return await work(self.connection)

        with database_errors():
            return self._wait(alone())

    def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """The rows of a statement."""
        return self.run(lambda connection: connection.fetch(statement, *arguments))

    def fetch_once(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """The rows of a statement, read once for all parts of a query."""
        if not self._once:
            return self.fetch(statement, *arguments)
        key = statement, repr(arguments)
        if key not in self._known:
            self._known[key] = self.fetch(statement, *arguments)
        return self._known[key]

    def cancel(self) -> None:
        """End what runs; who waits for it gets a CancelledError."""
        for task in tuple(self._running):
            task.cancel()

    def close(self) -> None:
        """Close the connection and end the thread."""
        self.cancel()
        with suppress(*FAILURES, TimeoutError):
            self._wait(self.connection.close(timeout=_END_SECONDS))
        self._end()

    async def _connected(self) -> asyncpg.Connection[Any]:
        connection = await connect(self._dsn, _APPLICATION)
        await connection.execute(load("ask")["set_installation"], self._installation)
        return connection

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # closed, while another thread still reads
            work.close()
            raise
        self._running.add(running)
        try:
            return running.result()
        finally:
            self._running.discard(running)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()
