"""Workload of the ingest benchmark: every channel once per second, in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from core.batch import Int32s, SampleBatch
from core.timestamps import microseconds
from ingest.writer.transaction.copy_stream import copy_stream

DAY = datetime(2026, 9, 22, tzinfo=UTC)  # the rows stay within one chunk
_T0 = microseconds(DAY)
_SECOND = 1_000_000  # µs


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """``seconds`` seconds of the channels in ``channel_id``, one batch of all channels a second."""

    source_id: int
    channel_id: Int32s
    seconds: int

    @property
    def rows(self) -> int:
        """Rows in all."""
        return self.seconds * len(self.channel_id)

    def batch(self, second: int) -> SampleBatch:
        """All channels at one second; values are a random walk of a transmitter's resolution."""
        n = len(self.channel_id)
        random = np.random.default_rng(second)
        time = _T0 + second * _SECOND
        return SampleBatch(
            self.source_id,
            time,
            self.channel_id,
            np.full(n, time, np.int64) + random.integers(0, 1000, n),
            random.integers(0, 10_000, n) / 100.0,
            np.zeros(n, np.uint32),
        )

    def copy_files(self, folder: Path, parts: int) -> list[Path]:
        """The same rows as binary COPY files, second by second in turn, one file a connection."""
        files = []
        for part in range(parts):
            batches = [self.batch(second) for second in range(part, self.seconds, parts)]
            path = folder / f"rows-{part + 1}-of-{parts}.copy"
            path.write_bytes(
                copy_stream(
                    np.concatenate([b.channel_id for b in batches]),
                    np.concatenate([b.time for b in batches]),
                    np.concatenate([b.value for b in batches]),
                    np.concatenate([b.status for b in batches]),
                )
            )
            files.append(path)
        return files
