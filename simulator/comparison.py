"""Result of a comparison of the table with the ground truth, and the gaps that excuse what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

NEVER = 2**62  # µs
EXAMPLES = 10  # per kind of difference


@dataclass(slots=True)
class Comparison:
    """Numbers of samples in the interval, and a few examples of differences as text."""

    published: int = 0
    stored: int = 0
    duplicated: int = 0  # stored more than once
    invented: int = 0  # stored, but never published
    altered: int = 0  # stored with another value or status
    missing_recorded: int = 0  # published, not stored, inside a recorded gap
    missing_silent: int = 0  # published, not stored, without a gap
    examples: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Number of samples that were published, but not stored."""
        return self.missing_recorded + self.missing_silent

    def add(self, other: Comparison) -> None:
        """Sum of two comparisons."""
        for name in Comparison.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_examples(self, what: str, names: list[str], rows: NDArray[Any]) -> None:
        """Add some of ``rows`` (of :data:`ROW`) as examples of ``what``."""
        for row in rows[: max(0, EXAMPLES - len(self.examples))]:
            name = names[row["tag"]] if row["tag"] >= 0 else "a channel unknown to the simulator"
            self.examples.append(
                f"{what}: {name} at {row['time']} µs = {row['value']!r}, status 0x{row['status']:08X},"
                f" published at {row['at']} µs"
            )

    def count_missing(self, names: list[str], rows: NDArray[Any], gaps: Gaps) -> None:
        """Count missing ``rows`` (of :data:`ROW`)."""
        recorded = gaps.contain(rows)
        self.missing_recorded += int(recorded.sum())
        self.missing_silent += int((~recorded).sum())
        self.add_examples("missing, no gap", names, rows[~recorded])


class Gaps:
    """Recorded gaps: merged intervals (µs) by tag."""

    def __init__(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """``rows``: (tag, from, to)."""
        self._of: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        by_tag: dict[int, list[tuple[int, int]]] = {}
        for tag, start, end in rows:
            by_tag.setdefault(tag, []).append((start, end))
        for tag, spans in by_tag.items():
            joined: list[list[int]] = []
            for start, end in sorted(spans):
                if joined and start <= joined[-1][1]:
                    joined[-1][1] = max(joined[-1][1], end)
                else:
                    joined.append([start, end])
            starts, ends = np.array(joined, np.int64).T
            self._of[tag] = (starts, ends)

    def contain(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Mask of ``rows`` (of :data:`ROW`) inside a gap of their tag."""
        inside = np.zeros(len(rows), bool)
        for tag in np.unique(rows["tag"]).tolist():
            if tag not in self._of:
                continue
            of_tag = np.flatnonzero(rows["tag"] == tag)
            starts, ends = self._of[tag]
            for column in ("at", "time"):
                moments = rows[column][of_tag]
                k = np.searchsorted(starts, moments, "right") - 1
                inside[of_tag] |= (k >= 0) & (moments <= ends[np.maximum(k, 0)])
        return inside
