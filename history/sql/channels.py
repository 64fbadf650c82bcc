"""Channels as questions name them to what reads samples: when they end, and their gaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from history.archive.sample_file import rows_of

ChannelFields = Mapping[str, Any]  # the fields of CHANNEL
CHANNEL = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("kind", pa.string()),
        ("span", pa.float64()),  # of its range; None: it has none
        ("wraps_at", pa.float64()),  # where a counter starts again from 0; None: it does not
        ("ends", pa.int64()),  # µs
        ("gaps_from", pa.list_(pa.int64())),  # µs, ascending
        ("gaps_to", pa.list_(pa.int64())),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """Some channels, n of them by ascending id."""

    channels: NDArray[np.int32]  # (n,)
    counters: NDArray[np.bool_]  # (n,) the rate between two samples counts, and not the value
    wraps: Float64s  # (n,) where a counter starts again from 0; NaN: it does not
    ends: Int64s  # (n,) µs
    gap_channels: NDArray[np.int32]  # (gaps,) ascending
    gaps: Int64s  # (gaps, 2) where each begins and ends (µs)

    @classmethod
    def of(cls, fields: Iterable[ChannelFields]) -> Channels:
        """Make them from their fields, in any order."""
        every = sorted(fields, key=lambda one: int(one["channel_id"]))
        ids = np.array([one["channel_id"] for one in every], np.int32)
        edges = ([time for one in every for time in one[name]] for name in ("gaps_from", "gaps_to"))
        return cls(
            ids,
            np.array([one["kind"] == "counter" for one in every], np.bool_),
            np.array([one.get("wraps_at") for one in every], np.float64),
            np.array([one["ends"] for one in every], np.int64),
            np.repeat(ids, [len(one["gaps_from"]) for one in every]),
            np.column_stack([np.array(one, np.int64) for one in edges]),
        )

    def places(self, channels: NDArray[np.int32]) -> NDArray[np.intp]:
        """Positions of channels among these."""
        return np.searchsorted(self.channels, channels)

    def is_counter(self, channel: int) -> bool:
        """Whether a channel, one of these, is a counter."""
        return bool(self.counters[np.searchsorted(self.channels, channel)])

    def gaps_of(self, channel: int) -> Int64s:
        """The gaps of a channel, (gaps, 2)."""
        return self.gaps[rows_of(self.gap_channels, channel)]


def spans(channels: Iterable[ChannelFields]) -> dict[int, float]:
    """The spans of the ranges of channels that have one."""
    return {one["channel_id"]: one["span"] for one in channels if one["span"] is not None}
