"""Channels whose samples came with a time that the table has: whether it has the next ones is asked before COPY.

COPY refuses a whole group for one row that is there, which costs an error in the server's log and the slow lane. A
gateway that sends one sample again does so for long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ingest.batch import Int32s

_CHANNELS = 256  # more at once is a replay of whole batches, which ends by itself
_SECONDS = 600.0  # without a repeat, until a channel is one as others are
_ROWS = 10_000  # more of a group are not worth a look-up each


class Repeating:
    """Those that the connections of one writer saw."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}  # time.monotonic()

    def saw(self, channels: Sequence[int]) -> None:
        """A sample of each was there already."""
        if len(channels) <= _CHANNELS:
            self._until.update(dict.fromkeys(channels, time.monotonic() + _SECONDS))

    def among(self, channel_id: Int32s) -> NDArray[np.intp] | None:
        """The places of their samples; None: there are none, or too many."""
        if not self._until:
            return None
        now = time.monotonic()
        self._until = {channel: until for channel, until in self._until.items() if until > now}
        if len(self._until) > _CHANNELS:
            self._until.clear()
        places = np.flatnonzero(np.isin(channel_id, list(self._until)))
        return places if 0 < len(places) <= _ROWS else None
