"""The samples of a channel's day, by hour and by meaning. It needs no database: archives are verified by it, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise

import numpy as np

from core.samples import Samples
from core.timestamps import HOUR_US, begin, microseconds
from history.standalone import ChannelLabel, tagged_hash

_SAMPLE = np.dtype([("time", ">i8"), ("value", ">u8"), ("status", ">u4")])  # the canonical form: 20 bytes


def hour_digests(
    samples: Samples, day: date, kept: dict[tuple[int, int], bytes] | None = None
) -> dict[int, tuple[int, bytes]]:
    """Hour of the day → (n, digest), of the hours that have samples of one channel, by time.

    ``kept``: the values for this channel and hours of it become the samples in the canonical form.
    """
    rows = np.empty(len(samples), _SAMPLE)
    rows["time"], rows["value"], rows["status"] = samples.time, samples.bits, samples.status
    edges = np.searchsorted(samples.time, microseconds(begin(day)) + np.arange(25) * HOUR_US).tolist()
    parts = [(hour, rows[i:j].tobytes(), j - i) for hour, (i, j) in enumerate(pairwise(edges)) if i < j]
    if kept and len(samples):
        channel = int(samples.channel[0])
        kept |= {(channel, hour): content for hour, content, _ in parts if (channel, hour) in kept}
    return {hour: (n, tagged_hash("hour", content)) for hour, content, n in parts}


def by_label(samples: Samples, labels: Sequence[ChannelLabel]) -> Iterator[tuple[ChannelLabel, Samples]]:
    """A channel's samples, by time, under each of the day's meanings; those without samples are left out."""
    edges = [0, *np.searchsorted(samples.time, [label[0] for label in labels[1:]]).tolist(), len(samples)]
    for label, i, j in zip(labels, edges[:-1], edges[1:], strict=True):
        if i < j:
            yield label, samples.part(slice(i, j))
