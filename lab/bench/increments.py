"""Workload of the counters benchmark: increments of many event types."""

from __future__ import annotations

import numpy as np

from core.batch import CountBatch, Int32s, Int64s
from core.timestamps import now_us

BATCH = 20_000  # increments

_BLOCKS = 16  # that are made once and sent in turn: making them is not what is measured
_SPAN_US = 10_000  # that the increments of a batch are apart


class Increments:
    """Batches of random types, all of them equally likely."""

    def __init__(self, types: int) -> None:
        self.types = tuple(f"machine{i // 10:03d}.alarm_{i % 10}" for i in range(types))
        random = np.random.default_rng(1)
        self._kinds = [random.integers(0, types, BATCH).astype(np.int32) for _ in range(_BLOCKS)]
        self._sums = [np.bincount(kinds, minlength=types) for kinds in self._kinds]
        self._ago = np.sort(random.integers(0, _SPAN_US, BATCH))[::-1].copy()
        self._ones = np.ones(BATCH, np.int64)
        self._of_no_channel = np.zeros(BATCH, np.int32)

    def kinds(self, number: int) -> Int32s:
        """The types of batch ``number``, as places in ``types``."""
        return self._kinds[number % _BLOCKS]

    def batch(self, number: int, source_id: int) -> CountBatch:
        """Batch ``number``, as of now."""
        now = now_us()
        columns = (self.kinds(number), self._of_no_channel, now - self._ago, self._ones)
        return CountBatch(source_id, now, self.types, *columns)

    def expected(self, batches: int) -> dict[str, int]:
        """Type → how often it happened in the first ``batches`` batches."""
        sums: Int64s = np.zeros(len(self.types), np.int64)
        for block, sum_of in enumerate(self._sums):
            sums += sum_of * len(range(block, batches, _BLOCKS))
        return {name: n for name, n in zip(self.types, sums.tolist(), strict=True) if n}
