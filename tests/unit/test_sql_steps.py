"""Steps and changes of quality are those of a loop."""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from statistics import quantiles
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import OperationError
from ops.sql.scan import Scan
from ops.sql.steps import STEPS, Steps
from tests.unit.sql_samples import Sample, columns

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


def is_good(value: float, status: int) -> bool:
    return status >= 0 and abs(value) < 1e50


def expected(samples: list[Sample], steps: Steps) -> list[tuple[Any, ...]]:
    rows = []
    for channel, of_channel in groupby(samples, lambda one: one[0]):
        pairs = list(pairwise(one[1:] for one in of_channel))
        moved = [old[1] != new[1] and is_good(*old[1:]) and is_good(*new[1:]) for old, new in pairs]
        sizes = [abs(new[1] - old[1]) for (old, new), step in zip(pairs, moved, strict=True) if step]
        usual = quantiles(sizes, n=10, method="inclusive")[8] if len(sizes) > 1 else sum(sizes)
        before: float | None = None
        for (old, new), step in zip(pairs, moved, strict=True):
            size = abs(new[1] - old[1])
            jump = step and before is not None and size > steps.jump * usual >= before
            before = size if step else before
            turned = min(old[2] >> 30 & 3, 2) != min(new[2] >> 30 & 3, 2)
            if turned or (step and len(sizes) <= steps.few) or (jump and len(sizes) > steps.few):
                rows.append((channel, new[0], old[1], new[1], old[2], new[2], step, jump, len(sizes)))
    return rows


@given(
    _SAMPLES,
    st.integers(0, 9),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_steps_are_those_of_a_loop(samples: list[Sample], few: int, jump: float) -> None:
    steps = Steps(-40, 41, few, jump)
    found = plain(steps.of(columns(samples)))
    wanted = expected(samples, steps)
    assert [row[:2] for row in found] == [row[:2] for row in wanted]
    for row, other in zip(found, wanted, strict=True):
        for one, two in zip(row, other, strict=True):
            assert one == two or (math.isnan(one) and math.isnan(two))


def plain(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    columns = batch.set_column(1, "time", batch.column("time").cast(pa.int64())).to_pydict()
    return list(zip(*list(columns.values())[:9], strict=True))


def test_steps_need_to_be_known() -> None:
    known = (ds.field("since") == -5) & (ds.field("until") == 9) & (ds.field("few") == 3)
    assert Steps.wanted(Scan(STEPS, known & (ds.field("jump") == 2.5))) == Steps(-5, 9, 3, 2.5)
    with pytest.raises(OperationError, match="value_steps: jump: found no constant; legal: a number"):
        Steps.wanted(Scan(STEPS, known))
