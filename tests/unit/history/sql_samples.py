"""Samples as what the tables of ``plantlog sql`` are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from core.samples import Samples

Sample = tuple[int, int, float, int]  # channel, time (µs), value, status; sorted


def columns(samples: Sequence[Sample]) -> Samples:
    channel, time, value, status = zip(*samples, strict=True) if samples else ([], [], [], [])
    return Samples(
        np.array(channel, np.int32),
        np.array(time, np.int64),
        np.array(value, np.float64),
        np.array([one & 0xFFFFFFFF for one in status], np.uint32),
    )


def parts(samples: Sequence[Sample], size: int | None) -> Iterator[Samples]:
    """All of them; or parts of a channel each, of so many samples."""
    if size is None:
        yield columns(samples)
        return
    for _, of_channel in groupby(samples, lambda one: one[0]):
        some = list(of_channel)
        yield from (columns(some[k : k + size]) for k in range(0, len(some), size))
