"""Channels that repeat times already stored: their samples are looked up before COPY.

COPY rejects a whole group for one existing row, which costs an error in the server's log and the slow path. A
gateway that repeats one sample usually does so for a long time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.batch import Int32s

_CHANNELS = 256  # more at once are a replay of whole batches, which ends by itself
_SECONDS = 600.0  # without a repeat, until a channel is normal again
_ROWS = 10_000  # more in a group are not worth individual look-ups


class RepeatingChannels:
    """The repeating channels of one writer."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}  # time.monotonic()

    def add(self, channels: Sequence[int]) -> None:
        """A sample of each was stored already."""
        if len(channels) <= _CHANNELS:
            self._until.update(dict.fromkeys(channels, time.monotonic() + _SECONDS))

    def indices_in(self, channel_id: Int32s) -> NDArray[np.intp] | None:
        """The indices of their samples; None: there are none, or too many."""
        if not self._until:
            return None
        now = time.monotonic()
        self._until = {channel: until for channel, until in self._until.items() if until > now}
        if len(self._until) > _CHANNELS:
            self._until.clear()
        places = np.flatnonzero(np.isin(channel_id, list(self._until)))
        return places if 0 < len(places) <= _ROWS else None
