"""What of a line is a count: how often something happened since the last line, to be added up, not a value to be kept.

An increment is not idempotent as a sample is. So all counts of a body are one batch with a digest of the body, under
which the database knows it: a retry of the same body adds nothing, also when the first attempt is long in the database.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

from ingest.batch import MOST_COUNTED, CountBatch, Int64s
from ingest.push.line_protocol import Series, Value
from ingest.push.template import encoded

_LONGEST = 255  # characters of a type


class CountRule:
    """The source's option ``counts``: measurements, or fields as ``measurement.field``; ``*`` stands for any text."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)

    def type(self, series: Series, field: str) -> str | None:
        """``measurement.field``, percent-encoded as a channel's name is; None: it is no count."""
        of = (series.measurement, f"{series.measurement}.{field}")
        if not any(fnmatchcase(name, pattern) for pattern in self._patterns for name in of):
            return None
        return f"{encoded(series.measurement)}.{encoded(field)}"


NO_COUNTS = CountRule(())


@dataclass(slots=True)
class CountRows:
    """The counts of a body."""

    types: dict[str, int] = field(default_factory=dict)
    type: array[int] = field(default_factory=lambda: array("i"))
    channel_id: array[int] = field(default_factory=lambda: array("i"))
    time: array[int] = field(default_factory=lambda: array("q"))  # µs
    n: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.n)

    def add(self, kind: str, channel_id: int, time: int, value: Value) -> str | None:
        """Add one, or say why it is none."""
        if len(kind) > _LONGEST:
            return f"the type would be {len(kind)} characters long, at most {_LONGEST} are legal"
        if isinstance(value, bool) or not isinstance(value, int):
            return f"found {_shown(value)}; a count is a whole number, as in 3i"
        if not 0 <= value <= MOST_COUNTED:
            return f"found {value}; a count is not less than 0 and not more than {MOST_COUNTED}"
        self.type.append(self.types.setdefault(kind, len(self.types)))
        self.channel_id.append(channel_id)
        self.time.append(time)
        self.n.append(value)
        return None

    def times(self) -> Int64s:
        """(n,) µs."""
        return np.array(self.time, np.int64)

    def batch(self, source_id: int, received_at: int, digest: int) -> CountBatch:
        """All of them."""
        return CountBatch(
            source_id,
            received_at,
            tuple(self.types),
            np.array(self.type, np.int32),
            np.array(self.channel_id, np.int32),
            self.times(),
            np.array(self.n, np.int64),
            digest,
        )


def digest_of(body: bytes, precision: str, arrival: int) -> int:
    """What a body's counts are known by: a negative number, which no sequence of a spool is.

    ``arrival`` (µs) is the time of the lines without one, 0 where all have a time: who has the answer and sends the
    same lines without times again has counted again.
    """
    said = b"\n".join((precision.encode(), str(arrival).encode(), body))
    return -1 - (int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()) >> 1)


def _shown(value: Value) -> str:
    if isinstance(value, str):
        return "a text"
    return str(value).lower() if isinstance(value, bool) else repr(value)
