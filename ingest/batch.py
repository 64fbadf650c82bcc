"""The only things that move through plantlog: a batch of samples, and a batch of events.

A sample is (channel, time, value, status). Samples move as columns of one length, never as rows,
because a Python object a row costs thirty times what a numpy column does.

Times are microseconds since 1970-01-01 00:00 UTC (``int64``), PostgreSQL's own resolution.
Status is an OPC UA StatusCode (OPC 10000-4, 7.39; 0 is Good); collectors of other protocols map
their failures to the closest code.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Float64s: TypeAlias = NDArray[np.float64]
UInt32s: TypeAlias = NDArray[np.uint32]

ROW_BYTES = 24  # channel_id 4 + time 8 + value 8 + status 4


def now_us() -> int:
    """This machine's clock: microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True, eq=False)
class SampleBatch:
    """Samples of one source, as columns of equal length n ≥ 1.

    Order is order of arrival; the writer sorts. ``value`` is meaningless, and 0 or NaN by custom,
    where ``status`` is Bad.
    """

    source_id: int
    received_at: int  # µs, this machine's clock
    channel_id: Int32s  # (n,)
    time: Int64s  # (n,) µs
    value: Float64s  # (n,)
    status: UInt32s  # (n,)

    def __post_init__(self) -> None:
        n = len(self.channel_id)
        if not (n == len(self.time) == len(self.value) == len(self.status)):
            raise ValueError(
                f"columns of unequal length: channel_id {n}, time {len(self.time)}, "
                f"value {len(self.value)}, status {len(self.status)}"
            )
        for name, dtype in (
            ("channel_id", np.int32),
            ("time", np.int64),
            ("value", np.float64),
            ("status", np.uint32),
        ):
            found = getattr(self, name).dtype
            if found != dtype:
                raise ValueError(f"column {name} is {found}, not {np.dtype(dtype)}")

    def __len__(self) -> int:
        return len(self.channel_id)


@dataclass(frozen=True, slots=True)
class Event:
    """What is not a number, or happens now and then.

    ``type`` is one of the names in :data:`EVENT_TYPES`. A text value of a channel is an event of type
    ``text`` with the text in ``text`` and the sample's own status.
    """

    type: str
    time: int  # µs
    channel_id: int | None = None
    status: int | None = None
    text: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


EVENT_TYPES = (
    "text",  # a value of a text channel
    "source_state",  # a source connected, disconnected, ...; text is the new state, detail.reason says why
    "channel_state",  # one channel became unreadable or readable again
    "conflict",  # a second, different value for the same (channel, time) was kept out
    "quarantine",  # a sample whose time no table can hold was kept out; detail has all of it
    "clock_skew",  # a source's clock and ours differ by more than the limit
    "missed",  # polls that were due and could not be made or stored; detail.from/to in µs
    "restart",  # a process of plantlog started
)


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of one source, in order of arrival."""

    source_id: int
    received_at: int  # µs
    events: Sequence[Event]

    def __len__(self) -> int:
        return len(self.events)


Batch: TypeAlias = SampleBatch | EventBatch
