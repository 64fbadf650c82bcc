"""compare: where a start-up differs from an earlier one."""

from __future__ import annotations

import numpy as np

from tests.integration.history.questions.recording import Recording, at

_SECONDS = np.arange(0.0, 3000.0)
_AGAIN = 1500.0  # s
_FIRST = f"{at(0).isoformat()}..{at(1000).isoformat()}"


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, len(_SECONDS))


def start_ups(delay: float) -> np.ndarray:
    """Two of them: it gets warm, waits, the second time longer, and gets hot."""
    late = _SECONDS >= _AGAIN
    passed = _SECONDS - late * _AGAIN
    course: np.ndarray = 60 * np.clip(passed / 200, 0, 1) + 30 * np.clip((passed - 300 - delay * late) / 100, 0, 1)
    return course


async def test_a_start_up_that_differs(recorded: Recording) -> None:
    await recorded.channel("boiler/pressure", unit="bar")
    await recorded.samples("boiler/pressure", _SECONDS, start_ups(0) + noise(1) - 10 * (_SECONDS >= _AGAIN + 600))
    await recorded.samples("boiler/temperature", _SECONDS, start_ups(0) + noise(2))
    await recorded.samples("boiler/gone", _SECONDS[:1000], start_ups(0)[:1000])
    await recorded.gap("boiler/gone", 999.5, None)
    [row] = await recorded.ask("compare", at(_AGAIN), at(_AGAIN + 1000), reference=_FIRST)
    assert (row["channel"], row["unit"]) == ("boiler/pressure", "bar")
    assert (row["from_time"], row["to_time"], row["seconds_after_start"]) == (at(_AGAIN + 600), None, 600)
    assert row["other_value"] - row["value"] > 8
    assert abs((row["at"] - row["other_at"]).total_seconds() - _AGAIN) <= 100  # a tenth of the interval


async def test_a_phase_that_takes_longer_is_a_difference_without_warp_only(recorded: Recording) -> None:
    for name, seed in (("boiler/pressure", 1), ("boiler/temperature", 2)):
        await recorded.samples(name, _SECONDS, start_ups(50) + noise(seed))
    since, until = at(_AGAIN), at(_AGAIN + 1000)
    assert await recorded.ask("compare", since, until, reference=_FIRST) == []
    assert await recorded.ask("compare", since, until, reference=_FIRST, warp="60 s") == []
    rows = await recorded.ask("compare", since, until, reference=_FIRST, warp="0 s")
    assert {row["channel"] for row in rows} == {"boiler/pressure", "boiler/temperature"}
    assert all(300 <= row["seconds_after_start"] <= 350 for row in rows)


async def test_the_largest_difference_comes_first(recorded: Recording) -> None:
    again = _SECONDS >= _AGAIN
    await recorded.samples("boiler/level", _SECONDS, start_ups(0) + noise(1) - 8 * (again & (_SECONDS < 1800)))
    await recorded.samples("boiler/pressure", _SECONDS, start_ups(0) + noise(2) - 50 * (_SECONDS >= _AGAIN + 600))
    rows = await recorded.ask("compare", at(_AGAIN), at(_AGAIN + 1000), reference=_FIRST)
    assert [row["channel"] for row in rows] == ["boiler/pressure", "boiler/level"]


async def test_a_run_is_not_compared_with_itself(recorded: Recording) -> None:
    """It begins where the earlier run ends, and what is at its end was at its start."""
    hot = ((_SECONDS >= 1000) & (_SECONDS < 1100)) | ((_SECONDS >= 1950) & (_SECONDS < 2000))
    await recorded.samples("boiler/pressure", _SECONDS, 50 + 40 * hot + noise(1))
    rows = await recorded.ask("compare", at(1000), at(2000), reference=_FIRST)
    assert sorted(row["seconds_after_start"] for row in rows) == [0, 950]
    assert all(row["other_at"] < at(1000) for row in rows)
