"""Samples of channels in intervals of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ingest.batch import Int64s
from ops.archive.sample_file import TIME, segments
from ops.sql.columns import Columns, good_samples, part

WITHIN = pa.struct([("channel_id", pa.int32()), ("time", TIME), ("value", pa.float64())])


@dataclass(frozen=True, slots=True)
class Within:
    """Those as good_samples (schema/queries/duckdb.sql) has them."""

    edges: Mapping[int, Int64s]  # of each channel where its intervals begin and end, ascending (µs)

    def of(self, found: Columns) -> Columns:
        """The columns of WITHIN. ``found``: samples by channel and time."""
        channel, time, value = good_samples(found)
        inside = np.empty(len(time), np.bool_)
        for rows in segments(channel):
            inside[rows] = np.searchsorted(self.edges[int(channel[rows.start])], time[rows], "right") % 2 == 1
        return part({"channel_id": channel, "time": time, "value": value}, inside)
