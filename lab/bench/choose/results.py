"""Combines the repeats of a contestant."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.bench.choose.answers import AS_SENT, Answers, share
from lab.bench.choose.steps import Measurement


@dataclass(frozen=True, slots=True)
class Result:
    """Medians of the repeats; the least sustained rate, as it has to hold each time. Rates are samples/s."""

    name: str
    settings: str
    by_size: dict[int, float]
    by_clients: dict[int, float]
    tried: list[tuple[float, float | None]]  # rate, p99 s (None: it did not keep up), of all repeats
    sustained: float | None
    sustained_p99: float | None  # s, the greatest
    queries: int
    raw_p50: float | None  # ms
    raw_p95: float | None
    minute_p50: float | None
    minute_p95: float | None
    live_p99: float | None  # s
    bytes_per_sample: float | None
    answers: Answers
    failed: str | None

    def figures(self) -> dict[str, float | None]:
        """Figures by criterion."""
        return {
            "ingest_batch": max(self.by_size.values(), default=None),
            "ingest_clients": max(self.by_clients.values(), default=None),
            "sustained": self.sustained,
            "query_p95": self.raw_p95,
            "bytes_per_sample": self.bytes_per_sample,
            "answers": share(self.answers) if self.answers else None,
        }


def combine(repeats: Sequence[Measurement]) -> Result:
    """All repeats of one contestant."""
    raw = [ms for repeat in repeats for ms in repeat.raw_ms]
    minute = [ms for repeat in repeats for ms in repeat.minute_ms]
    held = [repeat.sustained for repeat in repeats if repeat.sustained is not None]
    answers: Answers = {}
    for repeat in repeats:
        for check, answer in repeat.answers.items():
            if answers.get(check, AS_SENT) == AS_SENT:
                answers[check] = answer
    return Result(
        repeats[0].name,
        repeats[0].settings,
        _medians([repeat.by_size for repeat in repeats]),
        _medians([repeat.by_clients for repeat in repeats]),
        [(rate, _finite(p99)) for repeat in repeats for rate, p99 in repeat.tried.items()],
        min(held, default=None),
        max((repeat.sustained_p99 for repeat in repeats if repeat.sustained_p99 is not None), default=None),
        len(raw),
        *_percentiles(raw),
        *_percentiles(minute),
        max((p99 for repeat in repeats if (p99 := _finite(repeat.live_p99)) is not None), default=None),
        statistics.median(b) if (b := [r.bytes_per_sample for r in repeats if r.bytes_per_sample]) else None,
        answers,
        next((repeat.failed for repeat in repeats if repeat.failed), None),
    )


def _medians(repeats: Sequence[dict[int, float]]) -> dict[int, float]:
    return {key: statistics.median(of[key] for of in repeats if key in of) for of in repeats for key in of}


def _percentiles(ms: Sequence[float]) -> tuple[float | None, float | None]:
    if not ms:
        return None, None
    p50, p95 = np.percentile(ms, (50, 95)).tolist()
    return p50, p95


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
