"""The kernels of aggregates over samples in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.samples import NO_SAMPLES, Samples
from history.sql.kernels.aggregates import Aggregates
from history.sql.kernels.columns import ChannelFields, Columns
from history.sql.kernels.courses import Configuration, Courses, neighbours
from history.sql.kernels.interpolated import Values
from tests.unit.history.sql_samples import columns

_NOW = 4_000_000_000_000_000  # µs: later than all samples


@dataclass(frozen=True, slots=True)
class Channel:
    """Samples (µs, value, status) by time, and when gaps begin."""

    samples: Sequence[tuple[int, float, int]]
    gaps: Sequence[int] = field(default=())
    kind: str = "analog"
    ends: int = _NOW
    wraps_at: float | None = None

    def fields(self, number: int) -> ChannelFields:
        gaps = sorted(self.gaps)
        return {
            "channel_id": number,
            "kind": self.kind,
            "span": None,
            "wraps_at": self.wraps_at,
            "ends": self.ends,
            "gaps_from": gaps,
            "gaps_to": [gap + 1 for gap in gaps],
        }


def aggregates(
    channels: Sequence[Channel],
    window: tuple[int, int],
    step: int,
    configuration: Configuration,
    names: Sequence[str],
    state: float = 1.0,
    fraction: float = 0.5,
) -> list[list[tuple[float, float, int]]]:
    """Value, seconds and status by interval, of each channel and aggregate (those of a channel together)."""
    courses, inside = _courses(channels, window, configuration)
    kernel = Aggregates(courses, step, names, state, fraction)
    found = _all(kernel, len(channels), inside)
    n = len(kernel.starts)
    order = np.lexsort((found["time"], found["number"], found["channel_id"]))
    rows = [*zip(*(found[name][order].tolist() for name in ("value", "seconds", "status")), strict=True)]
    assert found["time"][order].tolist() == kernel.starts.tolist() * (len(channels) * len(names))
    return [rows[k : k + n] for k in range(0, len(rows), n)]


def values(
    channels: Sequence[Channel], times: Sequence[int], configuration: Configuration
) -> list[list[tuple[int, float, int, int, float, int, int, float, int]]]:
    """Time, value and status at these times, and those of the samples before and after, of each channel."""
    window = min(times), max(times) + 1
    courses, inside = _courses(channels, window, configuration)
    found = _all(Values(courses, np.array(times, np.int64)), len(channels), inside)
    names = [f"{side}{name}" for side in ("", "before_", "after_") for name in ("time", "value", "status")]
    order = np.lexsort((found["time"], found["channel_id"]))
    rows = [*zip(*(found[name][order].tolist() for name in names), strict=True)]
    return [rows[k : k + len(times)] for k in range(0, len(rows), len(times))]


def _courses(
    channels: Sequence[Channel], window: tuple[int, int], configuration: Configuration
) -> tuple[Courses, Samples]:
    """Courses, and the samples in the window."""
    every = columns([(number, *sample) for number, channel in enumerate(channels) for sample in channel.samples])

    def read(ids: Collection[int], within: tuple[int, int], of: Callable[[Samples], Samples]) -> Iterable[Samples]:
        here = np.isin(every.channel, [*ids]) & (every.time >= within[0]) & (every.time < within[1])
        return (of(samples) for _, samples in every.part(here).by_channel())

    fields = [channel.fields(number) for number, channel in enumerate(channels)]
    around = neighbours(read, range(len(channels)), window, configuration)
    inside = (every.time >= window[0]) & (every.time < window[1])
    return Courses.of_fields(fields, window, around, configuration), every.part(inside)


def _all(kernel: Aggregates | Values, n: int, inside: Samples) -> Columns:
    """Results of a kernel for all channels: those with samples in the window together, then the others."""
    some = kernel.compute(inside)
    others = sorted(set(range(n)) - set(some["channel_id"].tolist()))
    rest = kernel.of_channels(others, NO_SAMPLES)
    return {name: np.concatenate([column, rest[name]]) for name, column in some.items()}
