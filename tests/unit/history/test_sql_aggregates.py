"""Aggregates and interpolated values against a slow model of OPC 10000-13, for any samples, gaps and configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.errors import OperationError
from history.sql.kernels.columns import NEVER
from history.sql.kernels.courses import Configuration
from tests.unit.history import aggregates_model as model
from tests.unit.history.aggregates_model import History, Point
from tests.unit.history.aggregates_of import Channel, aggregates, values

SECOND, HOUR = 1_000_000, 3_600_000_000
DAY = 1_773_014_400 * SECOND
_STATUS = {
    model.GOOD: (0, 0x00960000),
    model.UNCERTAIN: (0x40000000, 0x40940000),
    model.BAD: (0x80000000 - 2**32, 0x80050000 - 2**32),
}
_NO_DATA = model.NO_DATA

Data = tuple[list[Point], list[int]]  # samples, and when gaps begin


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[Data], int, int, int]:
    """Channels, and begin, end and step of a window; in µs from DAY."""
    unit = draw(st.sampled_from((1, SECOND, HOUR)))
    times = st.builds(lambda a, b: a * unit + b, st.integers(-40, 80), st.sampled_from((0, 0, 0, 1, -1)))
    qualities = st.sampled_from((model.GOOD,) * 4 + (model.UNCERTAIN, model.BAD))
    numbers = st.one_of(st.integers(-3, 3), st.sampled_from((0.1, 1e6, -1e-9)))
    channels = []
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.lists(times, max_size=12, unique=True))
        samples = []
        for time in sorted(at):
            quality = draw(qualities)
            samples.append(Point(DAY + time, Fraction(draw(numbers)), quality, draw(st.sampled_from(_STATUS[quality]))))
        gaps = draw(st.lists(st.one_of(st.sampled_from(at), times) if at else times, max_size=3, unique=True))
        channels.append((samples, [DAY + gap for gap in gaps]))
    begin = draw(times)
    end = begin + draw(st.integers(1, 60)) * unit
    step = draw(st.integers(max(1, (end - begin) // 9), end - begin + unit))
    return channels, DAY + begin, DAY + end, step


@st.composite
def configurations(draw: st.DrawFn) -> model.Configuration:
    bad = draw(st.sampled_from((100, 100, 50, 30, 0)))
    good = draw(st.integers(100 - bad, 100))
    flags = [draw(st.booleans()) for _ in range(4)]
    return model.Configuration(flags[0], flags[1], flags[2], bad, good, flags[3])


def far_apart(*hours: int, quality: int = model.GOOD) -> tuple[list[Data], int, int, int]:
    """Samples at these hours, the second of this quality, in a window of 60 hours."""
    qualities = (model.GOOD, quality, *[model.GOOD] * len(hours))
    samples = [
        Point(DAY + hour * HOUR, Fraction(hour), kind, _STATUS[kind][0])
        for hour, kind in zip(hours, qualities, strict=False)
    ]
    return [(samples, [])], DAY - HOUR, DAY + 59 * HOUR, 7 * HOUR


def channel_of(data: Data, kind: str = "analog", wraps_at: float | None = None) -> Channel:
    samples, gaps = data
    return Channel(
        [(sample.time, float(sample.value), sample.status or 0) for sample in samples], gaps, kind, wraps_at=wraps_at
    )


def same(rows: Sequence[tuple[float, int]], expected: Sequence[tuple[Any, int]]) -> None:
    """Values to within rounding, StatusCodes exactly. A value whose status is Bad is none."""
    assert [hex(status & 0xFFFFFFFF) for _, status in rows] == [hex(status) for _, status in expected]
    for (value, status), (of_model, _) in zip(rows, expected, strict=True):
        if status < 0:
            assert math.isnan(value)
        else:
            assert value == pytest.approx(float(of_model), rel=1e-9, abs=1e-9)


def quantile(numbers: list[Fraction], fraction: float) -> Fraction | None:
    """By a line between the two nearest values."""
    ordered = sorted(numbers)
    if not ordered:
        return None
    place = Fraction(fraction) * (len(ordered) - 1)
    low = ordered[int(place)]
    return low + (ordered[min(int(place) + 1, len(ordered) - 1)] - low) * (place - int(place))


_NAMES = ("time_average", "total", "duration_in_state", "count_transitions", "percentile", "minimum", "maximum")


@given(windows(), configurations(), st.sampled_from((3, 65_536)))
@example(far_apart(0, 25, 49), model.Configuration(False, True, False), 3)  # 25 hours are too far to join, 24 are not
@example(far_apart(0, 25, 49), model.Configuration(False, False, True), 3)
@example(far_apart(0, 30, 31), model.Configuration(False, False, True, use_sloped_extrapolation=True), 1)
@example(far_apart(0, 30), model.Configuration(False, False, True, use_sloped_extrapolation=True), 1)
@example(far_apart(0, 10, 20, quality=model.BAD), model.Configuration(True, False, True), 3)
@example(far_apart(0, 10, 20, quality=model.UNCERTAIN), model.Configuration(True, True, False, 60, 80), 3)
@example(far_apart(-2, 3, 3 + 7, quality=model.BAD), model.Configuration(True, True, True, 30, 75), 3)
def test_aggregates_are_as_defined(
    data: tuple[list[Data], int, int, int], configuration: model.Configuration, block: int
) -> None:
    channels, begin, end, step = data
    own = Configuration(
        configuration.stepped,
        configuration.simple_bounds,
        configuration.treat_uncertain_as_bad,
        configuration.percent_data_bad,
        configuration.percent_data_good,
        configuration.use_sloped_extrapolation,
    )
    percent = (configuration.percent_data_bad, configuration.percent_data_good)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("history.sql.kernels.courses._BLOCK_ROWS", block)
        every = [channel_of(channel) for channel in channels]
        computed = aggregates(every, (begin, end), step, own, _NAMES, 1.0, 0.3)
        at_starts = values(every, range(begin, end, step), own)
    for number, (samples, gaps) in enumerate(channels):
        rows = dict(zip(_NAMES, computed[number * len(_NAMES) :], strict=False))
        history = History(samples, gaps, configuration)
        held = History(samples, gaps, model.Configuration(True, True, configuration.treat_uncertain_as_bad, *percent))
        averages = model.averages(history, begin, end, step)
        same([(value, status) for value, _, status in rows["time_average"]], [one for one, _ in averages])
        totals = [(total and total / SECOND, status) for _, (total, status) in averages]
        same([(value, status) for value, _, status in rows["total"]], totals)
        durations = model.durations(held, Fraction(1), begin, end, step)
        same(
            [(value, status) for value, _, status in rows["duration_in_state"]],
            [(us and us / SECOND, status) for us, _, status in durations],
        )
        assert [round(seconds * SECOND) for _, seconds, _ in rows["duration_in_state"]] == [
            us for _, us, _ in durations
        ]
        same(
            [(value, status) for value, _, status in rows["count_transitions"]],
            model.transitions(held, begin, end, step),
        )
        counted = model.values(held, begin, end, step)
        for name, fraction in (("percentile", 0.3), ("minimum", 0.0), ("maximum", 1.0)):
            same(
                [(value, status) for value, _, status in rows[name]],
                [(quantile(result.usable, fraction), result.status) for result in counted],
            )
        same([row[1:3] for row in at_starts[number]], model.interpolated(history, begin, end, step))
        for row in at_starts[number]:
            _check_neighbours(row, samples, configuration)


def _check_neighbours(row: tuple[Any, ...], samples: list[Point], configuration: model.Configuration) -> None:
    worst = model.GOOD if configuration.treat_uncertain_as_bad else model.UNCERTAIN
    good = [sample for sample in samples if configuration.simple_bounds or sample.quality <= worst]
    time = row[0]
    before = [one for one in good if time - model.HOLD <= one.time < time][-1:]
    after = [one for one in good if time < one.time <= time + model.HOLD][:1]
    for of, computed in ((before, row[3:6]), (after, row[6:9])):
        if of:
            assert computed == (of[0].time, float(of[0].value), of[0].status)
        else:
            assert computed[0] == NEVER


@given(
    st.lists(
        st.tuples(st.integers(0, 70_000), st.sampled_from((0, 0, 0, 0x40000000, 0x80000000 - 2**32))), max_size=30
    ),
    st.sampled_from((None, 65_536.0)),
    st.booleans(),
    st.integers(1, 12),
)
def test_counters_increase_across_resets_and_wraps(
    samples: list[tuple[int, int]], wraps_at: float | None, as_bad: bool, step: int
) -> None:
    """Against a loop over the samples. A gap makes no difference to the increase: a counter goes on in it."""
    every = [(DAY + k * SECOND, float(value), status) for k, (value, status) in enumerate(samples)]
    begin = DAY + 5 * SECOND
    expected = [0.0] * (-(-30 // step))
    last: float | None = None
    for time, value, status in every:
        if not 0 <= status < (1 << 30 if as_bad else 1 << 31):
            continue
        if last is not None and time >= begin:
            missing = last - value
            wrapped = wraps_at is not None and wraps_at / 2 < missing <= wraps_at
            more = value - last if missing <= 0 else value + (wraps_at or 0.0) - last if wrapped else value
            expected[(time - begin) // (step * SECOND)] += more
        last = value
    channel = Channel(every, [DAY + 7 * SECOND, DAY + 8 * SECOND + 1], "counter", wraps_at=wraps_at)
    own = Configuration(treat_uncertain_as_bad=as_bad)
    increase, rate = aggregates([channel], (begin, begin + 30 * SECOND), step * SECOND, own, ("increase", "rate"))
    assert len(increase) == len(expected)
    for (value, seconds, status), (per_second, *_), of in zip(increase, rate, expected, strict=True):
        if status >= 0:
            assert value == pytest.approx(of)
            assert math.isnan(per_second) or per_second == pytest.approx(of / seconds)
        else:
            assert of == 0


def test_counters_by_hand() -> None:
    pulses = [65000, 65500, 100, 400, 30]  # 500, a wrap: 136, 300, a reset: 30
    energy = [70.0, 71.5, 0.5, 2.0]  # 1.5, a reset: 0.5, 1.5
    channels = [
        Channel([(DAY + i * 600 * SECOND, float(v), 0) for i, v in enumerate(of)], gaps, "counter", wraps_at=wraps_at)
        for of, gaps, wraps_at in ((pulses, [DAY + 601 * SECOND], 65536.0), (energy, [], None))
    ]
    window = DAY + 600 * SECOND, DAY + 3000 * SECOND
    names = ("increase", "rate")
    computed = aggregates(channels, window, 600 * SECOND, Configuration(), names)
    assert [value for value, *_ in computed[0]] == [500, 136, 300, 30]
    assert [value for value, *_ in computed[1]] == [500 / 600, 136 / 600, 0.5, 0.05]
    assert [value for value, *_ in computed[2]][:3] == [1.5, 0.5, 1.5]
    [(whole, *_)] = aggregates(channels[:1], window, 2400 * SECOND, Configuration(), ["increase"])[0]
    assert whole == 966
    window = DAY - HOUR, DAY + 601 * SECOND
    [(first, seconds, status)] = aggregates(channels[1:], window, HOUR * 9, Configuration(), ["rate"])[0]
    assert (first, seconds, status) == (1.5 / 601, 601, 0x405), "partial: the data begins in it"
    [row] = aggregates([Channel(channels[1].samples)], window, HOUR * 9, Configuration(), ["increase"])[0]
    assert math.isnan(row[0])
    assert row[2] & 0xFFFFFFFF == 0x80D50000, "an analog channel has no increase"


def test_uncertain_values_are_in_no_state() -> None:
    """They are not Good, which 5.4.3.22 says; but without treat_uncertain_as_bad the result is Good."""
    samples = [(0, 1.0, 0), (1200, 1.0, 0x40000000), (3000, 0.0, 0), (3600, 0.0, -(2**31))]
    channel = Channel([(DAY + s * SECOND, value, status) for s, value, status in samples], kind="discrete")
    window = DAY, DAY + HOUR
    names = ["duration_in_state"]
    assert aggregates([channel], window, HOUR, Configuration(), names) == [[(1200.0, 1800.0, 0x40A40401)]]
    as_good = Configuration(treat_uncertain_as_bad=False)
    assert aggregates([channel], window, HOUR, as_good, names) == [[(1200.0, 1800.0, 0x401)]]
    total = Configuration(stepped=True, simple_bounds=True, treat_uncertain_as_bad=False)
    assert aggregates([channel], window, HOUR, total, ["total"])[0][0][0] == 3000.0


def test_value_holds_until_its_channel_ends() -> None:
    channel = Channel([(DAY, 1.0, 0)], kind="discrete", ends=DAY + HOUR // 2)
    rows = aggregates([channel], (DAY, DAY + 2 * HOUR), HOUR, Configuration(), ["duration_in_state"])[0]
    assert [(row[1], row[2] & 0xFFFFFFFF) for row in rows] == [(1800.0, 0x405), (0.0, _NO_DATA)]


def test_values_that_cannot_be_summed() -> None:
    """NaN, infinities and huge values are Bad; tiny ones are 0; none is an error."""
    numbers = (1e-320, 1e279, math.inf, -1e279, 1e300, math.nan, -math.inf, -1e279, 5e-324, 1.0)
    channel = Channel([(DAY + i * SECOND, value, 0) for i, value in enumerate(numbers)])
    for configuration in (Configuration(), Configuration(use_sloped_extrapolation=True, simple_bounds=True)):
        for window in ((DAY, DAY + 10 * SECOND), (DAY + 8 * SECOND, DAY + 20 * HOUR)):
            with np.errstate(all="raise", under="ignore"):
                aggregates([channel], window, 3 * SECOND * 3600, configuration, _NAMES)
                values([channel], [window[0], window[1] - 1], configuration)
    [(transitions, _, _)] = aggregates(
        [channel], (DAY, DAY + 10 * SECOND), 10 * SECOND, Configuration(), ["count_transitions"]
    )[0]
    assert transitions == 5  # 0, 1e279, -1e279, 0, 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 0}, "--step: found 0 µs; legal: more than 0"),
        ({"step": 1}, "--step: found 3,600,000,000 intervals; legal: 1,000,000 at most"),
        ({"names": ["average"]}, "--aggregate: found average; legal: time_average, total, "),
        ({"fraction": 95.0}, "--fraction: found 95; legal: 0 to 1"),
        ({"state": math.nan}, "--in-state: found nan; legal: the number"),
    ],
)
def test_bad_input_is_named(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"step": HOUR, "names": ["total"], "configuration": Configuration(), **changes}
    with pytest.raises(OperationError, match=message):
        aggregates([Channel([])], (DAY, DAY + HOUR), **given)


def test_percentages_that_contradict_each_other() -> None:
    with pytest.raises(
        OperationError, match="--percent-data-bad: found 30, --percent-data-good: found 60; legal: 0 to 100"
    ):
        Configuration(percent_data_bad=30, percent_data_good=60)
