"""replayed_signals: exact and scaled copies of noise; not what repeats by nature."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.history.questions.recording import Recording, at

_N = 3000
_SECONDS = np.arange(float(_N))


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(50, 1, _N)


def played_again(values: np.ndarray, scale: float = 1.0, offset: float = 0.0) -> np.ndarray:
    copy = values.copy()
    copy[2500:2700] = scale * values[1000:1200] + offset
    return copy


async def test_an_exact_copy_is_found_with_its_original(recorded: Recording) -> None:
    await recorded.samples("replayed", _SECONDS, played_again(noise(1)))
    await recorded.samples("rounded", _SECONDS, played_again(noise(2).round(1)))
    await recorded.samples("honest", _SECONDS, noise(3))
    await recorded.samples("honest_rounded", _SECONDS, noise(4).round(0))
    rows = await recorded.ask("replayed_signals", at(2400), at(_N))
    assert sorted(r["channel"] for r in rows) == ["replayed", "rounded"]
    for row in rows:
        assert (row["what"], row["scale"], row["offset"], row["largest_difference"]) == ("exact", 1, 0, 0)
        assert (row["copy_from"] - row["original_from"]).total_seconds() == 1500
        # A window's hash reaches two samples before it.
        assert at(2500) <= row["copy_from"] <= at(2503)
        assert at(2696) <= row["copy_to"] <= at(2700)


@pytest.mark.parametrize(("scale", "offset"), [(1.1, 0.0), (0.5, 30.0), (-2.0, 150.0)])
async def test_a_scaled_copy_is_found_with_its_scale(recorded: Recording, scale: float, offset: float) -> None:
    await recorded.samples("replayed", _SECONDS, played_again(noise(1), scale, offset))
    [row] = await recorded.ask("replayed_signals", at(2400), at(_N))
    assert row["what"] == "scaled"
    assert row["scale"] == pytest.approx(scale)
    assert row["offset"] == pytest.approx(offset)
    assert row["copied"] >= 190


async def test_a_recording_played_in_a_loop_is_one_stretch(recorded: Recording) -> None:
    values = noise(1)
    values[2400:] = np.tile(values[2280:2400], 5)
    await recorded.samples("looped", _SECONDS, values)
    [row] = await recorded.ask("replayed_signals", at(2400), at(_N))
    assert row["copied"] >= 595
    assert (row["copy_from"] - row["original_from"]).total_seconds() == 120


async def test_naturally_periodic_signal_is_not_reported(recorded: Recording) -> None:
    await recorded.samples("constant", _SECONDS, np.full(_N, 40.0))
    await recorded.samples("ramp", _SECONDS, _SECONDS)
    await recorded.samples("start_ups", _SECONDS, (90 * (1 - np.exp(-(_SECONDS % 500) / 4))).round(1))
    await recorded.samples("decays", _SECONDS, 90 * 0.97 ** (_SECONDS % 500))
    await recorded.channel("toggling", "discrete", lo=None, hi=None)
    await recorded.samples("toggling", _SECONDS, _SECONDS // 3 % 2)
    await recorded.samples("similar", _SECONDS, 50 + 10 * np.sin(_SECONDS / 20) + 0.01 * noise(5))
    assert await recorded.ask("replayed_signals", at(2400), at(_N)) == []


async def test_nearly_equal_and_short_stretches_are_not_reported(recorded: Recording) -> None:
    values = noise(1)
    near = played_again(values)
    near[2500:2700] += np.random.default_rng(9).normal(0, 0.3, 200)
    await recorded.samples("near", _SECONDS, near)
    short = values.copy()
    short[2500:2540] = values[1000:1040]
    await recorded.samples("short", _SECONDS, short)
    coarse = np.where(values > 50, 51.0, 49.0)
    coarse[2500:2540] = coarse[1000:1040]
    await recorded.samples("coarse", _SECONDS, coarse)  # may be chance
    rows = await recorded.ask("replayed_signals", at(2400), at(_N))
    assert [(row["channel"], row["what"]) for row in rows] == [("short", "exact")]
    assert 36 <= rows[0]["copied"] <= 40
    assert await recorded.ask("replayed_signals", at(2400), at(_N), samples=60) == []
    # The original lies further back than it may.
    await recorded.samples("old", _SECONDS, played_again(noise(3)))
    assert await recorded.ask("replayed_signals", at(2400), at(_N), channels=["old"], lookback="10 min") == []
    _, lines = await recorded.answer("replayed_signals", at(2400), at(2400 + 4 * 3600))
    assert "lookback 1 d 12 h" in lines, "of the day before, as attacks replay it"
