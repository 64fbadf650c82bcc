"""Counters that are reset are events; those that wrap, or whose samples come late, are not."""

from __future__ import annotations

import numpy as np

from core.config.sources import ModbusTag
from core.samples import Samples
from ingest.alarms.counter_resets import CounterResets

_SECOND = 1_000_000
_TAGS = [
    ModbusTag(name="energy", address="holding:0", kind="counter"),
    ModbusTag(name="level", address="holding:1"),
    ModbusTag(name="pulses", address="holding:2", kind="counter", wraps_at=65536),
]
_IDS = {"energy": 7, "level": 8, "pulses": 9}


def samples_of(*samples: tuple[int, float, float, int]) -> Samples:
    """Samples of (channel, s, value, status)."""
    channel, seconds, value, status = zip(*samples, strict=True)
    return Samples(
        np.array(channel, np.int32),
        (np.array(seconds) * _SECOND).astype(np.int64),
        np.array(value, np.float64),
        np.array(status, np.uint32),
    )


def resets(
    counters: CounterResets, *samples: tuple[int, float, float, int]
) -> list[tuple[int | None, int, str | None]]:
    """Channel, second and text of each event."""
    events = counters.events(samples_of(*samples))
    assert all(event.type == "counter_reset" for event in events)
    return [(event.channel_id, event.time // _SECOND, event.text) for event in events]


def test_resets_are_events_and_wraps_are_not() -> None:
    counters = CounterResets(_TAGS, _IDS)
    assert resets(counters, (7, 0, 500.5, 0), (8, 0, 9, 0), (9, 0, 65000, 0), (6, 0, 1, 0), (10, 0, 1, 0)) == []
    assert resets(counters, (7, 1, 3.25, 0), (8, 1, 1, 0), (9, 1, 10, 0)) == [(7, 1, "500.5 → 3.25")]
    # two of a channel in a batch, in any order; a Bad one, a late one, a NaN
    assert resets(counters, (9, 120, 5, 0), (9, 110, 400, 0), (9, 115, 0, 0x80000000)) == [(9, 120, "400 → 5")]
    assert resets(counters, (7, 0.5, 1, 0), (7, 90, float("nan"), 0), (7, 91, 4, 0)) == []


def test_a_reset_says_when_the_counter_was_read_before() -> None:
    counters = CounterResets(_TAGS, _IDS)
    assert counters.events(samples_of((7, 3, 50, 0))) == []
    assert [event.detail["since"] for event in counters.events(samples_of((7, 9, 2, 0), (7, 99, 1, 0)))] == [
        3 * _SECOND,
        9 * _SECOND,
    ]


def test_a_value_that_is_no_counter_is_one_event_a_minute() -> None:
    counters = CounterResets(_TAGS, _IDS)
    noise = [(7, second, second % 2 + 1.0, 0) for second in range(150)]
    assert [second for _, second, _ in resets(counters, *noise)] == [2, 62, 122]


def test_last_readings_outlive_a_new_configuration() -> None:
    counters = CounterResets(_TAGS, _IDS)
    resets(counters, (7, 0, 50, 0), (9, 0, 50, 0))
    counters = CounterResets(_TAGS[:2], {"energy": 7, "level": 8}, counters)
    assert resets(counters, (7, 1, 2, 0), (9, 1, 2, 0)) == [(7, 1, "50 → 2")]


def test_last_readings_outlive_a_restart() -> None:
    counters = CounterResets(_TAGS, _IDS)
    assert resets(counters, (7, 0, 50, 0), (7, 5, 60, 0), (9, 5, 65000, 0)) == []
    again = CounterResets([_TAGS[2], _TAGS[0]], _IDS)
    again.restore(counters.note())
    assert resets(again, (7, 5, 1, 0)) == [], "not later than the last one"
    assert resets(again, (7, 9, 59, 0), (9, 9, 10, 0)) == [(7, 9, "60 → 59")]
    other = CounterResets([_TAGS[2]], _IDS)
    other.restore(counters.note())
    assert resets(other, (7, 9, 1, 0), (9, 9, 64000, 0)) == [(9, 9, "65000 → 64000")]
    CounterResets((), {}).restore(CounterResets((), {}).note())
