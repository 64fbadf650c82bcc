"""Alarms judged in columns give what a simple model gives that looks at one limit's whole history at once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.batch import SampleBatch
from core.config.sources import Tag
from core.samples import Samples
from ingest.alarms import checkpoint
from ingest.alarms.channel import GRACE_US, QUIET_US, SET_BACK_US, AlarmChange, AlarmChannel
from ingest.alarms.columns import AlarmColumns
from ingest.alarms.limits import Limit, limits_of
from tests.samples import T0

SECOND = 1_000_000
BAD = 0x80050000


class Sample(NamedTuple):
    channel: int
    time: int  # µs
    value: float
    bad: bool
    received_at: int


def tag(**columns: object) -> Tag:
    return Tag(name="c", **columns)  # type: ignore[arg-type]


def batch_of(samples: Sequence[Sample]) -> SampleBatch:
    channel, time, value, bad, received = zip(*samples, strict=True)
    return SampleBatch(
        1,
        received[-1],
        Samples(
            np.array(channel, np.int32),
            np.array(time, np.int64),
            np.array(value, np.float64),
            np.array([BAD if b else 0 for b in bad], np.uint32),
        ),
    )


def size_of_change(limit: Limit, before: float, value: float) -> float:
    size = abs(value - before)
    if limit.counter and value < before:  # a wrap, or a reset to 0
        return value + limit.wraps_at - before if 2 * size > limit.wraps_at >= size else value
    return size


def model(limit: Limit, samples: Sequence[tuple[int, float]], end: int) -> list[tuple[int, str]]:
    """(time, what) of every change of one limit; ``samples`` (time, value or NaN) ascend, the last holds to ``end``.

    The history is cut into pieces in which the condition is one of on, off, neither, unknown; then a walk along them.
    """
    pieces: list[tuple[int, int, bool, bool]] = []  # from, to, on, off
    for i, (time, value) in enumerate(samples):
        until = samples[i + 1][0] if i + 1 < len(samples) else end
        if limit.name == "bad":
            pieces.append((time, until, math.isnan(value), not math.isnan(value)))
        elif math.isnan(value):
            pieces.append((time, until, False, False))
        elif limit.name == "rate":
            before = samples[i - 1] if i else (0, math.nan)
            if math.isnan(before[1]):
                pieces.append((time, min(until, time + QUIET_US), False, False))
            else:
                fast = size_of_change(limit, before[1], value) > limit.threshold * ((time - before[0]) / 1e6)
                pieces.append((time, min(until, time + QUIET_US), fast, not fast))
            if until >= time + QUIET_US:
                pieces.append((time + QUIET_US, until, False, True))
        elif limit.name in ("hi", "hihi"):
            pieces.append((time, until, value > limit.threshold, value <= limit.clear_threshold))
        else:
            pieces.append((time, until, value < limit.threshold, value >= limit.clear_threshold))
    active, since, changes = False, None, []
    for start, until, on, off in pieces:
        if not (off if active else on):
            since = None
            continue
        since = start if since is None else since
        over = since + (limit.off_delay if active else limit.delay)
        if over <= until:
            active, since = not active, None
            changes.append((max(over, start), "raised" if active else "returned"))
    return changes


def live(samples: Sequence[Sample]) -> list[Sample]:
    """Samples of one channel that are newer than all before them."""
    kept_: list[Sample] = []
    for sample in samples:
        if not kept_ or sample.time > kept_[-1].time:
            kept_.append(sample)
    return kept_


VALUES = [0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 7.5, 8.0, 9.0, 10.0, math.nan, math.inf]
DURATIONS = [None, None, 0.5, 1.0, 3.0, 12.0]
CHANNELS = (10, 11, 13)


def any_tag(random: Random) -> Tag:
    return tag(
        kind=random.choice(["analog", "counter"]),
        wraps_at=random.choice([None, 4.0, 10.0]),
        alarm_lolo=random.choice([None, 1.0]),
        alarm_lo=random.choice([None, 2.0, 3.0]),
        alarm_hi=random.choice([None, 7.0, 8.0]),
        alarm_hihi=random.choice([None, 9.0]),
        alarm_deadband=random.choice([0.0, 0.5, 2.0]),
        alarm_delay=random.choice(DURATIONS),
        alarm_off_delay=random.choice(DURATIONS),
        alarm_rate=random.choice([None, 0.5, 4.0]),
        alarm_bad=random.choice([True, False]),
        alarm_latch=random.choice([True, False]),
    )


def any_series(random: Random, length: int) -> list[Sample]:
    """Samples of several channels in order of arrival: some come late, again, or on a channel without limits."""
    rows = []
    now = T0
    steps = random.choice([[0, 200_000], [200_000, SECOND], [0, 200_000, SECOND, 2 * SECOND, 11 * SECOND]])
    behind = random.choice([[0], [0, 0, 0, 0, 1, 500_000, SECOND, 5 * SECOND]])
    values = random.choice([VALUES, VALUES[:12], VALUES[3:9], [5.0, 7.0, 7.5, 8.0]])
    for _ in range(length):
        now += random.choice(steps)
        bad = random.random() < 0.05
        rows.append(
            Sample(random.choice((9, 12, *CHANNELS)), now - random.choice(behind), random.choice(values), bad, now)
        )
    return rows


def condition_changes(changes: Sequence[AlarmChange]) -> dict[tuple[int, str], list[tuple[int, str]]]:
    by_limit: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
    for change in changes:
        by_limit[change.channel_id, change.limit.name].append((change.at, change.action))
    return by_limit


@given(st.randoms(use_true_random=True))
def test_alarm_columns_equal_the_model_however_batches_are_split(random: Random) -> None:
    limits = {channel: limits_of(any_tag(random)) for channel in CHANNELS}
    limits[10] = limits[10] or limits_of(tag(alarm_hi=7.0))
    rows = any_series(random, random.choice([1, 5, 40, 200]))
    columns = AlarmColumns(limits, T0)
    changes: list[AlarmChange] = []
    sizes = random.choice([[1], [1, 2, 5], [30, 100]])
    looks, kills = random.random() < 0.5, random.random() < 0.3
    start = 0
    while start < len(rows):
        some = rows[start : start + random.choice(sizes)]
        # A batch is of one moment: over a longer time what is late would be taken for a clock that was set back.
        some = [row for row in some if row.received_at - some[0].received_at < SET_BACK_US // 4]
        start += len(some)
        changes += columns.evaluate(batch_of(some))
        now = some[-1].received_at
        if looks:  # by our clock, as long ago as anything may be under way
            changes += columns.check_clock(now - 5 * SECOND + GRACE_US)
        if kills and random.random() < 0.2:
            columns = restarted(columns, limits, now)
    end = rows[-1].received_at + random.choice([0, SECOND, 20 * SECOND])
    changes += columns.check_clock(end)
    found = condition_changes(changes)
    for channel, of in limits.items():
        accepted = live([row for row in rows if row.channel == channel])
        if not accepted or not of:
            assert all(key[0] != channel for key in found)
            continue
        values = [(row.time, math.nan if row.bad else row.value) for row in accepted]
        statuses = [(row.time, math.nan if row.bad else 0.0) for row in accepted]  # a Good NaN is not Bad
        held = max(end - columns.channel(channel).seen - GRACE_US, 0)
        for limit in of:
            history = statuses if limit.name == "bad" else values
            expected = model(limit, history, accepted[-1].time + held)
            assert found[channel, limit.name] == expected, (channel, limit)


@given(st.randoms(use_true_random=True))
def test_alarm_columns_equal_single_channels_whatever_clocks_do(random: Random) -> None:
    limits = {channel: limits_of(any_tag(random)) or limits_of(tag(alarm_lo=3.0)) for channel in CHANNELS}
    columns = AlarmColumns(limits, T0)
    channels = {number: AlarmChannel(number, of, T0) for number, of in limits.items()}
    now, offset = T0, 0
    for _ in range(random.choice([3, 30])):
        now += random.choice([SECOND, SECOND, 20 * SECOND, 400 * SECOND])
        rows = []
        for _ in range(random.choice([1, 3, 40])):
            if random.random() < 0.05:  # the source's clock is set
                offset = random.choice([0, 0, 5, 59, 61, 3600, -3600]) * SECOND
            time = now + offset + random.choice([0, 1, 2, 3, -1, -SECOND, SECOND])
            rows.append(Sample(random.choice(CHANNELS), time, random.choice(VALUES), random.random() < 0.05, now))
        found = condition_changes(columns.evaluate(batch_of(rows)))
        stepped = [c for row in rows for c in channels[row.channel].sample(row.time, row.value, row.bad, now)]
        assert found == condition_changes(stepped)
        if random.random() < 0.3:
            later = [change for channel in channels.values() for change in channel.check_clock(now + SECOND)]
            assert condition_changes(columns.check_clock(now + SECOND)) == condition_changes(later)


def restarted(columns: AlarmColumns, limits: dict[int, tuple[Limit, ...]], now: int) -> AlarmColumns:
    """Evaluator of another process, which goes on from the notes, and here from the last samples too."""
    after = AlarmColumns(limits, now)
    notes = {channel.channel_id: checkpoint.encode(channel) for channel in columns.touched()}
    for number, of in limits.items():
        if not of:
            continue
        before = columns.channel(number)
        note = notes.get(number)
        channel, ended = (
            checkpoint.decode(note, number, of, now) if note is not None else (AlarmChannel(number, of, now), [])
        )
        assert not ended
        channel.time, channel.value, channel.seen = before.time, before.value, before.seen
        after.restore(channel)
    return after


def test_channel_with_limits_between_channels_without() -> None:
    columns = AlarmColumns({5: limits_of(tag(alarm_hi=10.0)), 6: ()}, T0)
    rows = [Sample(channel, T0 + 1, 99.0, False, T0 + 1) for channel in (1, 4, 5, 6, 7, 2_000_000)]
    assert [change.channel_id for change in columns.evaluate(batch_of(rows))] == [5]


def test_good_nan_is_no_bad_sample() -> None:
    columns = AlarmColumns({5: limits_of(tag(alarm_hi=10.0, alarm_bad=True))}, T0)
    assert columns.evaluate(batch_of([Sample(5, T0 + 1, math.nan, False, T0 + 1)])) == []
    (change,) = columns.evaluate(batch_of([Sample(5, T0 + 2, math.nan, True, T0 + 2)]))
    assert (change.limit.name, change.action) == ("bad", "raised")


def test_silence_is_counted_by_our_clock_and_ends_with_any_sample() -> None:
    columns = AlarmColumns({5: limits_of(tag(alarm_stale=10.0))}, T0)
    columns.evaluate(batch_of([Sample(5, T0 - 3600 * SECOND, 1.0, False, T0 + SECOND)]))
    assert columns.check_clock(T0 + 11 * SECOND) == []
    (change,) = columns.check_clock(T0 + 12 * SECOND)
    assert (change.action, change.at, change.after.value) == ("raised", T0 + 11 * SECOND, 1.0)
    assert columns.check_clock(T0 + 100 * SECOND) == []
    (change,) = columns.evaluate(batch_of([Sample(5, T0, math.nan, True, T0 + 101 * SECOND)]))
    assert (change.action, change.at) == ("returned", T0 + 101 * SECOND)


def test_channel_without_any_sample_is_silent_since_the_start() -> None:
    columns = AlarmColumns({5: limits_of(tag(alarm_stale=10.0))}, T0)
    (change,) = columns.check_clock(T0 + 12 * SECOND)
    assert (change.at, change.after.value) == (T0 + 10 * SECOND, None)


@pytest.mark.parametrize("ahead", [3600, 24 * 3600])
def test_corrected_fast_clock_does_not_suppress_alarms(ahead: int) -> None:
    columns = AlarmColumns({5: limits_of(tag(alarm_hi=10.0))}, T0)
    columns.evaluate(batch_of([Sample(5, T0 + ahead * SECOND, 1.0, False, T0)]))
    (change,) = columns.evaluate(batch_of([Sample(5, T0 + SECOND, 11.0, False, T0 + SECOND)]))
    assert change.action == "raised"
    assert columns.evaluate(batch_of([Sample(5, T0, 1.0, False, T0 + 2 * SECOND)])) == [], "late again"


@pytest.mark.parametrize("ahead", [3, 3600])
def test_repeated_samples_of_a_fast_clock_are_not_evaluated_again(ahead: int) -> None:
    columns = AlarmColumns({5: limits_of(tag(alarm_hi=10.0))}, T0)
    rows = [Sample(5, T0 + (ahead + i) * SECOND, 11.0 if i == 1 else 1.0, False, T0 + i * SECOND) for i in range(3)]
    assert [c.action for c in columns.evaluate(batch_of(rows))] == ["raised", "returned"]
    assert columns.evaluate(batch_of(rows)) == []
    assert [c for row in rows for c in columns.evaluate(batch_of([row]))] == []


def test_clock_set_back_suppresses_alarms_for_minutes_only() -> None:
    columns = AlarmColumns({5: limits_of(tag(alarm_hi=10.0))}, T0)
    columns.evaluate(batch_of([Sample(5, T0, 1.0, False, T0)]))
    back = [Sample(5, T0 - 7200 * SECOND + i, 11.0, False, T0 + i) for i in range(0, SET_BACK_US + 60 * SECOND, SECOND)]
    changes = [change for sample in back for change in columns.evaluate(batch_of([sample]))]
    assert [change.at for change in changes] == [T0 - 7200 * SECOND + SET_BACK_US + SECOND]


def test_last_value_holds_until_its_delay_is_over() -> None:
    columns = AlarmColumns({5: limits_of(tag(alarm_hi=10.0, alarm_delay=30.0))}, T0)
    assert columns.evaluate(batch_of([Sample(5, T0, 11.0, False, T0)])) == []
    assert columns.check_clock(T0 + 31 * SECOND) == []
    (change,) = columns.check_clock(T0 + 33 * SECOND)
    assert (change.at, change.after.value) == (T0 + 30 * SECOND, 11.0)


def test_all_changes_of_a_channel_in_one_batch_are_recorded_in_order() -> None:
    columns = AlarmColumns({5: limits_of(tag(alarm_hi=10.0, alarm_hihi=20.0))}, T0)
    values = [1.0, 11.0, 21.0, 11.0, 1.0, 11.0]
    rows = [Sample(5, T0 + i, value, False, T0 + 9) for i, value in enumerate(values)]
    evaluated = [(c.at - T0, c.limit.name, c.action, c.after.state) for c in columns.evaluate(batch_of(rows))]
    assert evaluated == [
        (1, "hi", "raised", "unacknowledged_active"),
        (2, "hihi", "raised", "unacknowledged_active"),
        (3, "hihi", "returned", "return_to_normal_unacknowledged"),
        (4, "hi", "returned", "return_to_normal_unacknowledged"),
        (5, "hi", "raised", "unacknowledged_active"),
    ]


def test_a_wrap_or_a_reset_is_not_fast() -> None:
    pulses = limits_of(tag(kind="counter", wraps_at=65536, alarm_rate=5))
    columns = AlarmColumns({7: pulses, 8: limits_of(tag(alarm_rate=5))}, T0)
    readings = [65530.0, 65534.0, 2.0, 6.0, 1.0, 50.0]  # a wrap, a reset to 0, and 49 in a second
    raised = []
    for second, value in enumerate(readings, 1):
        at = T0 + second * SECOND
        changes = columns.evaluate(batch_of([Sample(channel, at, value, False, at) for channel in (7, 8)]))
        raised += [(change.channel_id, second) for change in changes if change.action == "raised"]
    assert raised == [(8, 3), (7, 6), (8, 6)]
