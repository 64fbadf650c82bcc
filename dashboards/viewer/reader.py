"""Database access of the viewer: few connections, read-only, with statement timeouts."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import asyncpg

from dashboards.viewer.frames import Frame, frame
from ingest.database import connect
from ingest.errors import DatabaseError, QueryError

log = logging.getLogger(__name__)

CONNECTIONS = 6
STATEMENT_SECONDS = 15
MAX_ROWS = 20_000  # per result
_CONNECT_SECONDS = 5.0
_WAIT_SECONDS = 20.0  # for a free connection

_SETTINGS = {
    "default_transaction_read_only": "on",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "idle_in_transaction_session_timeout": "30s",
    "lock_timeout": "5s",
    "search_path": "plant, public",
    "timezone": "UTC",
    "jit": "off",  # compiling takes longer than it saves here
    "plan_cache_mode": "force_custom_plan",  # chunk exclusion needs the actual times
}


class Reader:
    """Connections to one database, which may be unavailable at any time, even at the start."""

    def __init__(self, dsn_file: Path) -> None:
        self._dsn_file = dsn_file
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()

    async def query(self, sql: str, parameters: list[object], max_rows: int = MAX_ROWS) -> Frame:
        """At most ``max_rows`` rows of one statement. Raises DatabaseError, and QueryError on a timeout."""
        try:
            pool = await self._pool_opened()
            async with (
                pool.acquire(timeout=_WAIT_SECONDS) as connection,
                connection.transaction(readonly=True),
            ):
                statement = await connection.prepare(sql)
                attributes = statement.get_attributes()
                cursor = await statement.cursor(*parameters)
                rows = await cursor.fetch(max_rows)
        except asyncpg.QueryCanceledError as error:
            raise QueryError(
                504, f"query cancelled after {STATEMENT_SECONDS} s: choose a shorter time range"
            ) from error
        except (asyncpg.DataError, UnicodeEncodeError) as error:
            raise QueryError(400, str(error)) from error
        except (asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError, OSError, TimeoutError) as error:
            raise DatabaseError(f"the database does not answer: {str(error) or type(error).__name__}") from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("query failed: %s: %s", type(error).__name__, error)
            raise DatabaseError(f"{type(error).__name__}: {error}") from error
        return frame([a.name for a in attributes], [a.type.name for a in attributes], [tuple(row) for row in rows])

    async def _pool_opened(self) -> asyncpg.Pool[Any]:
        async with self._opening:
            if self._pool is None:
                try:
                    dsn = self._dsn_file.read_text().strip()
                except FileNotFoundError:
                    raise DatabaseError(f"{self._dsn_file} is missing: run `plantlog up`") from None
                self._pool = await asyncpg.create_pool(dsn, min_size=0, max_size=CONNECTIONS, connect=_connect)
        return self._pool

    async def close(self) -> None:
        """Close the connections; running statements are cancelled."""
        if self._pool is not None:
            self._pool.terminate()


async def _connect(*dsn: Any, **_: Any) -> asyncpg.Connection[Any]:
    return await connect(dsn[0], "plantlog viewer", _SETTINGS, _CONNECT_SECONDS)
