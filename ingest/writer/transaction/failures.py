"""Classifies database errors: retry, wait for a repair, or isolate the rows.

SQLSTATE classes: https://www.postgresql.org/docs/17/errcodes-appendix.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import asyncpg

from core.backoff import Backoff
from core.errors import OldTimeline

Failure: TypeAlias = Literal["transient", "configuration", "poison"]
Backoffs: TypeAlias = Mapping[Failure, Backoff]

# Transient, or cured by a failover: retry the same batch.
_TRANSIENT = (
    "08",  # connection
    "25",  # transaction state; 25006 is a primary that became a standby, 25P04 transaction_timeout
    "26",  # a prepared statement lost by a pooler
    "40",  # deadlock, serialization
    "53",  # disk full, out of memory or shared lock table, too many connections
    "55",  # lock not available, object in use
    "57",  # shutdown, starting up, statement timeout
    "58",  # I/O error of the server
)
# Somebody has to fix something; then the same batch can be written.
_CONFIGURATION = (
    "28",  # authorization
    "3D",  # no such database
    "3F",  # no such schema
    "42",  # no such table or column, no permission
    "53400",  # configuration_limit_exceeded: temp_file_limit
    "55000",  # object_not_in_prerequisite_state: the database does not accept connections, a chunk is frozen
    "57P04",  # the database was dropped
    "58P01",  # undefined_file: a file of the database is missing
    "F0",  # configuration file of the server
    "XX001",  # data_corrupted, index_corrupted: not caused by a row
    "XX002",
)
_POISON = ("40002",)  # a constraint checked at COMMIT

_TIMED_OUT = ("57014", "55P03", "25P04")  # statement, lock, transaction
_LIMIT_EXCEEDED = ("53200", "53400")  # memory or the table of locks, temporary files


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE; None if the error did not come from the server."""
    return getattr(error, "sqlstate", None) if isinstance(error, asyncpg.PostgresError) else None


def classify(error: Exception) -> Failure:
    """``transient``: retry. ``configuration``: retry slowly and report it. ``poison``: caused by the rows.

    Unknown errors are poison: the rows that cause them go to the quarantine with the error, the rest is stored.
    """
    if isinstance(error, asyncpg.InvalidCachedStatementError):  # 0A000, but because the schema has changed
        return "transient"
    state = sqlstate(error)
    if state is not None:
        return _of_state(state)
    match error:
        case asyncpg.exceptions.DataError():  # asyncpg cannot convert the value to the type of the column
            return "poison"
        case asyncpg.exceptions.ClientConfigurationError():
            return "configuration"
        # InternalClientError: raised by asyncpg if the server ends an idle session just as it is used
        # OldTimeline: the new primary may come back at any moment
        case OSError() | asyncpg.InterfaceError() | asyncpg.InternalClientError() | MemoryError() | OldTimeline():
            return "transient"
    return "poison"


def _of_state(state: str) -> Failure:
    if state.startswith(_POISON):
        return "poison"
    if state.startswith(_CONFIGURATION):
        return "configuration"
    return "transient" if state.startswith(_TRANSIENT) else "poison"


def timed_out(error: Exception) -> bool:
    """Return whether it timed out: fewer rows may succeed."""
    return isinstance(error, TimeoutError) or sqlstate(error) in _TIMED_OUT


def exceeds_limit(error: Exception) -> bool:
    """Return whether it exceeded a resource limit of a transaction: fewer rows can be tried immediately."""
    return sqlstate(error) in _LIMIT_EXCEEDED


def backoffs() -> Backoffs:
    """Waits after failures in a row, with full jitter: many writers meet one database."""
    return {"transient": Backoff(0.2, 5.0, jitter=1), "configuration": Backoff(5.0, 60.0, jitter=1)}
