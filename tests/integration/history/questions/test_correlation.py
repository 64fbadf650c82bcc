"""correlation: who moves with a channel, how long after or before it; not who moves by itself."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.history.questions.recording import Recording, at

_SECONDS = np.arange(0.0, 3600.0)


async def test_lags_and_signs(recorded: Recording) -> None:
    random = np.random.default_rng(1)
    walk = np.convolve(random.normal(0, 1, 4000), np.ones(60) / 60, "same")
    driver = walk[200:3800]

    def sensor(values: np.ndarray) -> np.ndarray:
        return values + random.normal(0, 0.005, len(values))

    await recorded.samples("driver", _SECONDS, sensor(driver))
    await recorded.samples("with", _SECONDS, sensor(10 + 3 * driver))
    await recorded.samples("after", _SECONDS, sensor(walk[140:3740]))
    await recorded.samples("before", _SECONDS, sensor(walk[236:3836]))
    await recorded.samples("against", _SECONDS, sensor(-driver))
    await recorded.samples("alone", _SECONDS, np.convolve(random.normal(0, 1, 3659), np.ones(60) / 60, "valid"))
    await recorded.samples("constant", _SECONDS, np.full(3600, 4.0))
    rows = await recorded.ask("correlation", at(0), at(3600), target="driver", step="6 s", max_lag="2 min")
    found = {r["channel"]: r for r in rows}
    assert set(found) == {"with", "after", "before", "against"}
    assert {name: r["lag_seconds"] for name, r in found.items()} == {
        "with": 0,
        "after": 60,
        "before": -36,
        "against": 0,
    }
    assert found["against"]["correlation"] < -0.99
    assert found["after"]["correlation"] > 0.99
    assert found["after"]["correlation_at_zero"] < 0.5
    assert found["with"]["correlation"] == pytest.approx(found["with"]["correlation_at_zero"])
    # No channel is told only because its best lag lies outside of what was asked for.
    near = await recorded.ask(
        "correlation",
        at(0),
        at(3600),
        target="driver",
        channels=["after"],
        step="6 s",
        max_lag="12 s",
        least_correlation=0.9,
    )
    assert near == []


async def test_part_of_a_step_at_the_end_does_not_count(recorded: Recording) -> None:
    swing = np.sin(_SECONDS / 50)
    swing[-2:] = 1000
    await recorded.samples("driver", _SECONDS, swing)
    await recorded.samples("against", _SECONDS, -np.where(swing > 1, -swing, swing))
    [row] = await recorded.ask("correlation", at(0), at(3600), target="driver", step="7 s")
    assert row["correlation"] < -0.99
    assert row["pairs"] <= 3600 // 7


async def test_whole_steps_of_the_largest_lag_count(recorded: Recording) -> None:
    """Three steps, whose quotient is less as floating-point numbers."""
    tenths = np.arange(0.0, 60.0, 0.1)
    noise = np.random.default_rng(1).normal(0, 1, len(tenths) + 3)
    await recorded.samples("driver", tenths, noise[3:])
    await recorded.samples("after", tenths, noise[:-3])
    [row] = await recorded.ask("correlation", at(0), at(60), target="driver", step="100 ms", max_lag="300 ms")
    assert (row["lag_seconds"], row["correlation"]) == (pytest.approx(0.3), pytest.approx(1))


async def test_what_cannot_be_judged_is_said(recorded: Recording) -> None:
    noise = np.random.default_rng(1).normal(0, 1, (2, 3600))
    for name, values in (("driver", noise[0]), ("alone", noise[1]), ("constant", np.full(3600, 4.0))):
        await recorded.samples(name, _SECONDS, values)
    await recorded.samples("late", _SECONDS[-90:], noise[1, -90:])
    await recorded.channel("empty")
    await recorded.channel("mode", "text")
    rows, notes = await recorded.answer("correlation", at(0), at(3600), target="driver", step="6 s")
    assert (len(rows), notes.splitlines()[-4:]) == (
        0,
        [
            "1 channel judged",
            "1 channel not judged, constant in the interval: constant",
            "1 channel not judged, no samples in the interval: empty",
            "1 channel not judged, too few samples in the interval: late",
        ],
    )
    for target in ("constant", "late", "mode"):
        _, notes = await recorded.answer("correlation", at(0), at(3600), target=target, step="6 s")
        assert "no rows: nothing could be judged" in notes
        assert "the target is a text, or constant, or has too few samples in the interval: alone" in notes
