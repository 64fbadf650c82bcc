"""First moves: where they are, what is usual, and which channels can't be judged."""

from __future__ import annotations

import numpy as np
import pytest

from core.batch import Float64s
from core.samples import Samples
from history.sql.kernels.columns import Channels
from history.sql.kernels.movers import Movers
from history.sql.kernels.reference import FAULTY, JUDGED, MOSTLY_MISSING, NO_SAMPLES, SHORT_REFERENCE
from history.sql.kernels.resampled import Grid
from tests.unit.history.sql_samples import columns
from tests.unit.history.test_sql_resampled import channel_fields

_SINCE, _UNTIL = 3600, 4200


def moves_of(
    *values: Float64s, kind: str = "analog", wraps_at: float | None = None, step: int = 1, span: float | None = None
) -> tuple[list[tuple[int, int, float]], list[int]]:
    """Channel, time and times of moves, and the verdicts. ``values``: of channels; one each µs."""
    samples = [(n, at * step, float(v), 0) for n, of in enumerate(values) for at, v in enumerate(of)]
    every = [{**channel_fields(n, [], _UNTIL * step, kind=kind), "wraps_at": wraps_at} for n in range(len(values))]
    grid, false_alarms = Grid(Channels.of_fields(every), 0, step), 20.0 * step * (_UNTIL - _SINCE)
    states = range(len(values)) if kind == "discrete" else ()
    spans = {} if span is None else dict.fromkeys(range(len(values)), span)
    movers = Movers(grid, spans, (0, _SINCE * step), _SINCE * step, false_alarms, states)
    computed = movers.compute(columns(samples))
    rows = list(
        zip(computed["channel_id"].tolist(), computed["time"].tolist(), computed["times"].tolist(), strict=True)
    )
    verdicts = computed["verdict"].tolist()
    return (
        [row for row, verdict in zip(rows, verdicts, strict=True) if not verdict],
        [verdict for verdict in verdicts if verdict],
    )


def course_of(values: Float64s, kind: str = "analog") -> tuple[float, float]:
    """Usual value before the only move of a channel, and the value that it moved to. ``values``: one each µs."""
    grid = Grid(Channels.of_fields([channel_fields(0, [], _UNTIL, kind=kind)]), 0, 1)
    samples = columns([(0, at, float(value), 0) for at, value in enumerate(values)])
    computed = Movers(grid, {}, (0, _SINCE), _SINCE, 20.0 * (_UNTIL - _SINCE)).compute(samples)
    [row] = np.flatnonzero(computed["verdict"] == 0)
    return float(computed["usual"][row]), float(computed["value"][row])


def noise(seed: int, n: int = _UNTIL) -> Float64s:
    return np.random.default_rng(seed).normal(50, 1, n)


@pytest.mark.parametrize("step", [1, 100_000, 180_000_000])  # µs: the same at 10 Hz as at 3 minutes
def test_step_is_placed_where_it_is(step: int) -> None:
    at = np.arange(_UNTIL)
    steps = [noise(n) + size * (at >= 3700) for n, size in enumerate((30, 8, 2))]
    rows, verdicts = moves_of(noise(9), *steps, step=step)
    assert [channel for channel, *_ in rows] == [1, 2, 3]
    assert [time for _, time, _ in rows[:2]] == [3700 * step, 3700 * step]
    assert abs(rows[2][1] - 3700 * step) <= 8 * step
    assert len(verdicts) == 4


@pytest.mark.parametrize("ago", [1, 10, 30, 100])
@pytest.mark.parametrize("lag", [1, 12])  # of its response
def test_move_before_the_interval_is_none_within_it(ago: int, lag: int) -> None:
    """Means before the first positions still have it in them; a move behind it is found where it is."""
    at = np.arange(_UNTIL)
    begin = _SINCE - ago - 3 * lag
    before = noise(1) + 30 * (1 - np.exp(-np.maximum(0, at - begin + 1) / lag))
    held = np.where(at < begin, 101.0, 108.0)
    assert moves_of(before, held)[0] == []
    rows, _ = moves_of(before - 15 * (at >= 3900), held + 20 * (at >= 3900))
    assert [(channel, time) for channel, time, _ in rows] == [(0, 3900), (1, 3900)]


