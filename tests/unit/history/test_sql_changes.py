"""Planted changes are found where they are, and none in noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.batch import Float64s
from core.errors import OperationError
from history.sql.kernels.change_places import LEVEL
from history.sql.kernels.changes import Changes
from history.sql.kernels.columns import Channels
from history.sql.kernels.reference import CAME_ONCE, FEW_SAMPLES, INTERVAL_ALONE, JUDGED
from history.sql.kernels.resampled import Grid
from tests.unit.history.sql_samples import columns

STEP = 10  # µs
AT = 171  # bucket
_N = 300
_PLACES = np.arange(_N)
Row = tuple[int, int, int]  # channel, bucket, kind
_PLANTED: list[tuple[int, Callable[[Float64s], Float64s]]] = [
    (0, lambda noise: noise + 15 * (_PLACES >= AT)),
    (0, lambda noise: noise - 15 * (_PLACES >= AT)),
    (0, lambda noise: noise + 0.3 * _PLACES + 15 * (_PLACES >= AT)),  # on a drift
    (1, lambda noise: noise + 3 * np.maximum(0, _PLACES - AT)),
    (1, lambda noise: noise - 3 * np.maximum(0, AT - _PLACES)),
    (2, lambda noise: noise * np.where(_PLACES >= AT, 20, 1)),
    (2, lambda noise: noise * np.where(_PLACES >= AT, 1, 20)),
]


def changes(
    values: Float64s, least_score: float = 6.0, earlier: Float64s | None = None
) -> tuple[list[Row], dict[str, np.ndarray]]:
    """``values``, ``earlier``: (channels, buckets), one sample each; the earlier ones are the reference."""
    rows, every = computed_of(values, least_score, earlier)
    known = JUDGED if earlier is not None and earlier.shape[1] > 32 else INTERVAL_ALONE
    verdict = known if values.shape[1] >= 32 else FEW_SAMPLES
    verdicts = every["verdict"]
    assert verdicts[(verdicts > 0) & (verdicts != CAME_ONCE)].tolist() == [verdict] * len(values)
    return rows, {name: column[verdicts == 0] for name, column in every.items()}


def came_once(values: Float64s, earlier: Float64s) -> list[int]:
    """Channels whose changes are not listed as they are like one of the reference."""
    _, every = computed_of(values, 5.5, earlier)
    return list(every["channel_id"][every["verdict"] == CAME_ONCE])


def computed_of(
    values: Float64s, least_score: float, earlier: Float64s | None
) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Changes, and all columns. The others: as of :func:`changes`."""
    earlier = values[:, :0] if earlier is None else earlier
    since = earlier.shape[1] * STEP
    until = since + values.shape[1] * STEP
    fields = [
        {"channel_id": number, "kind": "analog", "ends": until, "gaps_from": [], "gaps_to": []}
        for number in range(len(values))
    ]
    kernel = Changes(Grid(Channels.of_fields(fields), 0, STEP), {}, (0, since), (since, until), least_score)
    samples = [
        (number, place * STEP + 3, float(value), 0)
        for number, row in enumerate(np.hstack([earlier, values]))
        for place, value in enumerate(row)
    ]
    every = kernel.compute(columns(samples))
    names = (every["channel_id"], (every["time"] - since) // STEP, every["kind"])
    rows = zip(*(name[every["verdict"] == 0].tolist() for name in names), strict=True)
    return list(rows), every


def noise(seed: int, channels: int, depends: float = 0.0) -> Float64s:
    """Values that depend on those before them."""
    fresh = np.random.default_rng(seed).normal(size=(channels, _N + 200))
    values = fresh.copy()
    for place in range(1, values.shape[1]):
        values[:, place] += depends * values[:, place - 1]
    return values[:, 200:]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("length", [20, 40, 60, 75])
def test_there_and_back_is_two_changes_of_the_level(length: int, seed: int) -> None:
    """A tank whose compressor loads again and again, and then is full for a while."""
    course = np.abs(np.arange(1000) / 20 % 1 - 0.3) * 2
    before, now = np.split(course + np.random.default_rng(seed).normal(0, 0.05, 1000), 2)
    now[300 : 300 + length] += 4 - course[300 : 300 + length]
    rows, _ = changes(now[None, :], 5.5, before[None, :])
    assert rows == [(0, 300, LEVEL), (0, 300 + length, LEVEL)]


@pytest.mark.parametrize("planted", range(len(_PLANTED)))
def test_planted_changes_are_found_within_two_buckets(planted: int) -> None:
    kind, make = _PLANTED[planted]
    rows, computed = changes(np.array([make(one) for one in noise(1, 40)]))
    near = {channel for channel, at, of in rows if of == kind and abs(at - AT) <= 2}
    assert len(near) >= 32, rows
    assert len(rows) <= 44, rows
    assert (computed["score"] > 6).all()


def test_sizes() -> None:
    rows, computed = changes(noise(2, 1) + 500 * (_PLACES >= AT))
    assert rows == [(0, AT, 0)]
    assert [computed["before"][0], computed["after"][0]] == pytest.approx([0, 500], abs=1)
    rows, computed = changes(np.maximum(0, _PLACES - AT)[None, :] * 2.0 + noise(3, 1) * 0.1)
    assert [kind for _, _, kind in rows] == [1]
    assert [computed["before"][0], computed["after"][0]] == pytest.approx(
        [0, 2 * 3.6e9 / STEP], abs=0.02 * 3.6e9 / STEP
    )
    _, computed = changes(noise(4, 1) * np.where(_PLACES >= AT, 20, 1))
    assert [computed["before"][0], computed["after"][0]] == pytest.approx([1, 20], rel=0.3)


@pytest.mark.parametrize("depends", [0.0, 0.5, 0.8, 0.9])
def test_fewer_than_one_channel_of_noise_in_a_thousand_has_a_change(depends: float) -> None:
    assert changes(noise(5, 1000, depends))[0] == []
    assert changes(noise(5, 300, depends), earlier=noise(6, 300, depends))[0] == []


def test_a_reference_tells_how_much_values_depend_on_those_before() -> None:
    """Most of the steps up and down again by ten spreads are found; the interval alone says too little of its noise."""
    away = 10 / np.sqrt(1 - 0.5**2) * ((_PLACES >= AT) & (_PLACES < AT + 55))
    rows, _ = changes(noise(40, 100, 0.5) + away, 5.5, noise(50, 100, 0.5))
    for place, least in ((AT, 65), (AT + 55, 75)):
        assert len({channel for channel, at, _ in rows if abs(at - place) <= 2}) >= least


def test_steps_of_what_wanders_are_found_if_they_are_sudden() -> None:
    """Up and down again within a thirtieth of the interval, by 30 moves of a random walk."""
    wandering = np.cumsum(np.random.default_rng(7).normal(size=(40, _N)), axis=1)
    rows, _ = changes(wandering + 30 * ((_PLACES >= AT) & (_PLACES < AT + 10)))
    assert changes(wandering)[0] == []
    for place in (AT, AT + 10):
        assert len({channel for channel, at, kind in rows if kind == 0 and abs(at - place) <= 1}) >= 20, rows
    assert len(rows) <= 120, rows


@pytest.mark.parametrize("many", [2, 4, 8, 20])
def test_changes_of_a_channel_that_always_changes_are_its_habit(many: int) -> None:
    """Four changes in an interval are listed, eight are not, but for one that is far larger."""
    values, random, planted = noise(8, 40), np.random.default_rng(5), list[tuple[int, int]]()
    for channel in range(len(values)):
        places = np.sort(random.choice(np.arange(10, _N - 10), many, replace=False))
        values[channel] += 30 * (np.searchsorted(places, _PLACES, side="right") % 2)
        planted += [(channel, place) for place in places.tolist()]
    rows, _ = changes(values)
    if many <= 4:
        dated = [any(one == channel and abs(at - place) <= 1 for one, at, _ in rows) for channel, place in planted]
        assert sum(dated) >= 0.85 * len(planted)
        assert len(rows) <= len(planted)
    else:
        assert len(rows) <= 0.05 * many * len(values)
    rows, _ = changes(values + 150 * (_PLACES >= AT))
    assert len({channel for channel, at, kind in rows if kind == 0 and abs(at - AT) <= 1}) >= 24


def test_changes_as_large_as_those_of_most_of_a_reference_are_its_habit() -> None:
    """A valve that is moved once in each interval, and then much farther; a fault long ago is no habit."""
    stepping = noise(9, 40) + 30 * (_PLACES >= 90)
    earlier = np.hstack([noise(seed, 40) + 30 * (_PLACES >= AT) for seed in (10, 11, 12, 13)])
    assert len(changes(stepping)[0]) >= 40
    assert len(changes(stepping, earlier=earlier)[0]) <= 4
    rows, _ = changes(stepping + 60 * (_PLACES >= 90), earlier=earlier)
    assert len({channel for channel, at, _ in rows if abs(at - 90) <= 1}) >= 38
    calm = np.hstack([noise(seed, 40) for seed in (10, 11, 12)])
    assert len(changes(stepping, earlier=np.hstack([earlier[:, :_N], calm]))[0]) >= 40


def test_spreads_are_those_that_the_score_is_of() -> None:
    """Values that wander, and then scatter about their neighbours as far."""
    wandering = noise(17, 40, 0.95) * np.sqrt(1 - 0.95**2)
    _, computed = changes(np.where(_PLACES >= AT, noise(18, 40), wandering))
    spreads = computed["kind"] == 2
    ratio = np.log(computed["after"] / computed["before"])[spreads]
    assert spreads.sum() >= 20
    assert (ratio >= 2 * 0.6 * computed["score"][spreads] / np.sqrt(_N // 8) - 1e-9).all()


def test_a_moment_has_one_row() -> None:
    louder = np.where(_PLACES >= AT, 8, 1)
    rows, _ = changes(noise(14, 40) * louder + 60 * (_PLACES >= AT))
    for channel in range(40):
        places = sorted(at for one, at, _ in rows if one == channel)
        assert places
        assert (np.diff(places) >= 8).all(), rows


def test_values_that_are_rounded_have_no_spread_by_themselves() -> None:
    """They flicker between two neighbours now and then."""
    random = np.random.default_rng(15)
    flickering = np.array([np.where(random.random(_N) < 0.4, 1.0, 0.0) * (_PLACES >= AT) for _ in range(40)])
    assert changes(20 + flickering)[0] == []
    noisy = np.rint(5 * noise(16, 40)) * (_PLACES >= AT)
    assert len({channel for channel, at, _ in changes(20 + noisy)[0] if abs(at - AT) <= 20}) >= 38


def test_a_short_excursion_is_a_step_there_and_one_back() -> None:
    """Ten means long, and a part of one at both ends, as of 50 minutes in a day."""
    away = 340 * ((_PLACES >= 146) & (_PLACES < 156)) + 58 * (_PLACES == 145) + 85 * (_PLACES == 156)
    rows, _ = changes(noise(1, 40) + away)
    both_ways = {
        channel
        for channel in range(40)
        for [(first, one), (last, other)] in [sorted((at, kind) for row, at, kind in rows if row == channel)[:2]]
        if (one, other) == (0, 0) and abs(first - 146) <= 1 and abs(last - 156) <= 1
    }
    assert len(both_ways) >= 36, rows
    assert len(rows) <= 2 * 40 + 4


@pytest.mark.parametrize(
    ("shape", "late"),
    [
        (30 * np.clip(1 - (_PLACES - AT) / 30, 0, 1) * (_PLACES >= AT), 0),
        (30 * (_PLACES >= _N - 5), _N - 5 - AT),
        (30 * (1 - np.exp(-np.maximum(0, _PLACES - AT) / 8)), 0),
        (30 * np.clip((_PLACES - AT) / 6, 0, 1), 0),
        (30 * np.clip((_PLACES - AT) / 15, 0, 1), 0),
    ],
    ids=["controlled back", "at the end", "lag", "short ramp", "ramp"],
)
def test_changes_are_dated_where_they_begin(shape: Float64s, late: int) -> None:
    """A kink before a step, or a wider window, may be clearer."""
    rows, _ = changes(noise(9, 100) + shape, 5.5)
    firsts = {channel: at - AT - late for channel, at, _ in sorted(rows, reverse=True)}
    assert sum(abs(first) <= 2 for first in firsts.values()) >= 90, sorted(firsts.values())


def test_a_step_has_one_row() -> None:
    """Not one of a kink before it and one of a kink behind it."""
    rows, _ = changes(noise(9, 100) + 6 * (_PLACES >= AT), 5.5)
    assert 90 <= len(rows) <= 100
    assert {(abs(at - AT) <= 1, kind) for _, at, kind in rows} == {(True, 0)}, rows


def test_a_part_of_a_mean_at_the_end_is_left_out() -> None:
    grid = Grid(Channels.of_fields([]), 0, STEP)
    assert grid.whole((-5 * STEP, -STEP)) == (-5, -1)
    assert grid.whole((3, 10 * STEP + 9)) == (1, 10)


def test_what_is_no_change() -> None:
    calm = noise(6, 5)
    calm[0, 100] += 1000  # a spike
    calm[1] = 7.5
    calm[2] += 5 * _PLACES  # a drift
    calm[3] = 20 * np.sin(_PLACES / 3)
    calm[4] = 1e9 + 1e-7 * calm[4]  # rounding errors
    assert changes(calm)[0] == []
    assert changes(calm[:, 85:116] * 1e3)[0] == [], "too few means"


def test_a_value_that_is_held_and_then_another_one() -> None:
    rows, computed = changes(np.where(_PLACES >= AT, 46.0, 40.0)[None, :])
    assert rows == [(0, AT, 0)]
    assert (computed["before"][0], computed["after"][0]) == (40, 46)
    assert np.isnan(computed["score"][0]), "no noise to measure by"


def test_changes_of_what_holds_its_values_are_judged_by_the_largest_one_of_the_reference() -> None:
    """A set point that was moved once in four intervals, by 20."""
    earlier = np.where(np.arange(4 * _N) >= 3 * _N + 40, 60.0, 40.0)[None, :]
    for size, expected in ((0.01, []), (-20.0, []), (30.0, [(0, AT, 0)]), (-30.0, [(0, AT, 0)])):
        moved = np.where(_PLACES >= AT, 60 + size, 60.0)[None, :]
        assert changes(moved, earlier=earlier)[0] == expected


@pytest.mark.parametrize("often", [4, 6])
def test_changes_that_a_reference_has_more_than_four_times_are_usual(often: int) -> None:
    """A pump that starts and stops now and then, in two of eight parts of the reference."""
    earlier = np.hstack([noise(seed, 40) for seed in range(60, 68)])
    for begin in (_N + 90 * np.arange(often)).tolist():
        earlier[:, begin : begin + 45] += 30
    found = {channel for channel, _, _ in changes(noise(68, 40) + 30 * (_PLACES >= AT), 5.5, earlier)[0]}
    assert len(found) <= 4 if often == 6 else len(found) >= 38


def test_change_that_a_reference_as_long_as_the_interval_has_once_is_no_habit() -> None:
    """A service stop hides no step of ten spreads, whose score is one of spreads."""
    service = 900 * ((_PLACES >= 100) & (_PLACES < 130))
    step = noise(71, 40) + 10 * ((_PLACES >= AT) & (_PLACES < AT + 60))
    rows, hidden = changes(step, 5.5, noise(70, 40) + service)
    assert len({channel for channel, at, _ in rows if abs(at - AT) <= 1}) >= 36
    _, computed = changes(step, 5.5, noise(70, 40))
    assert np.median(hidden["score"]) > 0.7 * np.median(computed["score"])


def test_changes_like_one_of_a_reference_as_long_as_the_interval_are_said_to_be_left_out() -> None:
    """A service stop in both, or what is two thirds of it; one that is much larger or smaller is listed."""
    fault, noise_before = 1.0 * ((_PLACES >= 100) & (_PLACES < 160)), noise(70, 20)
    reference, later = noise_before + 30 * fault, noise(71, 20)
    step = 1.0 * ((_PLACES >= AT) & (_PLACES < AT + 60))
    for size, listed in ((20, False), (30, False), (8, True), (90, True)):
        rows, _ = changes(later + size * step, 5.5, reference)
        found = {channel for channel, at, _ in rows if abs(at - AT) <= 1}
        said = came_once(later + size * step, reference)
        assert (len(found) >= 18, len(said) >= 18) == (listed, not listed), (size, len(found), len(said))
    assert came_once(later, reference) == []
    assert came_once(later + 30 * step, noise_before) == []
    twice = np.hstack([reference, noise(72, 20) + 30 * fault])
    assert came_once(later + 30 * step, twice) == [], "it came again: a habit"


@pytest.mark.parametrize("short", [20, 35, 80])
def test_usual_starts_and_stops_are_none_however_far_apart(short: int) -> None:
    """Nor is what is between them, nor the noise of what runs, which stands without any."""
    places = np.arange(6 * _N)
    runs = np.any([(places >= at) & (places < at + 60) for at in 40 + 190 * np.arange(9)], axis=0)
    stops = np.isin(_PLACES, np.arange(120, 120 + short))
    of_reference, of_interval = (np.hstack([noise(seed, 40) for seed in seeds]) for seeds in (range(80, 86), [86]))
    rows, _ = changes((40 + 0.2 * of_interval) * ~stops, 5.5, (40 + 0.2 * of_reference) * ~runs)
    assert rows == []


@settings(deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from(range(len(_PLANTED))),
    st.floats(-1e3, 1e3),
    st.sampled_from([1e-6, 0.1, 3.0, 1e6]),
)
def test_neither_zero_nor_unit_matters(seed: int, planted: int, shift: float, scale: float) -> None:
    values = _PLANTED[planted][1](noise(seed, 1))
    one, other = changes(values), changes((values + shift) * scale)
    assert one[0] == other[0]
    assert other[1]["score"] == pytest.approx(one[1]["score"], rel=1e-5)
    shifts = np.where(one[1]["kind"] == 0, shift, 0.0)
    for name in ("before", "after"):
        assert other[1][name] == pytest.approx((one[1][name] + shifts) * scale, rel=1e-5, abs=1e-5 * scale)


def test_no_samples() -> None:
    assert changes(np.empty((0, _N)))[0] == []


def test_buckets_have_a_length() -> None:
    with pytest.raises(OperationError, match="step: found 0 µs; legal: more than 0"):
        Changes(Grid(Channels.of_fields([]), 0, 0), {}, (0, 0), (0, 0), 6.0)
