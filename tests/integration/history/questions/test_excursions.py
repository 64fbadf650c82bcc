"""excursions: each class finds its own kind, with episodes, period and peak."""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from tests.integration.history.questions.recording import Recording, at

_SECONDS = np.arange(0.0, 7200.0)
_LATE = _SECONDS >= 5400


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(50, 0.5, 7200)


async def test_spikes_swings_and_drift(recorded: Recording) -> None:
    await recorded.samples("steady", _SECONDS, noise(1))
    await recorded.samples("spiking", _SECONDS, np.where(_LATE & (_SECONDS % 30 == 0), 95.0, noise(2)))
    await recorded.samples("swinging", _SECONDS, noise(3) + 8 * np.sin(_SECONDS / 10) * _LATE)
    await recorded.samples("drifting", _SECONDS, noise(4) + 0.02 * np.maximum(0, _SECONDS - 5400))
    # It has always had spikes: they are its usual.
    await recorded.samples("always_spiking", _SECONDS, np.where(_SECONDS % 30 == 0, 95.0, noise(5)))
    rows = await recorded.ask("excursions", at(5100), at(7200))
    found = {(r["channel"], r["class"]): r for r in rows}
    assert {name for name, _ in found} == {"spiking", "swinging", "drifting"}
    spikes = found["spiking", "fast"]
    assert (spikes["episodes"], spikes["usual_period"]) == (60, timedelta(seconds=30))
    assert (spikes["first_at"], spikes["last_at"]) == (at(5400), at(7170))
    assert abs(spikes["peak"] - 45) < 2
    assert ("swinging", "medium") in found
    assert ("drifting", "slow") in found
    assert ("drifting", "fast") not in found
    assert found["drifting", "slow"]["peak"] > 1.5  # beside the two minutes before: 0.02 * 90


async def test_no_excursion_before_the_upset(recorded: Recording) -> None:
    await recorded.samples("spiking", _SECONDS, np.where(_LATE & (_SECONDS % 30 == 0), 95.0, noise(2)))
    assert await recorded.ask("excursions", at(3600), at(5400)) == []


async def test_rounding_of_float8_is_no_excursion(recorded: Recording) -> None:
    """A serial number beyond 2^53 that goes up by one now and then: float8 goes up by 256."""
    await recorded.channel("serial", lo=None, hi=None)
    await recorded.samples("serial", _SECONDS, 2.0**60 + 256.0 * (_SECONDS >= 6000))
    assert await recorded.ask("excursions", at(5100), at(7200)) == []


async def test_of_equal_peaks_the_first_one_is_shown(recorded: Recording) -> None:
    spikes = {5450: 95.0, 6000: 95.0, 6300: 5.0}
    middle = np.where(_SECONDS % 2, 49.0, 51.0)  # beside a spike is 49
    values = np.select([second == _SECONDS for second in spikes], list(spikes.values()), middle)
    await recorded.samples("spiking", _SECONDS, values)
    rows = await recorded.ask("excursions", at(5100), at(7200))
    [fast] = [row for row in rows if row["class"] == "fast"]
    assert (fast["peak_at"], fast["peak"], fast["episodes"]) == (at(5450), 46, 3)


async def test_channel_that_did_not_move_before_is_listed_last_without_times_of_the_limit(recorded: Recording) -> None:
    await recorded.channel("constant", lo=None, hi=None)
    await recorded.samples("constant", _SECONDS, np.where(_SECONDS == 6000, 95.0, 0.1))
    await recorded.samples("spiking", _SECONDS, np.where(_LATE & (_SECONDS % 30 == 0), 95.0, noise(2)))
    rows = await recorded.ask("excursions", at(5100), at(7200))
    names = [row["channel"] for row in rows]
    assert set(names) == {"constant", "spiking"}
    assert names == sorted(names, reverse=True)
    assert {row["times_limit"] is None for row in rows if row["channel"] == "constant"} == {True}
    assert all(1 < row["times_limit"] < 1000 for row in rows if row["channel"] == "spiking")


async def test_rarer_false_alarms_are_fewer_rows(recorded: Recording) -> None:
    await recorded.samples("spiking", _SECONDS, np.where(_SECONDS == 6000, 54.0, noise(2)))
    [fast] = [row for row in await recorded.ask("excursions", at(5100), at(7200)) if row["class"] == "fast"]
    assert fast["peak_at"] == at(6000)
    assert await recorded.ask("excursions", at(5100), at(7200), false_alarms="36500 days") == []


async def test_the_peak_is_that_of_the_fault(recorded: Recording) -> None:
    """Not that of the return, which goes beyond where it was before."""
    pump = np.interp(_SECONDS, [5500, 5510, 6000, 6010], [0, -10, -10, 15])
    await recorded.samples("flow", _SECONDS, noise(1) + pump)
    rows = await recorded.ask("excursions", at(5100), at(7200))
    assert {row["class"] for row in rows} >= {"medium", "slow"}
    assert all(row["peak"] < 0 and row["peak_at"] < at(6000) for row in rows)


async def test_a_step_of_the_last_digit_is_no_excursion(recorded: Recording) -> None:
    """The interval shows how a command is rounded that the reference only held."""
    command = np.round(30 + np.maximum(_SECONDS - 5400, 0) / 1000, 1) - 0.1 * (_SECONDS % 60 == 59) * _LATE
    await recorded.samples("command", _SECONDS, command)
    await recorded.samples("dropout", _SECONDS, np.where(_SECONDS == 6000, 0.0, 30.0))
    rows = await recorded.ask("excursions", at(5100), at(7200), reference="50 min")
    assert {row["channel"] for row in rows if row["class"] == "fast"} == {"dropout"}
