"""Batches for tests."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from core.batch import CountBatch, SampleBatch
from core.samples import Samples

T0 = 1_790_000_000_000_000  # µs: a day in September 2026


def batch(rows: Sequence[tuple[int, int, float, int]], source_id: int = 1) -> SampleBatch:
    """A batch of (channel_id, µs since T0, value, status) rows."""
    channel_id, time, value, status = zip(*rows, strict=True)
    return SampleBatch(
        source_id,
        T0,
        Samples(
            np.array(channel_id, np.int32),
            np.array(time, np.int64) + T0,
            np.array(value, np.float64),
            np.array(status, np.uint32),
        ),
    )


Increment: TypeAlias = tuple[int, str, int, int]  # µs since T0, type, channel, n


def count_batch(increments: Sequence[Increment], source_id: int = 1, digest: int | None = None) -> CountBatch:
    """A batch of increments."""
    time, kind, channel_id, n = zip(*increments, strict=True)
    types = tuple(dict.fromkeys(kind))
    place = {name: i for i, name in enumerate(types)}
    return CountBatch(
        source_id,
        T0,
        types,
        np.array([place[name] for name in kind], np.int32),
        np.array(channel_id, np.int32),
        np.array(time, np.int64) + T0,
        np.array(n, np.int64),
        digest,
    )