@pytest.mark.parametrize("left", [3, 5, 20, 50])
def test_move_near_the_end_is_where_values_change(left: int) -> None:
    """Its means of 64 would begin before it, and mix what was before with what came."""
    at = np.arange(_UNTIL)
    held, small = np.where(at < _UNTIL - left, 90.0, 96.0), noise(3) + 12 * (at >= _UNTIL - left)
    rows, _ = moves_of(held, small)
    assert [(channel, time) for channel, time, _ in rows] == [(0, _UNTIL - left), (1, _UNTIL - left)]
    assert course_of(held) == (90, 96)


def test_later_move_is_listed_if_it_is_much_farther() -> None:
    at = np.arange(_UNTIL)
    small, slow = 6.0 * (at >= 3700), 4 * (1 - np.exp(-np.maximum(0, at - 3700) / 20))
    returned, twice = small * (at < 3900), small + 9.0 * (at >= 3900)
    rows, _ = moves_of(noise(1) + small + 60 * (at >= 4000), *(noise(n) + of for n, of in ((2, returned), (3, twice))))
    assert [(channel, time) for channel, time, _ in rows] == [(0, 3700), (0, 4000), (1, 3700), (2, 3700)]
    assert rows[1][2] > 3 * rows[0][2]
    rows, _ = moves_of(noise(4) + slow, noise(5) + 0.05 * np.maximum(0, at - 3700))
    assert [channel for channel, *_ in rows] == [0, 1], "a slow move is one"


def test_faults_in_the_reference_are_left_out_and_said() -> None:
    values, at = noise(1), np.arange(_UNTIL)
    for begin in (600, 1500, 2400, 3700):
        values -= 10.0 * ((at >= begin) & (at < begin + 300))
    rows, verdicts = moves_of(values)
    assert [(channel, time) for channel, time, _ in rows] == [(0, 3700)]
    assert verdicts == [FAULTY]


@pytest.mark.parametrize("kind", ["analog", "discrete"])
def test_change_as_in_the_reference_is_a_habit_of_what_holds_its_values(kind: str) -> None:
    at = np.arange(_UNTIL)
    recipe = np.where((at >= 900) & (at < 2700), 2.0, 1.0)
    assert moves_of(np.where(at >= 3800, 2.0, recipe), kind=kind) == ([], [JUDGED])
    [(_, time, times)], verdicts = moves_of(np.where(at >= 3800, 7.0, recipe), kind=kind)
    assert (time, verdicts) == (3800, [JUDGED])
    assert times > 4 if kind == "analog" else np.isnan(times), "codes have no scale"


def ramped(*changes: tuple[int, float], rate: float = 1.0) -> Float64s:
    """A set point that an operator's station ramps: from 100 on, to a value from a time on."""
    values = np.full(_UNTIL, 100.0)
    for at, target in changes:
        going = values[at] + np.sign(target - values[at]) * rate * np.arange(1, _UNTIL - at + 1)
        values[at:] = np.where(np.abs(going - values[at]) < abs(target - values[at]), going, target)
    return values


def test_ramp_of_a_set_point_begins_with_its_first_step() -> None:
    """Effects come behind it."""
    rows, _ = moves_of(ramped((1000, 110), (3700, 130)))
    assert [(channel, time) for channel, time, _ in rows] == [(0, 3700)]
    assert course_of(ramped((1000, 110), (3700, 130)))[0] == 110


def test_ramp_as_in_the_reference_is_a_habit_and_hides_no_larger_one() -> None:
    """Between a few changes it holds its value exactly: nothing but they says what is usual."""
    before = (500, 121), (1500, 105), (2500, 117)
    assert moves_of(ramped(*before, (3700, 101)))[0] == []
    rows, _ = moves_of(ramped(*before, (3700, 101), (3900, 150)))
    assert [(channel, time) for channel, time, _ in rows] == [(0, 3900)]
    assert np.isfinite(rows[0][2])


def test_what_is_exactly_0_for_most_of_the_reference_has_the_noise_of_the_rest() -> None:
    """A flow behind a valve: its noise while it is open is no move."""
    flow = np.random.default_rng(3).normal(2400, 12, _UNTIL)
    flow[300:900] = flow[1200:3000] = 0
    assert moves_of(flow)[0] == []


@pytest.mark.parametrize("begin", [3000, 3300])
def test_what_stands_but_for_one_run_does_not_move_while_it_runs(begin: int) -> None:
    """A standby pump, whose start is the only change of the reference."""
    current = np.round(np.random.default_rng(4).normal(43, 0.15, _UNTIL), 1) * (np.arange(_UNTIL) >= begin)
    stopped = current * (np.arange(_UNTIL) < 3900)
    assert moves_of(current, stopped) == ([], [JUDGED, JUDGED])


