"""Units that work in cycles, or drift: what is usual there, and faults that are none of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core.batch import Float64s
from history.sql.kernels.departures import Departures
from history.sql.kernels.episodes import Episodes
from history.sql.kernels.reference import CYCLIC, DRIFTING, JUDGED
from history.sql.kernels.unit_means import UnitMeans
from history.sql.kernels.usual_courses import usual_courses

PERIOD = 40  # buckets
_IDS = np.arange(10, 14, dtype=np.int32)
_NOISE = np.array([0.5, 0.1, 0.02, 0.1])


def press(place: Float64s) -> Float64s:
    """Pressure, flow, a valve and, without cycles, a temperature, at places (0 to 1) in cycles."""
    return np.stack(
        [
            100 + 80 * ((place > 0.2) & (place < 0.7)),
            9 + 2 * np.sin(2 * np.pi * place),
            1.0 * (place > 0.5),
            np.full(len(place), 45.0),
        ],
        axis=1,
    )


def cycles(seed: int, n: int, other_length: int = 0, late: int = 0) -> Float64s:
    """Buckets of a press whose cycles are up to ``other_length`` longer or shorter, from anywhere in one on.

    ``late``: buckets by which the pressure rises late from the middle on.
    """
    random = np.random.default_rng(seed)
    parts = list[Float64s]()
    while sum(map(len, parts)) < n + PERIOD:
        length = PERIOD + int(random.integers(-other_length, other_length + 1))
        place = (np.arange(length) + 0.5) / length
        values = press(place)
        if late and sum(map(len, parts)) > n / 2:
            values[:, 0] = press(place - late / length)[:, 0]
        parts.append(values)
    begin = int(random.integers(PERIOD))
    return np.concatenate(parts)[begin : begin + n] + random.normal(0, _NOISE, (n, 4))


def means(before: Float64s, now: Float64s) -> UnitMeans:
    return UnitMeans(3, _IDS[: before.shape[1]], before, now)


def episodes(before: Float64s, now: Float64s) -> list[dict[str, Any]]:
    kernel = Episodes(0, 10, 10 * 20 * len(now), {})
    return [row for row in kernel.of_unit(means(before, now)) if row.get("verdict") is None]


def departures(before: Float64s, now: Float64s) -> list[dict[str, Any]]:
    kernel = Departures(0, -10 * len(before), 10, 10 * 20 * len(now))
    return [row for row in kernel.of_unit(means(before, now)) if row.get("from_time") is not None]


@pytest.mark.parametrize("other_length", [0, 2])
def test_calm_cycles_have_an_episode_about_as_often_as_is_accepted(other_length: int) -> None:
    pairs = [(cycles(seed, 600, other_length), cycles(100 + seed, 600, other_length)) for seed in range(30)]
    assert sum(bool(episodes(*pair)) for pair in pairs) <= 4  # 1.5 are expected
    assert sum(bool(departures(*pair)) for pair in pairs) <= 4


@pytest.mark.parametrize("other_length", [0, 2])
def test_a_fault_in_a_part_of_a_cycle(other_length: int) -> None:
    before, now = cycles(1, 600, other_length), cycles(2, 600, other_length)
    usual = usual_courses(before, now).now
    at = 400 + int(np.argmax(usual[400:440, 1]))  # the flow is at its top: lower, it is still within its band
    now[at : at + 5, 1] -= 1.5
    [row] = [row for row in episodes(before, now) if row["channel_id"] == 11]
    assert 10 * at <= row["peak_time"] < 10 * (at + 5)
    assert row["usual"] == pytest.approx(11, abs=0.2)
    assert row["peak"] == pytest.approx(9.5, abs=0.5)
    departed = departures(before, now)
    assert any(row["from_time"] <= 10 * (at + 4) and row["channels"][0] == 11 for row in departed), departed


def test_what_comes_late_in_each_cycle() -> None:
    before, now = cycles(1, 800), cycles(2, 800, late=5)
    rows = episodes(before, now)
    assert {row["channel_id"] for row in rows} == {10}
    assert min(row["from_time"] for row in rows) >= 10 * 400 - 10 * PERIOD
    assert departures(before, now)[0]["channels"][0] == 10


def test_usual_values_of_the_phases_of_a_day() -> None:
    hours = np.arange(24 * 20)
    day = 50 + 20 * np.sin(2 * np.pi * hours / 24) + np.random.default_rng(1).normal(0, 0.5, len(hours))
    usual = usual_courses(day[: 24 * 12, None], day[24 * 12 :, None])
    assert usual.verdicts.tolist() == [CYCLIC]
    assert np.abs(usual.now[:, 0] - 50 - 20 * np.sin(2 * np.pi * hours[24 * 12 :] / 24)).max() < 2


def test_verdicts() -> None:
    before, now = cycles(1, 600), cycles(2, 600)
    for kernel in (Episodes(0, 10, 100_000, {}), Departures(0, -6000, 10, 100_000)):
        assert verdicts(kernel, before, now)[:3] == [CYCLIC] * 3
        assert verdicts(kernel, before, now)[3] != CYCLIC


def verdicts(kernel: Episodes | Departures, before: Float64s, now: Float64s) -> list[int]:
    return [row["verdict"] for row in kernel.of_unit(means(before, now)) if row.get("verdict") is not None]


def test_pauses_are_no_missing_samples() -> None:
    before = np.concatenate([cycles(2, 10 * PERIOD), np.tile([5.0, 0, 0, 45], (800, 1)), cycles(3, 10 * PERIOD)])
    before[400:1200] += np.random.default_rng(2).normal(0, _NOISE, (800, 4))
    assert verdicts(Episodes(0, 10, 100_000, {}), before, cycles(4, 600))[:3] == [CYCLIC] * 3


def test_many_cycles_in_few_series_are_not_called_few() -> None:
    series = np.concatenate([press((np.arange(8 * PERIOD) + 0.5) / PERIOD % 1), np.tile([5.0, 0, 0, 45], (60, 1))])
    before = np.tile(series, (4, 1)) + np.random.default_rng(1).normal(0, _NOISE, (4 * len(series), 4))
    before[:, :3] *= 1 + 0.03 * np.sin(np.arange(len(before)) * 2 * np.pi / len(series))[:, None]
    for kernel in (Episodes(0, 10, 100_000, {}), Departures(0, -10 * len(before), 10, 100_000)):
        assert verdicts(kernel, before, cycles(4, 600))[:3] == [CYCLIC] * 3, kernel


def test_a_gap_is_no_fault() -> None:
    before, now = cycles(1, 800), cycles(2, 800)
    before[100:130], now[300:390] = np.nan, np.nan
    before[:, 3] = np.nan
    usual = usual_courses(before, now)
    assert usual.verdicts.tolist() == [CYCLIC] * 3 + [JUDGED]
    assert episodes(before, now) == []


@pytest.mark.parametrize("n", [1, 2 * PERIOD - 1, 2 * PERIOD, 600])
def test_an_interval_of_any_length_has_usual_values(n: int) -> None:
    before, now = cycles(1, 600), cycles(2, n)
    usual = usual_courses(before, now)
    assert usual.verdicts.tolist() == [CYCLIC if n >= 2 * PERIOD else JUDGED] * 3 + [
        JUDGED
    ]  # in a shorter one no cycle can be found
    assert np.isfinite(usual.now).all()
    if n >= 2 * PERIOD:
        assert np.abs(usual.now[:, 1] - now[:, 1]).max() < 0.8


def random_walk(seed: int) -> Float64s:
    return np.cumsum(np.random.default_rng(seed).normal(size=(600, 1)), axis=0)


@pytest.mark.parametrize(
    ("what", "before"),
    [
        ("few cycles", cycles(1, 4 * PERIOD)),
        ("exact repetition, of which nothing says what is far from it", press(np.arange(600) / PERIOD % 1)),
        ("noise", np.random.default_rng(1).normal(size=(600, 4))),
        ("nothing", np.full((600, 4), np.nan)),
        ("one mean", np.ones((1, 4))),
        *(("random walk", random_walk(seed)) for seed in range(5)),
    ],
)
def test_what_has_no_cycles_is_compared_with_its_median(what: str, before: Float64s) -> None:
    usual = usual_courses(before, before[:10])
    assert (usual.verdicts != CYCLIC).all(), what
    steady = usual.verdicts == JUDGED
    expected = np.broadcast_to(np.nanmedian(np.nan_to_num(before), axis=0), usual.now.shape)
    assert np.array_equal(usual.now[:, steady], expected[:, steady])


def swing(begin: int, n: int, seed: int = 1) -> Float64s:
    """A part of a day with a mean each minute, of two channels, with noise."""
    minutes = np.arange(begin, begin + n)[:, None]
    day = 50 + np.array([[20.0, -8.0]]) * np.sin(2 * np.pi * minutes / 1440)
    return day + np.random.default_rng(seed + begin).normal(0, 0.3, (n, 2))


def test_what_drifts_goes_on_as_far() -> None:
    before, now = swing(0, 120), swing(120, 120)
    usual = usual_courses(before, now)
    assert usual.verdicts.tolist() == [DRIFTING] * 2
    assert episodes(before, now) == []
    now[60:70, 1] -= 15  # where the drift would be after three times as long
    [row] = episodes(before, now)
    assert (row["channel_id"], row["from_time"], row["to_time"]) == (11, 600, 700)
    assert departures(before, now)[0]["channels"][0] == 11
    perfect = np.linspace(0, 1, 120)[:, None]
    assert usual_courses(perfect, perfect).verdicts.tolist() == [JUDGED], "nothing says what is far from a line"


def with_pauses(seed: int, n: int, other_length: int = 0, series: tuple[int, int] = (4, 12)) -> Float64s:
    """Buckets of a press that stops for up to four cycles after each series of cycles."""
    random = np.random.default_rng(1000 + seed)
    parts, at_rest = list[Float64s](), np.array([5.0, 0.0, 0.0, 45.0])
    while sum(map(len, parts)) < n:
        for _ in range(int(random.integers(*series))):
            length = PERIOD + int(random.integers(-other_length, other_length + 1))
            parts.append(press((np.arange(length) + 0.5) / length))
        parts.append(np.tile(at_rest, (int(random.integers(10, 4 * PERIOD)), 1)))
    return np.concatenate(parts)[:n] + random.normal(0, _NOISE, (n, 4))


@pytest.mark.parametrize("other_length", [0, 2])
def test_pauses_are_as_usual_as_in_the_reference(other_length: int) -> None:
    pairs = [(with_pauses(seed, 1200, other_length), with_pauses(100 + seed, 1200, other_length)) for seed in range(20)]
    assert all((usual_courses(*pair).verdicts[:3] == CYCLIC).all() for pair in pairs)
    assert sum(bool(episodes(*pair)) for pair in pairs) <= 3
    assert sum(bool(departures(*pair)) for pair in pairs) <= 3


@pytest.mark.parametrize("other_length", [0, 2])
def test_a_fault_in_cycles_between_pauses(other_length: int) -> None:
    before, now = with_pauses(6, 1200, other_length), with_pauses(7, 1200, other_length)
    high = np.flatnonzero(now[:, 1] > 10.5)  # the flow is at its top, which is beyond all that it does in a pause
    now[high[(high > 400) & (high < 800)], 1] -= 1.5
    rows = episodes(before, now)
    assert {row["channel_id"] for row in rows} == {11}
    assert all(4000 <= row["from_time"] <= row["to_time"] <= 8010 for row in rows)
    assert departures(before, now)[0]["channels"][0] == 11


def with_a_pause(seed: int, n: int, pause: int, at: int) -> Float64s:
    """Buckets of a press that stops for ``pause`` of them: its pressure falls far below a small swing, and it cools."""
    place = (np.arange(n) + 0.5) / PERIOD % 1
    values = press(place)
    values[:, 0] = 142 + 0.6 * (values[:, 0] - 100)
    values = np.concatenate([values[:at], np.tile([4.0, 0.0, 0.0, 41.0], (pause, 1)), values[at:]])[:n]
    return values + np.random.default_rng(seed).normal(0, _NOISE, (n, 4))


@pytest.mark.parametrize("at", [50, 130, 330])
@pytest.mark.parametrize("pause", [PERIOD, 60, 2 * PERIOD, 200])
def test_a_rare_deep_pause_hides_no_cycles(pause: int, at: int) -> None:
    before, now = with_a_pause(1, 600, pause, at), with_a_pause(2, 600, 110, 290)
    assert (usual_courses(before, now).verdicts[:3] == CYCLIC).all()
    assert episodes(before, now) == []
    assert departures(before, now) == []
    high = np.flatnonzero(now[:, 1] > 10.5)
    now[high[(high > 160) & (high < 240)], 1] -= 1.5
    assert {row["channel_id"] for row in episodes(before, now)} == {11}
    assert departures(before, now)[0]["channels"][0] == 11


def test_a_pause_that_begins_at_the_end_of_the_reference_hides_no_cycles() -> None:
    before, now = with_a_pause(1, 600, 30, 570), with_a_pause(2, 600, 0, 0)
    assert (usual_courses(before, now).verdicts[:3] == CYCLIC).all()
    now[np.flatnonzero(now[:, 1] > 10.5)[20:40], 1] -= 1.5
    assert {row["channel_id"] for row in episodes(before, now)} == {11}


def test_a_channel_without_cycles_is_judged_in_pauses_too() -> None:
    before, now = with_a_pause(1, 600, 110, 130), with_a_pause(2, 600, 110, 290)
    now[320:380, 3] = 36.0
    [row] = departures(before, now)
    assert (row["from_time"], row["to_time"], row["channels"][0]) == (3200, 3800, 13)


def test_a_pause_is_an_episode_where_the_reference_has_none() -> None:
    before, now = cycles(1, 800), cycles(2, 800)
    now[400:600] = np.array([5.0, 0.0, 0.0, 45.0]) + np.random.default_rng(3).normal(0, _NOISE, (200, 4))
    rows = episodes(before, now)
    assert {10, 11} <= {row["channel_id"] for row in rows}
    assert all(row["from_time"] >= 3600 and (row["to_time"] or 8000) <= 6800 for row in rows)
    assert departures(before, now)


def test_a_pause_of_other_values_is_an_episode() -> None:
    before, now = with_pauses(1, 1200), with_pauses(2, 1200)
    at_rest = np.flatnonzero(now[:, 0] < 50)
    now[at_rest[len(at_rest) // 2 :], 0] += 30.0
    assert 10 in {row["channel_id"] for row in episodes(before, now)}


def test_of_batches_with_a_pause_after_each_nothing_is_learnt() -> None:
    pairs = [(with_pauses(seed, 1200, 2, (1, 2)), with_pauses(100 + seed, 1200, 2, (1, 2))) for seed in range(10)]
    assert not any((usual_courses(*pair).verdicts == CYCLIC).any() for pair in pairs)
    assert sum(bool(episodes(*pair) or departures(*pair)) for pair in pairs) <= 1


def test_unlike_parts_of_a_reference_with_pauses_have_their_times() -> None:
    before = with_pauses(3, 2000)
    kept = np.flatnonzero(~usual_courses(before, before).left_out)
    begin, end = kept[len(kept) // 5 * 4], kept[-1] + 1
    before[begin:end, 3] += np.random.default_rng(1).normal(0, 3, end - begin)
    rows = list(Departures(0, -20_000, 10, 100_000).of_unit(means(before, with_pauses(4, 600))))
    said = [row for row in rows if row.get("unlike_from")]
    [(unlike_from, unlike_to)] = {(row["unlike_from"][0], row["unlike_to"][0]) for row in said}
    assert unlike_from == pytest.approx(10 * begin - 20_000, abs=20)
    assert unlike_to == 10 * end - 20_000


def test_an_interval_without_a_whole_cycle_is_not_judged_where_pauses_are_usual() -> None:
    now = with_pauses(5, 2 * PERIOD)
    usual = usual_courses(with_pauses(0, 1200), now)
    assert usual.verdicts[:3].tolist() == [CYCLIC] * 3
    assert np.array_equal(usual.now[:, :3], now[:, :3])
