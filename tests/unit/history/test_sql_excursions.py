"""Excursions: what is far on which scale, placed at samples, and which channels can't be judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from core.batch import Float64s
from core.errors import OperationError
from history.sql.kernels.columns import Channels
from history.sql.kernels.excursions import Excursions
from history.sql.kernels.reference import FAULTY, JUDGED, MOSTLY_MISSING, NO_SAMPLES, SHORT_REFERENCE
from tests.unit.history.sql_samples import columns

_SINCE, _UNTIL = 3600, 4800
_AT = np.arange(_UNTIL)
Rows = list[tuple[int, int, int, float, float]]  # channel, scale, time, value, times of the limit


def excursions(
    *values: Float64s, step: int = 1, reference: int = _SINCE, gaps: Sequence[tuple[int, int]] = ()
) -> tuple[Rows, list[int]]:
    """Rows, and the verdicts. ``values``: of channels, one each step (µs); ``reference``: steps before since; ``gaps``:
    of each channel, in steps."""
    within = _SINCE * step, _UNTIL * step
    edges = {"gaps_from": [begin * step for begin, _ in gaps], "gaps_to": [end * step for _, end in gaps]}
    channels = Channels.of_fields(
        {"channel_id": number, "kind": "analog", "ends": within[1], **edges} for number in range(len(values))
    )
    kernel = Excursions(
        channels, {}, (within[0] - reference * step, within[0]), within, 3 * step, 60 * step, 20.0 * _UNTIL * step
    )
    samples = [
        (n, at * step, float(v), 0)
        for n, of in enumerate(values)
        for at, v in enumerate(of)
        if not any(begin < at < end for begin, end in gaps)
    ]
    result = kernel.compute(columns(samples))
    names = ("channel_id", "scale", "time", "value", "times")
    rows = list(zip(*(result[name].tolist() for name in names), strict=True))
    verdicts = result["verdict"].tolist()
    return (
        [row for row, verdict in zip(rows, verdicts, strict=True) if not verdict],
        [verdict for verdict in verdicts if verdict],
    )


def noise(seed: int) -> Float64s:
    return np.random.default_rng(seed).normal(50, 1, _UNTIL)


@pytest.mark.parametrize("step", [1, 100_000, 180_000_000])  # µs: the same at 10 Hz as at 3 minutes
def test_each_scale_shows_what_is_on_it(step: int) -> None:
    spike, swing = noise(1) + 20 * (_AT == 4000), noise(2) + 10 * np.sin(_AT / 10) * (_AT >= 4200)
    drift = noise(3) + 0.02 * np.maximum(0, _AT - 3900)
    rows, verdicts = excursions(spike, swing, drift, noise(4), step=step)
    assert verdicts == [JUDGED] * 4
    scales = [{scale for channel, scale, *_ in rows if channel == number} for number in range(4)]
    assert scales[3] == set()
    assert 0 in scales[0] <= {0, 1}  # the mean of three samples is far, too
    assert 1 in scales[1]
    assert scales[2] == {2}
    [(_, _, time, value, times)] = [row for row in rows if row[:2] == (0, 0)]
    assert (time, round(value / 20)) == (4000 * step, 1)
    assert times > 1
    assert min(time for channel, scale, time, *_ in rows if (channel, scale) == (1, 1)) >= 4197 * step


def test_step_is_placed_where_it_is() -> None:
    rows, _ = excursions(noise(1) + 3 * (_AT >= 4002))
    first = {scale: min(time for _, of, time, *_ in rows if of == scale) for _, scale, *_ in rows}
    assert abs(first[2] - 4002) <= 6


@pytest.mark.parametrize("ago", [1, 30, 150])
def test_step_before_the_interval_is_none_within_it(ago: int) -> None:
    before = noise(1) + 30 * (_SINCE - ago <= _AT)
    assert excursions(before)[0] == []
    rows, _ = excursions(before - 15 * (_AT >= 4200))
    assert min(time for _, _, time, *_ in rows) == 4200


@pytest.mark.parametrize("left", [12, 33])
def test_step_near_the_end_is_where_values_change(left: int) -> None:
    rows, _ = excursions(noise(1) + 9 * (_UNTIL - left <= _AT))
    slow = [(time, value) for _, scale, time, value, _ in rows if scale == 2]
    assert [time for time, _ in slow] == [_UNTIL - left]
    assert abs(slow[0][1] - 9) < 1


def test_habits_are_no_excursions() -> None:
    assert excursions(noise(1) + 30 * (_AT % 40 == 0), noise(2) + 20 * (_AT % 400 < 60))[0] == []


@pytest.mark.parametrize("phase", [0, 2, 4])
@pytest.mark.parametrize("missing", range(6))  # samples at the end: the last mean of three is one of fewer
def test_cycle_is_whole_at_the_ends(phase: int, missing: int) -> None:
    """Short means alternate: each is one of half a cycle."""
    cycle = np.array([0, 0, 100, 100, 75, 25])[(_AT + phase) % 6]
    values = cycle + 0.1 * noise(1)
    assert excursions(values[: _UNTIL - missing]) == ([], [JUDGED])
    assert excursions(values, reference=_SINCE - missing) == ([], [JUDGED])


def test_faults_in_the_reference_are_left_out_and_said() -> None:
    valve = sum(((begin <= _AT) & (begin + 300 > _AT)).astype(float) for begin in (900, 2400, 3900))
    rows, verdicts = excursions(noise(1) - 10.0 * valve)
    assert verdicts == [FAULTY]
    assert abs(min(time for _, scale, time, *_ in rows if scale == 2) - 3900) <= 6


@pytest.mark.parametrize("course", ["toggles", "changes only", "swings"])
def test_spike_of_two_steps_of_rounding_is_none(course: str) -> None:
    """Where one is usual; of three it is one."""
    random, spiked = np.random.default_rng(1), list[Float64s]()
    values = {
        "toggles": np.cumsum(random.normal(0, 0.1, _UNTIL)) + random.normal(0, 0.2, _UNTIL),
        "changes only": np.cumsum(random.choice([-1.0, 1.0], _UNTIL)),
        "swings": 30 * np.sin(_AT / 9),
    }[course]
    for steps in (2, 3):
        spiked.append(np.round(values))
        spiked[-1][4000] = max(spiked[-1][[3999, 4001]]) + steps
    fast = [(channel, time) for channel, scale, time, *_ in excursions(*(9 + of / 10 for of in spiked))[0] if not scale]
    assert fast == [(1, 4000)]


def test_constant_channel_has_no_score() -> None:
    rows, verdicts = excursions(np.full(_UNTIL, 7.0), np.where(_AT == 4000, 46.0, 40.0))
    assert {row[0] for row in rows} == {1}
    assert rows[0][:3] == (1, 0, 4000)
    assert all(np.isnan(row[4]) for row in rows)
    assert verdicts == [JUDGED, JUDGED]


def test_what_can_not_be_judged_is_said() -> None:
    assert excursions(noise(1), reference=30) == ([], [SHORT_REFERENCE])
    assert excursions(noise(1)[:_SINCE]) == ([], [NO_SAMPLES])
    assert excursions(noise(1), gaps=[(100, 1950)]) == ([], [MOSTLY_MISSING])
    assert excursions(noise(1), gaps=[(100, 1850)]) == ([], [JUDGED])
    assert excursions(np.where((_AT > 100) & (_AT < 1950), np.nan, noise(1))) == ([], [MOSTLY_MISSING])
    faulty = noise(1) - 10.0 * ((_AT >= 2400) & (_AT < 2700))
    assert excursions(noise(1), reference=8000) == ([], [MOSTLY_MISSING])
    assert excursions(faulty, reference=8000) == ([], [FAULTY]), "what is missing is seen without it"


@pytest.mark.parametrize("name", ["short", "long"])
def test_bins_have_a_length(name: str) -> None:
    with pytest.raises(OperationError, match=f"{name}: found 0 µs; legal: more than 0"):
        Excursions(Channels.of_fields([]), {}, (0, 1), (1, 2), **{"short": 1, "long": 1, name: 0}, false_alarms=1.0)
