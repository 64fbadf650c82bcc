"""Exceptions that plantlog raises deliberately.

PlantlogError
├── ConfigError          the configuration is invalid; holds all problems
├── SpoolError
│   ├── SpoolFull        no room for another batch: push back to the source
│   └── SpoolCorrupt     a stored batch is not what was written
├── SourceError          a source can't be read now; the message says which and why
│   └── DecodeError      a message from a source is not what its protocol says
├── DeliveryError        a receiver did not accept a notification; it is sent again
├── DatabaseError        the database is not what plantlog needs; the message says what to do
│   ├── DatabaseAway     no server responds
│   └── OldTimeline      a former primary: another server has replaced it
├── LeaseLost            the other member of a redundant pair writes
├── OperationError       a command cannot be carried out; the message says what to do
│   ├── NotAsSealed      stored data are not what the day's seal says
│   ├── NotAllDone       some of what a command was to change is as it was
│   └── NotConfirmed     nobody has confirmed what a command would change
└── QueryError            the viewer cannot answer a request; the message says why
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class PlantlogError(Exception):
    """Base class of all exceptions that plantlog raises deliberately."""


def first_cause(error: BaseException) -> BaseException:
    """The first error that a group contains; an error that is no group: itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def one_line(text: str) -> str:
    """A text as one line: characters that cannot be printed are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in the configuration, with the legal values."""

    file: str
    line: int | None  # from 1; None where the whole file is meant
    field: str  # the option's or column's name, dotted for a nested one
    found: str  # the value, as written
    legal: str  # legal values, for people

    def __str__(self) -> str:
        location = self.file if self.line is None else f"{self.file}:{self.line}"
        return one_line(f"{location}: {self.field}: found {self.found}; legal: {self.legal}")


class ConfigError(PlantlogError):
    """The configuration is invalid. ``problems`` has every problem, not just the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SpoolError(PlantlogError):
    """Something is wrong with the spool."""


class SpoolFull(SpoolError):  # noqa: N818  (a state that callers wait out, not a fault)
    """The spool has reached its limit; the source must wait or record what it misses."""


class SpoolCorrupt(SpoolError):  # noqa: N818
    """A stored batch does not match its checksum, or its row."""


class SourceError(PlantlogError):
    """A source can't be read now."""


class DecodeError(SourceError):
    """A message from a source is not what its protocol says."""


class DeliveryError(PlantlogError):
    """A receiver did not accept a notification."""


class DatabaseError(PlantlogError):
    """The database is not what plantlog needs."""


class DatabaseAway(DatabaseError):  # noqa: N818  (a state: it may come back)
    """No server responds, or none that is the primary."""


class OldTimeline(DatabaseError):  # noqa: N818
    """The server is a former primary: what is written to it is lost once it is rewound."""


class LeaseLost(PlantlogError):  # noqa: N818  (nothing is wrong: the other one has taken over)
    """The other member of a redundant pair writes."""


class OperationError(PlantlogError):
    """A command cannot be carried out; the message says what to do."""


class NotAsSealed(OperationError):  # noqa: N818  (a finding)
    """Stored data are not what the day's seal says."""


class NotAllDone(OperationError):  # noqa: N818  (a finding)
    """A command has made only some of its changes; ``done`` says which."""

    def __init__(self, done: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.done = tuple(done)


class NotConfirmed(OperationError):  # noqa: N818  (a decision, not a fault)
    """Nobody has confirmed what a command would change. It has changed nothing."""


class QueryError(PlantlogError):
    """The viewer cannot answer a request; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