def test_fault_of_what_is_rounded_is_no_habit() -> None:
    """Its noise is a value that toggles now and then; medians of three don't."""
    at = np.arange(_UNTIL)
    fault = ((at >= 900) & (at < 1200)) | (at >= 3700)
    rows, verdicts = moves_of(np.round(50 + (noise(1) - 50) / 6) - 10.0 * fault)
    assert [(channel, time) for channel, time, _ in rows] == [(0, 3700)]
    assert verdicts == [FAULTY]


def test_state_that_the_reference_never_had_is_listed_however_near_it_is() -> None:
    at = np.arange(_UNTIL)
    mode = np.where((at >= 900) & (at < 2700), 8.0, 1.0)
    rows, _ = moves_of(np.where(at >= 3801, 2.0, mode), np.where(at >= 3801, 8.0, mode), kind="discrete")
    assert [(channel, time) for channel, time, _ in rows] == [(0, 3801)]


def test_what_was_as_wild_before_does_not_move() -> None:
    at = np.arange(_UNTIL)
    assert moves_of(noise(1) + 40 * (at % 400 < 60), noise(2) + 20 * (at == 3800))[0] == []


def test_what_alternates_to_the_end_does_not_move() -> None:
    assert moves_of(0.1 * noise(1) + 40 * (np.arange(_UNTIL) % 2)) == ([], [JUDGED])


def test_constant_channel_has_no_score() -> None:
    at = np.arange(_UNTIL)
    [(channel, time, times)], verdicts = moves_of(np.full(_UNTIL, 7.0), np.where(at < 3900, 40.0, 46.0))
    assert (channel, time, verdicts) == (1, 3900, [JUDGED, JUDGED])
    assert np.isnan(times)


def test_what_can_not_be_judged_is_said() -> None:
    short = Movers(Grid(Channels.of_fields([channel_fields(0, [], 100)]), 0, 1), {}, (0, 40), 40, 1e4)
    assert short.compute(columns([(0, at, 1.0, 0) for at in range(100)]))["verdict"].tolist() == [SHORT_REFERENCE]
    ended = Movers(Grid(Channels.of_fields([channel_fields(0, [], 200)]), 0, 1), {}, (0, 300), 300, 1e4)
    assert ended.compute(columns([(0, at, 1.0, 0) for at in range(100)]))["verdict"].tolist() == [NO_SAMPLES]
    late = Movers(Grid(Channels.of_fields([channel_fields(0, [], _UNTIL)]), 0, 1), {}, (0, _SINCE), _SINCE, 1e4)
    values = [(0, at, float(value), 0) for at, value in enumerate(noise(1))]
    assert late.compute(columns(values[2000:]))["verdict"].tolist() == [MOSTLY_MISSING]
    assert late.compute(columns(values[1500:]))["verdict"].tolist() == [JUDGED]
    faulty = [(0, at, value - 10 * (2400 <= at < 2700), 0) for _, at, value, _ in values]
    assert late.compute(columns(faulty[2000:]))["verdict"].tolist() == [FAULTY], "what is missing is seen without it"


@pytest.mark.parametrize("sign", [1, -1])
def test_move_is_told_from_the_course_before_it(sign: int) -> None:
    """A channel that drifts away from the mean of its reference moves back towards it."""
    at, quiet = np.arange(_UNTIL), (noise(1) - 50) / 10
    drift = -0.002 * np.maximum(0, at - 1800)
    usual, value = course_of(50 + sign * (quiet + drift + 0.05 * np.maximum(0, at - 3800)))
    assert sign * (value - usual) > 0, "the direction of the move"
    assert abs(usual - (50 - sign * 4)) < 0.5, "the value before it"
    assert sign * (value - 50) < 0, "it was noticed before it was back"


def test_usual_value_is_that_just_before_the_move() -> None:
    """Not a mean of it and of a start shortly before."""
    at = np.arange(_UNTIL)
    knocks = 120 * (at % 40 < 4) * (at % 120 < 90)  # so that a mean of few values says nothing
    runs = (at % 450) >= 120
    usual, value = course_of(50 * runs + knocks + 0.1 * noise(9) + 80 * (at >= 3800))
    assert usual == pytest.approx(64, abs=4)
    assert value == pytest.approx(144, abs=12)


def test_small_step_has_its_size_in_spite_of_noise() -> None:
    """A single value of a move smaller than the noise could be on the other side."""
    for seed in (5, 6, 7, 8):
        usual, value = course_of(noise(seed) + 1.5 * (np.arange(_UNTIL) >= 3800))
        assert abs(usual - 50) < 0.6
        assert 0.8 < value - usual < 2.5


