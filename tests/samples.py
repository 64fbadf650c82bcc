"""Batches for tests."""

from collections.abc import Sequence

import numpy as np

from ingest.batch import SampleBatch

T0 = 1_790_000_000_000_000  # µs: a day in September 2026


def batch(rows: Sequence[tuple[int, int, float, int]], source_id: int = 1) -> SampleBatch:
    """A batch of (channel_id, µs since T0, value, status) rows."""
    channel_id, time, value, status = zip(*rows, strict=True)
    return SampleBatch(
        source_id,
        T0,
        np.array(channel_id, np.int32),
        np.array(time, np.int64) + T0,
        np.array(value, np.float64),
        np.array(status, np.uint32),
    )
