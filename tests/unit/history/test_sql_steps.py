"""Steps and changes of quality are those of a loop."""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.batch import Float64s, Int64s
from history.sql.kernels.columns import Columns
from history.sql.kernels.steps import Steps
from tests.unit.history.sql_samples import Sample, columns

BAD, UNCERTAIN = -(2**31), 2**30
_SAMPLES = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(-40, 40),
        st.sampled_from([1.0, 1.0, 1.0, 2.0, 2.5, 0.0, -0.0, 1e-60, 50.0, 1e60, float("nan")]),
        st.sampled_from([0, 0, 0, 0, 1, BAD, BAD + UNCERTAIN, UNCERTAIN]),
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda one: one[:2],
).map(sorted)


class Sized(Steps):
    """Steps of more than a size are jumps, whatever the reference."""

    size = 0.0

    def _limit(self, time: Int64s, value: Float64s) -> float:
        return self.size


def is_good(value: float, status: int) -> bool:
    return status >= 0 and abs(value) < 1e50


def expected(samples: list[Sample], steps: Sized) -> list[tuple[Any, ...]]:
    rows = []
    for channel, of_channel in groupby(samples, lambda one: one[0]):
        every = [(time, 0.0 if abs(value) < 1e-50 else value, status) for _, time, value, status in of_channel]
        pairs = list(pairwise(every))
        goods = [next((one[1] for one in every[at::-1] if is_good(*one[1:])), math.nan) for at in range(len(pairs))]
        moved = [
            not math.isnan(value) and value != new[1] and is_good(*new[1:])
            for value, (_, new) in zip(goods, pairs, strict=True)
        ]
        olds = [good if step else old[1] for good, (old, _), step in zip(goods, pairs, moved, strict=True)]
        sizes = [abs(new[1] - value) for value, (_, new), step in zip(olds, pairs, moved, strict=True) if step]
        before, last = None, max((at for at, step in enumerate(moved) if step), default=None)
        for at, (value, (old, new), step) in enumerate(zip(olds, pairs, moved, strict=True)):
            size = abs(new[1] - value)
            jump = step and before is not None and size > steps.size >= before
            before = size if step else before
            turned = min(old[2] >> 30 & 3, 2) != min(new[2] >> 30 & 3, 2)
            if turned or (step and len(sizes) <= steps.few) or ((jump or at == last) and len(sizes) > steps.few):
                rows.append((channel, new[0], value, new[1], old[2], new[2], step, jump, len(sizes)))
    return rows


@given(
    _SAMPLES,
    st.integers(0, 9),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_steps_are_those_of_a_loop(samples: list[Sample], few: int, size: float) -> None:
    steps = Sized(few, (0, 0), 1.0)
    with patch.object(Sized, "size", size):
        check(samples, steps)


def check(samples: list[Sample], steps: Sized) -> None:
    computed = plain(steps.compute(columns(samples)))
    wanted = expected(samples, steps)
    assert [row[:2] for row in computed] == [row[:2] for row in wanted]
    for row, other in zip(computed, wanted, strict=True):
        for one, two in zip(row, other, strict=True):
            assert math.isclose(one, two, abs_tol=1e-50) or (math.isnan(one) and math.isnan(two))


def plain(computed: Columns) -> list[tuple[Any, ...]]:
    return list(zip(*(column.tolist() for column in computed.values()), strict=True))


def test_a_jump_is_larger_than_the_steps_of_the_reference_are_by_chance() -> None:
    noise = np.random.default_rng(1).normal(50, 1, 600)
    noise[320:] += 20
    samples: list[Sample] = [(1, at, float(value), 0) for at, value in enumerate(noise)]

    def jumps(reference: tuple[int, int], false_alarms: float = 6000.0) -> list[int]:
        computed = Steps(3, reference, false_alarms).compute(columns(samples))
        return [int(at) for at in computed["time"][computed["is_jump"]]]

    assert jumps((0, 300)) == [320]
    assert jumps((280, 580)) == []  # it is usual there
    assert jumps((0, 300), 1e300) == []
    assert jumps((0, 30)) == []  # too short to say