def test_counter_is_compared_with_what_its_rate_would_have_made_of_it() -> None:
    at = np.arange(_UNTIL)
    usual, value = course_of(5000.0 + 20 * at + 80.0 * np.maximum(0, at - 3900), "counter")
    assert (usual, value) == (5000 + 20 * 3901, 5000 + 20 * 3901 + 80)


@pytest.mark.parametrize("base", [0.0, 1e5, 1e7, 1e12])
@pytest.mark.parametrize("span", [None, 1e9])
def test_rate_of_a_counter_counts_whatever_it_has_counted_before(base: float, span: float | None) -> None:
    at, random = np.arange(_UNTIL), np.random.default_rng(1)
    rate = np.where(at < 3900, 5.0, 50.0) + random.normal(0, 0.3, _UNTIL)
    rows, verdicts = moves_of(base + np.cumsum(rate), kind="counter", span=span)
    assert [(channel, time) for channel, time, _ in rows] == [(0, 3900)]
    assert verdicts == [JUDGED]


@pytest.mark.parametrize("base", [0.1, 123_456_789.1, 1e12 + 0.1])
def test_rounding_errors_of_means_are_no_rate(base: float) -> None:
    """A counter stands, in means of several samples, which are of one in the reference."""
    grid = Grid(Channels.of_fields([channel_fields(0, [], _UNTIL * 10, kind="counter")]), 0, 10)
    more = np.random.default_rng(0).random(_UNTIL * 10) < 0.7
    more[: _SINCE * 10] = False
    more[::10] = True
    movers = Movers(grid, {}, (0, _SINCE * 10), _SINCE * 10, 200.0 * (_UNTIL - _SINCE))
    samples = columns([(0, int(at), base, 0) for at in np.flatnonzero(more)])
    assert movers.compute(samples)["verdict"].tolist() == [JUDGED]


@pytest.mark.parametrize("kind", ["analog", "counter"])
def test_a_value_before_a_bad_sample_is_not_held(kind: str) -> None:
    values = 5 + 0.3 * noise(3)
    values[3699] = 10.0
    if kind == "counter":
        values = np.cumsum(values)
    values[3700:3900] = np.nan
    assert moves_of(values, kind=kind) == ([], [JUDGED])


@pytest.mark.parametrize("kind", ["independent", "heavy tails", "autocorrelated", "wandering"])
def test_false_alarms_are_about_as_rare_as_asked(kind: str) -> None:
    """Of 30 intervals of ten minutes of eight channels, after an hour each, 1.5 are expected to have one by chance."""
    channels = 8
    ids = np.repeat(np.arange(channels, dtype=np.int32), _UNTIL)
    times, status = np.tile(np.arange(_UNTIL), channels), np.zeros(len(ids), np.uint32)
    grid = Grid(Channels.of_fields(channel_fields(n, [], _UNTIL) for n in range(channels)), 0, 1)
    movers = Movers(grid, {}, (0, _SINCE), _SINCE, 20.0 * channels * (_UNTIL - _SINCE))
    with_moves = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        values = random.normal(0, 1, (channels, _UNTIL))
        if kind == "heavy tails":
            values = random.standard_t(3, (channels, _UNTIL))
        elif kind == "autocorrelated":
            for at in range(1, _UNTIL):
                values[:, at] += 0.9 * values[:, at - 1]
        elif kind == "wandering":
            values += 0.1 * np.cumsum(random.normal(0, 1, (channels, _UNTIL)), axis=1)
        with_moves += bool((movers.compute(Samples(ids, times, values.ravel(), status))["verdict"] == 0).any())
    assert with_moves <= (6 if kind == "heavy tails" else 3)


def test_wrap_or_reset_of_a_counter_is_no_move() -> None:
    """Of 20 a second, around its wrap and its reset; the third one runs faster."""
    at = np.arange(_UNTIL)
    wrapped, reset = 20.0 * at % 65_536.0, np.where(at < 3900, 5000.0 + 20 * at, 20.0 * (at - 3900))
    faster = 5000.0 + 20 * at + 80.0 * np.maximum(0, at - 3900)
    rows, _ = moves_of(*np.stack([wrapped, reset, faster]).astype(np.float64), kind="counter", wraps_at=65_536.0)
    assert [(channel, time) for channel, time, _ in rows] == [(2, 3901)]
