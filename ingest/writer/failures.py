"""What a failure of the database means for the batch that was being written: decided here and nowhere else.

SQLSTATE classes: https://www.postgresql.org/docs/17/errcodes-appendix.html
"""

from __future__ import annotations

import random
from typing import Literal, TypeAlias

import asyncpg

Failure: TypeAlias = Literal["transient", "configuration", "poison"]

# Passes by itself, or by failing over: the same batch is tried again.
_TRANSIENT = (
    "08",  # connection
    "25",  # transaction state; 25006 is a primary that became a standby, 25P04 transaction_timeout
    "26",  # a prepared statement that a pooler has lost
    "40",  # deadlock, serialization
    "53",  # disk full, out of memory or of room for locks, too many connections
    "55",  # lock not available, object in use
    "57",  # shutdown, starting up, statement time-out
    "58",  # I/O error of the server
)
# Somebody has to do something, after which the same batch can be written.
_CONFIGURATION = (
    "28",  # authorization
    "3D",  # no such database
    "3F",  # no such schema
    "42",  # no such table or column, no permission
    "53400",  # configuration_limit_exceeded: temp_file_limit
    "55000",  # object_not_in_prerequisite_state: the database takes no connections, a chunk is frozen
    "57P04",  # the database was dropped
    "58P01",  # undefined_file: a file of the database is missing
    "F0",  # configuration file of the server
    "XX001",  # data_corrupted, index_corrupted: no row is to blame
    "XX002",
)
_POISON = ("40002",)  # a constraint that is checked at COMMIT

_TIMED_OUT = ("57014", "55P03", "25P04")  # statement, lock, transaction
_TOO_MUCH = ("53200", "53400")  # memory or the table of locks, temporary files
_FIRST_WAIT: dict[Failure, float] = {"transient": 0.2, "configuration": 5.0, "poison": 0.2}  # s
_LONGEST_WAIT: dict[Failure, float] = {"transient": 5.0, "configuration": 60.0, "poison": 5.0}  # s


def sqlstate(error: BaseException) -> str | None:
    """The five characters that the server gave; None where it was not the server that failed."""
    return getattr(error, "sqlstate", None) if isinstance(error, asyncpg.PostgresError) else None


def classify(error: Exception) -> Failure:
    """``transient``: try again. ``configuration``: try again slowly, and say it loudly. ``poison``: it is the rows.

    What nobody foresaw is poison: the rows then go to quarantine one by one with the reason, and the rest lands.
    """
    if isinstance(error, asyncpg.InvalidCachedStatementError):  # 0A000, but by the schema, which has changed
        return "transient"
    state = sqlstate(error)
    if state is not None:
        return _of_state(state)
    match error:
        case asyncpg.exceptions.DataError():  # asyncpg can't put the value into the column's type
            return "poison"
        case asyncpg.exceptions.ClientConfigurationError():
            return "configuration"
        # InternalClientError: asyncpg itself, when the server ended an idle session in the moment it was used
        case OSError() | TimeoutError() | asyncpg.InterfaceError() | asyncpg.InternalClientError() | MemoryError():
            return "transient"
    return "poison"


def _of_state(state: str) -> Failure:
    if state.startswith(_POISON):
        return "poison"
    if state.startswith(_CONFIGURATION):
        return "configuration"
    return "transient" if state.startswith(_TRANSIENT) else "poison"


def timed_out(error: Exception) -> bool:
    """Whether it took too long: with fewer rows it may not."""
    return isinstance(error, TimeoutError) or sqlstate(error) in _TIMED_OUT


def too_much(error: Exception) -> bool:
    """Whether it took more than the server has for a transaction: fewer rows can be tried at once."""
    return sqlstate(error) in _TOO_MUCH


class Backoff:
    """Waits that double up to a limit, each a random part of that (full jitter), so that nobody comes back in step."""

    def __init__(self) -> None:
        self._failures = 0

    def next(self, failure: Failure) -> float:
        """Seconds to wait now."""
        longest = min(_LONGEST_WAIT[failure], _FIRST_WAIT[failure] * 2 ** min(self._failures, 16))
        self._failures += 1
        return random.uniform(0, longest)

    def reset(self) -> None:
        """Something succeeded."""
        self._failures = 0
