"""Pairs that moved together are found where they no longer do, by the odd one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pytest

from core.batch import Float64s
from history.sql.kernels.reference import (
    CODES,
    CONSTANT,
    DRIFTING,
    JUDGED,
    NO_SAMPLES,
    SHORT_REFERENCE,
    UNLIKE,
    UNRELATED,
    least_limit,
    usual,
)
from history.sql.kernels.relations import Relations, _medians_of_others
from history.sql.kernels.unit_means import UnitMeans

_IDS = np.arange(10, 22, dtype=np.int32)


def all_rows(
    reference: Float64s,
    values: Float64s,
    machines: Sequence[int] = (0,) * 12,
    sisters: Sequence[int] = range(12),
    discrete: Collection[int] = (),
) -> list[dict[str, Any]]:
    machine_of, sisters_of = (dict(zip(_IDS.tolist(), some, strict=False)) for some in (machines, sisters))
    kernel = Relations(1000, 10, 10 * 20 * len(values), 0.8, machine_of, sisters_of, discrete)
    return list(kernel.of_unit(UnitMeans(1, _IDS[: reference.shape[1]], reference, values)))


def rows(reference: Float64s, values: Float64s, *numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [row for row in all_rows(reference, values, *numbers) if row.get("verdict") is None]


def verdicts(reference: Float64s, values: Float64s) -> list[int]:
    return [row["verdict"] for row in all_rows(reference, values) if row.get("verdict") is not None]


def together(seed: int, n: int) -> Float64s:
    """Four channels that move together, one of them against the others, and two that do not."""
    random = np.random.default_rng(seed)
    load = random.normal(size=(n, 1)).cumsum(axis=0) * 0.1 + random.normal(size=(n, 1))
    return np.hstack([load * [1, 2, -3, 40] + random.normal(0, 0.1, (n, 4)), random.normal(size=(n, 2))])


def test_usual_operation_has_few_rows() -> None:
    assert sum(bool(rows(together(seed, 300), together(seed, 600)[300:])) for seed in range(20)) <= 3


@pytest.mark.parametrize("odd", range(4))
def test_the_odd_one_is_named_with_its_partners(odd: int) -> None:
    every = together(1, 500)
    every[400:450, odd] = np.random.default_rng(9).normal(30, 1, 50)
    [row] = rows(every[:300], every[300:])
    assert row["channel_id"] == _IDS[odd]
    assert sorted([*row["partners"], row["channel_id"]]) == _IDS[:4].tolist()
    assert (row["from_time"], row["to_time"]) == (2000, 2500)
    assert abs(row["before"]) > 0.9
    assert row["score"] > 1


def test_a_channel_that_stands_still_has_no_correlation() -> None:
    every = together(1, 500)
    every[300:, 3] = 70.0
    [row] = rows(every[:300], every[300:])
    assert (row["channel_id"], row["after"], row["to_time"]) == (_IDS[3], None, None)


def test_gaps_and_what_has_no_relation() -> None:
    every = together(1, 500)
    every[320:400, 0] = np.nan
    every[10:60, 1] = np.nan
    every[300:, 4] += 100
    assert rows(every[:300], every[300:]) == []
    assert rows(every[:30], every[30:]) == []
    assert rows(np.full((300, 2), 7.0), np.arange(200.0).reshape(100, 2)) == []
    assert rows(np.empty((300, 0)), np.empty((100, 0))) == []


def test_what_can_not_be_judged_is_said() -> None:
    every = together(1, 500)
    every[:300, 1] = 7.0
    every[:200, 2] = np.nan
    every[300:, 3] = np.nan
    assert verdicts(every[:300], every[300:]) == [
        UNRELATED,
        CONSTANT,
        SHORT_REFERENCE,
        NO_SAMPLES,
        UNRELATED,
        UNRELATED,
    ]
    assert verdicts(together(1, 30), every[300:, :]) == [SHORT_REFERENCE] * 3 + [NO_SAMPLES] + [SHORT_REFERENCE] * 2
    assert verdicts(every[:0, :3], every[300:, :3]) == [SHORT_REFERENCE] * 3


def test_a_faulty_reference_is_said_of_the_odd_one() -> None:
    every = together(2, 500)
    assert verdicts(every[:300], every[300:])[:4] == [JUDGED] * 4
    every[120:170, 0] += 1
    assert verdicts(every[:300], every[300:])[:4] == [UNLIKE, JUDGED, JUDGED, JUDGED]


def test_a_drift_of_the_reference_is_said() -> None:
    every = together(1, 500)
    every[:, :4] += 20 * np.sin(np.arange(500) / 700)[:, None] * [1, 2, -3, 40]
    assert verdicts(every[:300], every[300:])[:4] == [DRIFTING] * 4


def test_a_limit_that_is_not_computed_would_not_be_passed() -> None:
    for seed in range(20):
        values = np.random.default_rng(seed).standard_t(3, 47 + 13 * seed)
        assert least_limit(values) <= usual(values, 1e5).limit


def test_of_three_sisters_the_one_that_drifts_is_named() -> None:
    """It drifts so little that often only one of its two pairs is broken: the third sister tells which one it is."""
    named = []
    for seed in range(20):
        every = 3 * np.sin(np.arange(600) / 20)[:, None] + np.random.default_rng(seed).normal(0, 0.3, (600, 3))
        every[300:, 1] += 1.5 * np.clip((np.arange(300) - 100) / 150, 0, 1)
        named += [row["channel_id"] for row in rows(every[:300], every[300:])]
    assert len(named) >= 15
    assert set(named) == {_IDS[1]}


def parks(seed: int, n: int, *, stops: bool = False) -> Float64s:
    """Two channels each of ``n`` turbines of a park with one wind, and much noise of their own."""
    random = np.random.default_rng(seed)
    wind = np.convolve(random.normal(size=1050), np.ones(50) / 5, "valid")[:1000]
    values = np.repeat(wind + random.normal(0, 0.4, (n, 1000)), 2, axis=0) + random.normal(0, 0.1, (2 * n, 1000))
    if stops:
        values[:, 100:105] = values[:2, 800:805] = -5
    return values.T


def of_park(values: Float64s) -> list[dict[str, Any]]:
    n = values.shape[1] // 2
    return rows(values[:500], values[500:], np.repeat(np.arange(n), 2).tolist(), [0, 1] * n)


@pytest.mark.parametrize("n", [3, 6])
def test_a_sister_that_drifts_is_named(n: int) -> None:
    """It stays within the noise of single means, and both channels of its unit drift: they have one row."""
    named = []
    for seed in range(20):
        values = parks(seed, n)
        values[500:, 2:4] += np.clip((np.arange(500) - 100) / 100, 0, 1)[:, None]
        named += of_park(values)
    of_the_one = [row for row in named if row["channel_id"] in _IDS[2:4]]
    assert 18 <= len(of_the_one) <= len(named) <= 25
    assert all(len(row["partners"]) == n - 1 for row in of_the_one if n > 3)


def test_two_sisters_are_compared() -> None:
    values = parks(1, 2)
    values[500:, 2:4] += np.clip((np.arange(500) - 100) / 100, 0, 1)[:, None]
    [row] = of_park(values)
    assert [*row["partners"], row["channel_id"]] in (_IDS[[1, 3]].tolist(), _IDS[[3, 1]].tolist())


def test_sisters_in_usual_operation_have_few_rows() -> None:
    assert sum(bool(of_park(parks(seed, n, stops=seed % 2 == 1))) for seed in range(20) for n in (3, 4)) <= 4


def test_sisters_are_compared_by_the_same_name_only() -> None:
    values = parks(1, 2)[:, [0, 3]]
    found = all_rows(values[:500], values[500:], [0, 1], [0, 1])
    assert [row["verdict"] for row in found] == [UNRELATED] * 2


@pytest.mark.parametrize(("codes", "verdict"), [([0, 1, 3], CODES), ([0, 1], JUDGED)])
def test_a_code_has_no_relation_but_a_state_has(codes: list[int], verdict: int) -> None:
    """The pitch of a turbine is 70 degrees in calm and 88 in service, which says nothing of another state."""
    state = np.repeat(np.random.default_rng(1).choice(codes, 50), 12).astype(float)
    values = np.column_stack([state, 30 * state + np.random.default_rng(2).normal(0, 0.1, 600)])
    found = all_rows(values[:300], values[300:], discrete=_IDS[:1].tolist())
    assert found[0]["verdict"] == verdict


def test_slow_channels_that_drift_at_a_time_are_no_pair() -> None:
    """Swings that are longer than the reference mostly correlate by 0.8 and more, whatever their phases are."""
    random, pairs = np.random.default_rng(1), 0
    for _ in range(40):
        swings = np.sin(np.arange(600)[:, None] / 200 + random.uniform(0, 6, 2)) + random.normal(0, 0.05, (600, 2))
        pairs += UNRELATED not in verdicts(swings[:300], swings[300:])
        both = random.normal(size=(600, 1)).cumsum(axis=0) + random.normal(0, 0.1, (600, 2))
        assert UNRELATED not in verdicts(both[:300], both[300:]), "they also do at short times"
    assert pairs <= 2


def test_medians_of_others_leave_out_one_and_what_is_missing() -> None:
    values = np.random.default_rng(1).integers(0, 5, (5, 40)).astype(float)
    values[np.random.default_rng(2).random(values.shape) < 0.5] = np.nan
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning):
        expected = [np.nanmedian(np.delete(values, row, axis=0), axis=0) for row in range(5)]
    is_there = ~np.isnan(values)
    assert np.array_equal(_medians_of_others(values)[is_there], np.array(expected)[is_there], equal_nan=True)


def loaded(slope: float, shared: float, drift: float = 0.0) -> list[dict[str, Any]]:
    """Rows of two channels with some shared noise, of which the load moves the second one by another slope."""
    random = np.random.default_rng(1)
    load = np.where(np.arange(600) >= 400, 30.0, 0.0)
    noise = shared * random.normal(size=(600, 1)) + np.sqrt(1 - shared**2) * random.normal(size=(600, 2))
    late = np.clip((np.arange(600) - 450) / 100, 0, 1)
    values = noise + np.column_stack([load, slope * load + drift * late])
    return rows(values[:300], values[300:])


def test_a_load_that_both_follow_breaks_nothing() -> None:
    assert loaded(0.7, shared=0.95) == []
    assert loaded(0.3, shared=0.95) == [], "how far it follows beyond the reference, the reference does not tell"


def fans(seed: int, stop: float) -> list[dict[str, Any]]:
    """Rows of two fans, of which one always runs at 0.92 of the speed of the other, rounded, and both stop."""
    random = np.random.default_rng(seed)
    speed = 54 + np.convolve(random.normal(0, 0.3, 620), np.ones(20) / 20 * 4, "same")[10:610]
    speed *= np.clip((500 - np.arange(600)) / 5, stop, 1)
    values = np.column_stack([speed, 0.92 * speed]).round(1)
    return rows(values[:300], values[300:])


def test_an_ordinary_stop_breaks_nothing() -> None:
    assert [row for seed in range(20) for row in fans(seed, stop=0.0)] == []
    assert [row for seed in range(20) for row in fans(seed, stop=0.4)] == [], "another load is no break, either"


def test_a_relation_that_turns_round_is_broken() -> None:
    random = np.random.default_rng(1)
    load = np.where(np.arange(600) >= 400, 30.0, 0.0)
    values = np.sin(np.arange(600) / 4) + random.normal(0, 0.1, (2, 600))
    values = (values + np.stack([load, -load])).T
    [row] = rows(values[:300], values[300:])
    assert row["from_time"] == 2000


def odd_of_a_pair(changed: Callable[[Float64s], Float64s]) -> tuple[int, bool]:
    """The channel that is named of a pair that cycles together, and whether it is known to be the one."""
    random = np.random.default_rng(1)
    cycle = 2 * np.sin(np.arange(900) / 6)[:, None]
    values = cycle + random.normal(0, 0.05, (900, 2))
    values[600:, 1] = changed(values[600:, 1])
    [row] = rows(values[:600], values[600:])
    return row["channel_id"], row["is_odd_one"]


def test_the_one_of_a_pair_that_is_unlike_itself_is_named() -> None:
    assert odd_of_a_pair(lambda values: np.full(300, values[0])) == (_IDS[1], True), "it is stuck"
    assert odd_of_a_pair(lambda values: values - np.clip(np.arange(300) / 150, 0, 1)) == (_IDS[1], True), "it drifts"


def test_where_nothing_tells_which_one_it_is_it_may_be_both() -> None:
    assert not odd_of_a_pair(lambda values: np.roll(values, 4))[1]


def test_sisters_drift_apart_in_spite_of_a_load() -> None:
    assert loaded(1.0, shared=0.995) == []
    [row] = loaded(1.0, shared=0.995, drift=5.0)
    assert row["after"] > row["before"]


def test_a_pump_without_flow_breaks_its_relation() -> None:
    [row] = loaded(0.0, shared=0.95)
    assert (row["from_time"], row["to_time"]) == (2000, None)
