"""Groups: sorting, samples that come twice, times that no table can hold."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.batch import Event, EventBatch
from core.time_limits import TimeLimits
from core.timestamps import timestamp
from ingest.spool.format import SpooledBatch
from ingest.writer.transaction.conflicts import conflict_count
from ingest.writer.transaction.day_limits import DayLimits
from ingest.writer.transaction.group import Group, assemble
from ingest.writer.transaction.quarantine import columns, to_batch
from tests.samples import T0, batch

LIMITS = TimeLimits(future=86400.0, oldest=3650 * 86400.0)
Row = tuple[int, int, float, int]
ROWS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(0, 5),
        st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
        st.sampled_from([0, 0x80050000]),
    ),
    min_size=1,
    max_size=40,
)


def group_of(*batches: list[Row]) -> Group:
    spooled = [SpooledBatch(i, 0, 0, batch(rows)) for i, rows in enumerate(batches)]
    return assemble([(Path("a.sqlite"), spooled)], LIMITS)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_first_row_of_each_key_is_kept_and_the_others_are_counted(batches: list[list[Row]]) -> None:
    group = group_of(*batches)
    first: dict[tuple[int, int], tuple[bytes, int]] = {}
    repeated = conflicts = 0
    for channel, time, value, status in (row for rows in batches for row in rows):
        pair = (np.float64(value).tobytes(), status)
        kept = first.setdefault((channel, time), pair)
        repeated += kept == pair
        conflicts += kept != pair
    samples = group.samples
    keys = list(zip(samples.channel.tolist(), (samples.time - T0).tolist(), strict=True))
    assert keys == sorted(first)
    assert [(v.tobytes(), int(s)) for v, s in zip(samples.value, samples.status, strict=True)] == [
        first[key] for key in keys
    ]
    assert group.repeated == repeated - len(first)
    assert conflict_count(group.conflicts) == conflicts
    places = [(event.channel_id, event.time) for _, event in group.conflicts]
    assert len(places) <= len(batches) * 4, "one a channel and batch"


def test_conflict_event_has_both_values() -> None:
    group = group_of([(7, 1, 0.1, 0), (7, 1, float("nan"), 0x80050000)])
    ((source_id, event),) = group.conflicts
    assert (source_id, event.type, event.channel_id, event.time) == (1, "conflict", 7, T0 + 1)
    assert event.detail == {
        "kept_value": "0.1",
        "kept_status": "0x00000000",
        "refused_value": "nan",
        "refused_status": "0x80050000",
    }


def test_conflicts_of_a_batch_are_one_event_a_channel() -> None:
    first = [(channel, k, 1.0, 0) for channel in (7, 8) for k in range(1000)]
    group = group_of(first, [(*row[:2], 2.0, 0) for row in first[3:]], [(8, 5, 3.0, 0)])
    assert [(event.channel_id, event.time - T0, event.detail.get("refused")) for _, event in group.conflicts] == [
        (7, 3, 997), (8, 0, 1000), (8, 5, None),
    ]  # fmt: skip
    assert group.conflicts[0][1].detail["to"] == timestamp(T0 + 999).isoformat()


DAY = 86_400_000_000  # µs


def test_days_of_a_source_in_an_hour_are_limited() -> None:
    """The newest days are taken; recent ones do not count, and other sources and hours have their own."""
    limits = DayLimits(86_400.0, 3650 * 86_400.0, days=3)
    old = [(1, -day * DAY, float(day), 0) for day in range(7, 20)]

    def taken(source: int, hours: int, rows: list[Row], limits: TimeLimits = limits) -> tuple[list[float], list[str]]:
        some = batch(rows)
        sent = replace(some, source_id=source, received_at=some.received_at + hours * DAY // 24)
        text = Event("text", T0 - 400 * DAY, 2, 0, "x")
        spooled = [SpooledBatch(1, 0, 0, sent), SpooledBatch(2, 0, 0, EventBatch(source, sent.received_at, (text,)))]
        group = assemble([(Path("a.sqlite"), spooled)], limits)
        assert len(group.samples) and not group.events
        assert len(group.samples) + len(group.quarantined) == len(rows) + 1
        return sorted(group.samples.value.tolist()), [kept_out.reason for kept_out in group.quarantined]

    assert taken(1, 0, old) == ([7.0, 8.0, 9.0, 10.0], ["days"] * 10)
    assert taken(1, 0, old) == ([7.0, 8.0, 9.0, 10.0], ["days"] * 10), "looked at again, it is the same"
    assert taken(1, 0, [*old[::-1], (1, 0, 0.5, 0)]) == ([0.5, 7.0, 8.0, 9.0, 10.0], ["days"] * 10)
    assert taken(2, 0, old[5:]) == ([12.0, 13.0, 14.0], ["days"] * 6)
    assert taken(1, 1, old[5:]) == ([12.0, 13.0, 14.0], ["days"] * 6)


def test_rows_beyond_the_time_limits_are_quarantined_whole() -> None:
    inside = [(1, DAY, 1.0, 0), (1, -3650 * DAY, 1.5, 0)]
    group = group_of([*inside, (2, DAY + 1, 2.5, 0x80050000), (3, -3650 * DAY - 1, 3.5, 0), (4, 10**18, 4.5, 0)])
    assert group.samples.channel.tolist() == [1, 1]
    assert [(q.reason, q.channel_id, q.value, q.status, (q.time or 0) - T0) for q in group.quarantined] == [
        ("future", 2, 2.5, 0x80050000, DAY + 1),
        ("ancient", 3, 3.5, 0, -3650 * DAY - 1),
        ("future", 4, 4.5, 0, 10**18),
    ]


def test_events_beyond_the_time_limits_are_quarantined_whole() -> None:
    inside, outside = (
        Event("text", T0, 5, 0, "auto"),
        Event("text", T0 + 2 * DAY, 5, 0, "\0\ud800", {"x": float("inf")}),
    )
    group = assemble([(Path("a"), [SpooledBatch(1, T0, T0, EventBatch(9, T0, (inside, outside)))])], LIMITS)
    assert group.events == ((9, inside),)
    ((_, reason, *_, detail),) = zip(*columns(group.quarantined), strict=True)
    assert reason == "future"
    kept = {"source_id": 9, "received_at": timestamp(T0), "detail": detail}
    assert to_batch(kept) == EventBatch(9, T0, (outside,)), "the row gives it back"


def test_group_of_events_has_no_samples() -> None:
    event = Event("text", T0, 5, 0, "auto")
    group = assemble([(Path("a"), [SpooledBatch(1, T0, T0, EventBatch(9, T0, (event,)))])], LIMITS)
    assert not len(group.samples)
    assert group.events == ((9, event),)
