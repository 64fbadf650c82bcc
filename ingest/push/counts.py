"""Count fields: how often something happened since the last line; added up instead of stored as a sample.

Unlike a sample, an increment is not idempotent. So all counts of a body form one batch, keyed by a digest of the body,
so that a retry of the same body adds nothing, however late it comes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

from core.batch import MAX_INCREMENT, CountBatch, Int64s, sequence_of
from core.config.push_address import encoded
from ingest.push.line_protocol import Series, Value

_LONGEST = 255  # characters of a type


class CountRule:
    """The source's option ``counts``: measurements, or fields as ``measurement.field``; ``*`` stands for any text."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)

    def type(self, series: Series, field: str) -> str | None:
        """``measurement.field``, percent-encoded like a channel name; None: not a count."""
        names = (series.measurement, f"{series.measurement}.{field}")
        if not any(fnmatchcase(name, pattern) for pattern in self._patterns for name in names):
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
        """Add a count; return an error message if the value is not one."""
        if len(kind) > _LONGEST:
            return f"the type is {len(kind)} characters long; at most {_LONGEST} are legal"
        if isinstance(value, bool) or not isinstance(value, int):
            return f"found {_describe(value)}; a count is a whole number, as in 3i"
        if not 0 <= value <= MAX_INCREMENT:
            return f"found {value}; a count is from 0 to {MAX_INCREMENT}"
        self.type.append(self.types.setdefault(kind, len(self.types)))
        self.channel_id.append(channel_id)
        self.time.append(time)
        self.n.append(value)
        return None

    def times(self) -> Int64s:
        """Times (µs), (n,)."""
        return np.array(self.time, np.int64)

    def batch(self, source_id: int, received_at: int, digest: int) -> CountBatch:
        """Batch of all counts."""
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
    """The key of a body's counts.

    ``arrival`` (µs): time of lines without timestamp, 0 if all have one: a client that got the response and repeats the
    same lines without timestamps again has counted again.
    """
    return sequence_of(b"\n".join((precision.encode(), str(arrival).encode(), body)))


def _describe(value: Value) -> str:
    if isinstance(value, str):
        return "a text"
    return str(value).lower() if isinstance(value, bool) else repr(value)
