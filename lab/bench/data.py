"""Samples of a generated plant."""

from __future__ import annotations

import numpy as np

from core.batch import Float64s
from core.samples import Samples

SECOND = 1_000_000  # µs
HOUR = 3600 * SECOND
BAD = 0x8005_0000  # BadCommunicationError (OPC 10000-6, A.2): its value is NaN
UNCERTAIN = 0x4090_0000  # UncertainLastUsableValue


def channel_names(channels: int) -> list[str]:
    """Metadata of channels 1 to ``channels``: a name like plants give, 29 characters."""
    return [f"north/unit{i // 50:03d}/transmitter{i:06d}" for i in range(1, channels + 1)]


def channel_units(channels: int) -> list[str]:
    """Units of the channels."""
    return [("bar", "°C", "m³/h", "%")[i % 4] for i in range(1, channels + 1)]


def values(series: str, n: int, random: np.random.Generator) -> Float64s:
    """Values of a transmitter, or ``noisy`` ones with all their digits, shape (n,)."""
    if series == "noisy":
        return random.normal(50.0, 10.0, n)
    return (5000 + np.cumsum(np.rint(random.normal(0.0, 2.5, n)))) / 100


class SampleGenerator:
    """Channels, a quarter of them each noisy, transmitter-like, transmitter-like with jittered times, and slow.

    The stream is the same however it is cut: each kind of draw has a generator of its own.
    """

    def __init__(self, channels: int, start: int, seed: int = 5, step: int = SECOND) -> None:
        """``step``: µs between two samples of a channel, 20 ms or more."""
        if channels < 4:
            raise ValueError("there are four kinds of series: at least 4 channels")
        self.channels = channels
        self.next = start  # µs; where the next step begins
        self._step = step
        self._noise, self._steps, self._moves, self._signs, self._jitter, self._quality = (
            np.random.default_rng([seed, draw]) for draw in range(6)
        )
        self._kind = np.arange(channels) % 4
        self._level = np.full(int(np.count_nonzero((self._kind == 1) | (self._kind == 2))), 5000.0)
        self._slow = np.full(int(np.count_nonzero(self._kind == 3)), 500.0)

    def samples(self, n: int) -> Samples:
        """The next ``n`` samples of each channel, from 1, step by step of all channels: the order of arrival.

        Values are NaN where the status is Bad.
        """
        value = np.empty((n, self.channels))
        noisy, slow, jittered = self._kind == 0, self._kind == 3, self._kind == 2
        value[:, noisy] = self._noise.normal(50.0, 10.0, (n, int(noisy.sum())))
        walk = self._level + np.cumsum(np.rint(self._steps.normal(0.0, 2.5, (n, len(self._level)))), axis=0)
        value[:, ~noisy & ~slow] = walk / 100
        signs = np.where(self._signs.random((n, len(self._slow))) < 0.5, -1.0, 1.0)
        drift = self._slow + np.cumsum(signs * (self._moves.random((n, len(self._slow))) < 1 / 300), axis=0)
        value[:, slow] = drift / 10
        self._level, self._slow = walk[-1], drift[-1]
        regular = self.next + np.arange(n, dtype=np.int64)[:, None] * self._step
        time = np.broadcast_to(regular, (n, self.channels)).copy()
        time[:, jittered] += (self._jitter.random((n, int(jittered.sum()))) * 20_000).astype(np.int64)  # below 20 ms
        self.next += n * self._step
        quality = self._quality.random((n, self.channels))
        status = np.where(quality < 0.002, BAD, np.where(quality < 0.012, UNCERTAIN, 0)).astype(np.uint32)
        value[status == BAD] = np.nan
        channel = np.tile(np.arange(1, self.channels + 1, dtype=np.int32), n)
        return Samples(channel, time.ravel(), value.ravel(), status.ravel())
