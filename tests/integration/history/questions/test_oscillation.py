"""oscillation: which channels swing, and who swings with whom."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.history.questions.recording import BAD, Recording, at

_SECONDS = np.arange(0.0, 1200.0)


def noise(seed: int) -> np.ndarray:
    return 50 + np.random.default_rng(seed).normal(0, 0.5, len(_SECONDS))


def sine(period: float, lag: float = 0.0) -> np.ndarray:
    return np.sin(2 * np.pi * (_SECONDS - lag) / period)


async def test_loops_that_swing_together_are_named_with_period_amplitude_and_lag(recorded: Recording) -> None:
    late = _SECONDS >= 600
    await recorded.channel("boiler/level", unit="m")
    await recorded.samples("boiler/level", _SECONDS, noise(1) + 4 * sine(60))
    await recorded.samples("boiler/flow", _SECONDS, noise(2) + 8 * sine(60, lag=12) * late)
    triangles = 2 * np.abs((_SECONDS / 97) % 1 * 2 - 1) - 1
    await recorded.samples("pump/output", _SECONDS, noise(3) + 10 * triangles)
    await recorded.samples("pump/calm", _SECONDS, noise(4))
    await recorded.samples("pump/wandering", _SECONDS, 50 + np.cumsum(noise(5) - 50))
    await recorded.samples("pump/constant", _SECONDS, np.full(1200, 7.0))
    await recorded.samples("pump/bad", _SECONDS, noise(6) + 4 * sine(60), BAD)
    rows = await recorded.ask("oscillation", at(0), at(1200))
    assert [(row["channel"], row["together"], row["companions"], row["place"]) for row in rows] == [
        ("boiler/level", 1, 1, 1),
        ("boiler/flow", 1, 1, 2),
        ("pump/output", 2, 0, 1),
    ]
    level, flow, output = rows
    assert (level["period_seconds"], flow["period_seconds"]) == pytest.approx((60, 60), rel=0.02)
    assert output["period_seconds"] == pytest.approx(97, rel=0.02)
    assert (level["amplitude"], flow["amplitude"]) == pytest.approx((4, 8), rel=0.1)
    assert level["unit"] == "m"
    assert level["since_when"] is None
    assert at(570) <= flow["since_when"] <= at(630)
    assert (level["lag_seconds"], flow["lag_seconds"]) == pytest.approx((0, 12), abs=1.5)
    assert output["stiction_index"] > 0.6 > level["stiction_index"]
    assert all(row["regularity"] > 1 for row in rows)


async def test_what_swings_as_before_comes_last(recorded: Recording) -> None:
    for name in ("motor", "tank", "valve"):
        await recorded.samples(f"compressor/{name}", _SECONDS, noise(1) + 4 * sine(40))
    await recorded.samples("compressor/oil", _SECONDS, noise(2) + 4 * sine(50) * (_SECONDS >= 700))
    await recorded.samples("compressor/intake", _SECONDS, noise(3) + 4 * sine(25) * np.where(_SECONDS < 600, 1, 3))
    rows = await recorded.ask("oscillation", at(600), at(1200), step="1 s")
    assert [row["channel"].removeprefix("compressor/") for row in rows] == ["intake", "oil", "motor", "tank", "valve"]
    assert [row["amplitude_before"] for row in rows] == [
        pytest.approx(4, rel=0.1),
        None,
        *[pytest.approx(4, rel=0.1)] * 3,
    ]
    rows = await recorded.ask("oscillation", at(600), at(1200), step="1 s", reference="100 s")
    assert {row["amplitude_before"] for row in rows} == {None}, "it has too few means"


async def test_what_is_full_of_gaps_does_not_swing(recorded: Recording) -> None:
    there = _SECONDS % 100 < 50
    await recorded.samples("gapped", _SECONDS[there], (noise(1) + 4 * sine(60))[there])
    for begin in range(50, 1200, 100):
        await recorded.gap("gapped", begin - 0.5, begin + 50)
    assert await recorded.ask("oscillation", at(0), at(1200)) == []
