"""Functions of kernels: what many channels take that hold their values."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest

from core.samples import Samples
from core.timestamps import HOUR_US
from history.sql.kernel_functions import KernelFunctions
from history.sql.kernels.columns import ChannelFields
from tests.unit.history.sql_samples import columns

Result = TypeVar("Result")
_CHANNELS = 200
_STEP = 1_000_000  # µs
_MOST = 60_000_000  # bytes


@dataclass(frozen=True)
class _Together:
    """Source that has all samples in one portion, as it has those of channels that hold values."""

    samples: Samples

    def results(
        self,
        channels: Iterable[int] | None,
        within: tuple[int, int],
        kernel: Callable[[Iterable[Samples]], Iterable[Result]],
        names: Sequence[str] = (),
        *,
        in_parts: bool = False,
        known_by: int | None = None,
    ) -> Iterator[Result]:
        yield from kernel([self.samples])


def _first_moves(functions: KernelFunctions, channels: list[ChannelFields], buckets: int) -> Any:
    since, until = buckets * 9 // 10 * _STEP, buckets * _STEP
    return functions.first_moves(channels, [0, since], since, until, _STEP, 20.0 * HOUR_US, 0.0)


def _changes(functions: KernelFunctions, channels: list[ChannelFields], buckets: int) -> Any:
    since, until = buckets // 2 * _STEP, buckets * _STEP
    return functions.changes_of(channels, [0, since], since, until, _STEP, 5.5)


@pytest.mark.parametrize(("ask", "buckets"), [(_first_moves, 6000), (_changes, 4000)])
def test_channels_that_hold_values_take_memory_of_some_at_a_time(
    ask: Callable[[KernelFunctions, list[ChannelFields], int], Any], buckets: int
) -> None:
    rows = [(number, second * _STEP, value, 0) for number in range(_CHANNELS) for second, value in ((0, 1.0), (9, 2.0))]
    channels: list[ChannelFields] = [
        {
            "channel_id": number,
            "kind": "analog",
            "span": None,
            "wraps_at": None,
            "ends": buckets * _STEP,
            "gaps_from": [],
            "gaps_to": [],
            "pushed": False,
        }
        for number in range(_CHANNELS)
    ]
    tracemalloc.start()
    try:
        [found] = ask(KernelFunctions(_Together(columns(rows))), channels, buckets)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.unique([row["channel_id"] for row in found.as_py()]).tolist() == list(range(_CHANNELS))
    assert peak < _MOST
