"""Samples of channels, counted as they are read, up to each pause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ops.archive.sample_file import TIME
from ops.sql.columns import Columns, as_batch

if TYPE_CHECKING:
    from ops.sql.scan import Scan

_PARAMETERS = ("since", "until", "pause")
STRETCHES = pa.schema(
    [
        pa.field("channel_id", pa.int32(), nullable=False),
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("not_bad", pa.int64(), nullable=False),
        pa.field("first_time", TIME, nullable=False),
        pa.field("last_time", TIME, nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in _PARAMETERS),
    ]
)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Samples with since <= time < until, parted where no sample comes for as long as ``pause`` or longer; in µs."""

    since: int
    until: int
    pause: int

    @classmethod
    def wanted(cls, scan: Scan) -> Stretches:
        """Those that a query asks for. Raises OperationError."""
        return cls(**scan.constants("sample_stretches", _PARAMETERS))

    def of(self, found: Columns) -> Any:
        """The stretches of samples within the bounds, by channel and time, as a batch.

        A stretch may have several rows, with parts of its samples.
        """
        channel, time, status = found["channel_id"], found["time"], found["status"].view(np.int32)
        ends = np.flatnonzero((time[1:] - time[:-1] >= self.pause) | (channel[1:] != channel[:-1]))
        first, last = np.append(0, ends + 1)[: len(time)], np.append(ends, len(time) - 1)[: len(time)]
        n, good = last - first + 1, status >= 0
        columns = {
            "channel_id": channel[first],
            "samples": n,
            "not_bad": n if good.all() else np.add.reduceat(good, first, dtype=np.int64),
            "first_time": time[first],
            "last_time": time[last],
        }
        return as_batch(columns, STRETCHES, self)
