"""Results of one simulated hour: differences between two snapshots, and the state at its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All figures at a moment; those of the database as ``figures`` of day.sql has them."""

    at: float  # monotonic, s
    generated: int  # µs
    cpu: dict[str, float]  # s so far, by part
    memory: dict[str, float]  # MiB, by process
    disk: int  # bytes of the state folder
    waited: float  # s for which the generator has waited for packing
    worst_lag: float  # s that a batch waited in the spool, at most, since the look before
    spool_bytes: int
    oldest: int  # µs: all samples before are packed
    stored: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hour:
    """A generated hour, or the part of one in which the measurement ended."""

    begin: int  # µs
    end: int
    seconds: float  # of our clock
    samples: int  # written
    cpu: dict[str, float]  # s, by part
    wal_bytes: float  # a sample
    wal_images: float  # full page images for 1,000 samples
    waited: float  # s of them in which the generator waited for packing
    worst_lag: float
    spool_bytes: int
    rows: int  # not packed, at the end of the hour
    oldest_hours: float  # age of the oldest of them, in generated time
    heap_bytes: int
    key_bytes: int
    key_levels: int | None
    dead_rows: int  # of samples that were packed, which no vacuum has seen yet
    vacuums: int
    packed: int  # samples
    packed_bytes: int
    rollup_bytes: int
    disk: int
    dirty_minutes: int
    sealed_days: int
    dropped: int  # samples, by retention
    memory: dict[str, float]

    @property
    def rate(self) -> float:
        """Samples a second of our clock."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def speed(self) -> float:
        """Generated seconds a second."""
        return (self.end - self.begin) / 1e6 / self.seconds if self.seconds else 0.0

    @property
    def packed_bytes_a_sample(self) -> float | None:
        """Bytes a sample, with key, TOAST and what is not yet reused."""
        return self.packed_bytes / self.packed if self.packed else None

    @property
    def key_bytes_a_row(self) -> float | None:
        """Key bytes of a row that is not packed."""
        return self.key_bytes / self.rows if self.rows > 0 else None

    def microseconds(self, part: str | None = None) -> float:
        """CPU a sample of a part; None: of all but the generator."""
        used = [
            seconds
            for process, seconds in self.cpu.items()
            if process == part or (part is None and process != "generator")
        ]
        return sum(used) / self.samples * 1e6 if self.samples else 0.0

    def figures(self) -> dict[str, Any]:
        """Figures for ``--json``."""
        derived: dict[str, Any] = {
            "rate": self.rate,
            "speed": self.speed,
            "packed_bytes_a_sample": self.packed_bytes_a_sample,
        }
        derived["key_bytes_a_row"] = self.key_bytes_a_row
        derived["cpu_us_a_sample"] = {part: self.microseconds(part) for part in self.cpu}
        return {**asdict(self), **derived}


def hour(before: Snapshot, now: Snapshot) -> Hour:
    """Hour from one look to the next."""
    then, stored = before.stored, now.stored
    samples = stored["written"] - then["written"]
    n_samples = max(1, samples)
    return Hour(
        before.generated,
        now.generated,
        now.at - before.at,
        samples,
        {part: used - before.cpu.get(part, 0.0) for part, used in now.cpu.items()},
        (stored["wal_bytes"] - then["wal_bytes"]) / n_samples,
        (stored["wal_images"] - then["wal_images"]) / n_samples * 1000,
        now.waited - before.waited,
        now.worst_lag,
        now.spool_bytes,
        stored["written"] - stored["packed"] - stored["dropped"],
        (now.generated - now.oldest) / 3.6e9,
        stored["heap_bytes"],
        stored["key_bytes"],
        stored["key_levels"],
        stored["dead_rows"],
        stored["vacuums"],
        stored["packed"],
        stored["packed_bytes"],
        stored["rollup_bytes"],
        now.disk,
        stored["dirty_minutes"],
        stored["sealed_days"],
        stored["dropped"],
        now.memory,
    )
