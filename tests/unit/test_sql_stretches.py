"""Stretches of samples are those of a loop, however the samples of a channel are divided."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from itertools import pairwise
from operator import and_

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import OperationError
from ops.sql.columns import one_batch
from ops.sql.scan import Scan
from ops.sql.stretches import STRETCHES, Stretches
from tests.unit.sql_samples import Sample, parts

BAD = 0x80000000
_SAMPLES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(-40, 40), st.just(1.0), st.sampled_from([0, 0, BAD, 0x40000000])),
    max_size=40,
    unique_by=lambda one: one[:2],
).map(sorted)


@given(_SAMPLES, st.integers(2, 90), st.one_of(st.none(), st.integers(1, 41)))
def test_stretches_are_those_of_a_loop(samples: list[Sample], pause: int, size: int | None) -> None:
    stretches = Stretches(-40, 41, pause)
    [batch] = one_batch(stretches.of)(parts(samples, size)) or [pa.RecordBatch.from_pylist([], STRETCHES)]
    columns = [one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one for one in batch.columns]
    rows = pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
    counts, good = Counter[int](), Counter[int]()
    for row in rows:
        assert (row["since"], row["until"], row["pause"]) == (-40, 41, pause)
        counts[row["channel_id"]] += row["samples"]
        good[row["channel_id"]] += row["not_bad"]
    assert counts == Counter(channel for channel, *_ in samples)
    assert +good == Counter(channel for channel, _, _, status in samples if not status & BAD)
    spans = [(row["channel_id"], row["first_time"], row["last_time"]) for row in rows]
    between = {((a, last), (b, first)) for (a, _, last), (b, first, _) in pairwise(spans) if a == b}
    pauses = {(one[:2], two[:2]) for one, two in pairwise(samples) if one[0] == two[0] and two[1] - one[1] >= pause}
    assert {(one, two) for one, two in between if two[1] - one[1] >= pause} == pauses
    edges = {(channel, time) for channel, *both in spans for time in both}
    assert edges <= {one[:2] for one in samples}


def test_stretches_need_to_be_known() -> None:
    condition = reduce(and_, (ds.field(name) == value for name, value in {"since": 5, "until": 17}.items()))
    with pytest.raises(OperationError, match="sample_stretches: pause: found no constant; legal: a number"):
        Stretches.wanted(Scan(STRETCHES, condition))
    assert Stretches.wanted(Scan(STRETCHES, condition & (ds.field("pause") == 3))) == Stretches(5, 17, 3)
    for more in (ds.field("since") == 6, ds.field("channel_id") == 1, ds.field("pause") > 2):
        either = (condition & (ds.field("pause") == 3)) | more
        with pytest.raises(OperationError, match="since: found a condition that more values than 5 meet; legal: one"):
            Stretches.wanted(Scan(STRETCHES, either))
    both = condition & (ds.field("pause") == 3) & ((ds.field("channel_id") == 1) | (ds.field("channel_id") == 2))
    assert Stretches.wanted(Scan(STRETCHES, both)) == Stretches(5, 17, 3)
    with pytest.raises(OperationError, match="since: found no constant"):
        Stretches.wanted(Scan(STRETCHES, None))
