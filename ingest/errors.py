"""Every error that plantlog raises on purpose, in one tree.

PlantlogError
├── ConfigError          the configuration is not legal: all problems at once
├── SpoolError
│   ├── SpoolFull        no room for another batch: push back to the source
│   └── SpoolCorrupt     a stored batch is not what was written
├── SourceError          a source can't be read now; the message says which and why
│   └── DecodeError      a message from a source is not what its protocol says
├── DeliveryError        whom a message was sent to did not take it; it is sent again
├── DatabaseError        the database is not what plantlog needs; the message says what to do
├── OperationError       a command of the command line can't do what was asked
└── QuestionError        a question to the viewer has no answer; the message says why
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class PlantlogError(Exception):
    """Base of all errors that plantlog raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the configuration, and what would be right."""

    file: str
    line: int | None  # from 1; None where the whole file is meant
    field: str  # the option's or column's name, dotted for a nested one
    found: str  # what stands there, as written
    legal: str  # what may stand there

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        said = f"{place}: {self.field}: found {self.found}; legal: {self.legal}"
        # One line, whatever names of files and fields hold
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in said)


class ConfigError(PlantlogError):
    """The configuration is not legal. Holds every problem, not the first one only."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SpoolError(PlantlogError):
    """Something is wrong with the spool."""


class SpoolFull(SpoolError):  # noqa: N818  (a state that callers wait out, not a fault)
    """The spool has reached its limit; the source must wait or record what it misses."""


class SpoolCorrupt(SpoolError):  # noqa: N818
    """A stored batch does not match its checksum, or is not what its row says."""


class SourceError(PlantlogError):
    """A source can't be read now."""


class DecodeError(SourceError):
    """A message from a source is not what its protocol says."""


class DeliveryError(PlantlogError):
    """Whom a message was sent to did not take it."""


class DatabaseError(PlantlogError):
    """The database is not what plantlog needs."""


class OperationError(PlantlogError):
    """A command can't do what was asked; the message says what to do instead."""


class QuestionError(PlantlogError):
    """A question to the viewer has no answer; ``status`` is HTTP's number for it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
