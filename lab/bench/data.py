"""Test data, identical for every contestant, and the expected query results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.batch import Float64s, Int32s, Int64s, UInt32s

SECOND = 1_000_000  # µs
HOUR = 3600 * SECOND
DAY = 24 * HOUR
START = 1_735_689_600 * SECOND  # 2025-01-01 00:00 UTC: as much as is written is never in the future
BAD = 0x8005_0000  # BadCommunicationError (OPC 10000-6, A.2): its value is NaN
UNCERTAIN = 0x4090_0000  # UncertainLastUsableValue
SEVERITY_BAD = 0x8000_0000  # the bit that all Bad statuses have


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Samples as columns of equal length n."""

    channel: Int32s  # (n,) from 1
    time: Int64s  # (n,) µs since 1970-01-01 UTC
    value: Float64s  # (n,) NaN where the status is Bad
    status: UInt32s  # (n,) OPC UA StatusCode

    def __len__(self) -> int:
        return len(self.channel)

    def __getitem__(self, part: slice) -> Columns:
        return Columns(self.channel[part], self.time[part], self.value[part], self.status[part])


@dataclass(frozen=True, slots=True, eq=False)
class Raw:
    """The samples of one channel in one interval, by time."""

    time: Int64s  # (n,) µs
    value: Float64s  # (n,)
    status: UInt32s  # (n,)


@dataclass(frozen=True, slots=True, eq=False)
class Minutes:
    """Means of the samples that are not Bad, of each minute that has one."""

    minute: Int64s  # (n,) µs, its beginning
    mean: Float64s  # (n,)


def channel_names(channels: int) -> list[str]:
    """Metadata of channels 1 to ``channels``: a name like plants give, 29 characters."""
    return [f"north/unit{i // 50:03d}/transmitter{i:06d}" for i in range(1, channels + 1)]


def channel_units(channels: int) -> list[str]:
    """Their units."""
    return [("bar", "°C", "m³/h", "%")[i % 4] for i in range(1, channels + 1)]


class Plant:
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

    def samples(self, n: int) -> Columns:
        """The next ``n`` samples of each channel, step by step of all channels: the order of arrival."""
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
        return Columns(channel, time.ravel(), value.ravel(), status.ravel())


def batches(plant: Plant, size: int) -> Iterator[Columns]:
    """The plant's stream in batches of ``size``, without end."""
    seconds = max(1, -(-max(size, 20_000) // plant.channels))
    rest: list[Columns] = []
    while True:
        block = plant.samples(seconds)
        if rest:
            block = joined([*rest, block])
        whole = len(block) // size * size
        yield from (block[at : at + size] for at in range(0, whole, size))
        rest = [block[whole:]]


def joined(parts: Sequence[Columns]) -> Columns:
    """One after the other."""
    return Columns(
        np.concatenate([part.channel for part in parts]),
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.status for part in parts]),
    )


class History:
    """Samples that were written before: the right answers to queries."""

    def __init__(self, columns: Columns) -> None:
        order = np.lexsort((columns.time, columns.channel))
        self._sorted = Columns(columns.channel[order], columns.time[order], columns.value[order], columns.status[order])
        self.samples = len(columns)
        self.channels = int(columns.channel.max())
        self.start = int(columns.time.min())
        self.end = int(columns.time.max()) + 1

    def raw(self, channel: int, first: int, last: int) -> Raw:
        """The samples of ``channel`` from ``first`` to before ``last``."""
        low, high = np.searchsorted(self._sorted.channel, (channel, channel + 1))
        low, high = low + np.searchsorted(self._sorted.time[low:high], (first, last))
        part = self._sorted[int(low) : int(high)]
        return Raw(part.time, part.value, part.status)

    def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """Means by the minute of what is not Bad."""
        raw = self.raw(channel, first, last)
        usable = raw.status < SEVERITY_BAD
        minutes, place = np.unique(raw.time[usable] // (60 * SECOND), return_inverse=True)
        sums = np.bincount(place, raw.value[usable], len(minutes))
        return Minutes(minutes * 60 * SECOND, sums / np.bincount(place, minlength=len(minutes)))
