"""change_points: when level, slope and spread of channels changed; not channels that only wander."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.history.questions.recording import Recording, at

_SECONDS = np.arange(0.0, 3600.0)


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(50, 1, 3600)


async def test_changes_are_found_clearest_first(recorded: Recording) -> None:
    late = _SECONDS >= 2040
    await recorded.channel("level", unit="bar")
    await recorded.samples("level", _SECONDS, noise(1) + 30 * late)
    await recorded.channel("slope", unit="°C")
    await recorded.samples("slope", _SECONDS, noise(2) + 0.05 * np.maximum(0, _SECONDS - 2040))
    await recorded.samples("spread", _SECONDS, np.where(late, 50 + 20 * (noise(3) - 50), noise(3)))
    await recorded.samples("calm", _SECONDS, noise(4))
    await recorded.samples("drifting", _SECONDS, noise(5) + 0.01 * _SECONDS)
    await recorded.samples("outlier", _SECONDS, np.where(_SECONDS == 2000, 95, noise(6)))
    await recorded.samples("swinging", _SECONDS, noise(7) + 20 * np.sin(_SECONDS / 50))
    await recorded.channel("switch", "discrete", lo=None, hi=None)
    await recorded.samples("switch", [0, 2040], [0, 1])
    rows = await recorded.ask("change_points", at(0), at(3600))
    assert [(row["channel"], row["kind"]) for row in rows] == [
        ("level", "level"),
        ("slope", "slope"),
        ("spread", "spread"),
    ]
    level, slope, spread = rows
    assert level["changed_at"] == at(2040)
    assert (level["before"], level["after"], level["size"]) == pytest.approx((50, 80, 30), abs=0.3)
    assert level["unit"] == "bar"
    assert at(2016) <= slope["changed_at"] <= at(2064)
    assert (slope["before"], slope["after"]) == pytest.approx((0, 180), abs=10)
    assert slope["unit"] == "°C/h"
    assert at(2016) <= spread["changed_at"] <= at(2064)
    assert spread["after"] > 10 * spread["before"]
    assert await recorded.ask("change_points", at(0), at(3600), least_score="1e6") == []


async def test_what_an_operator_does_every_hour_is_usual(recorded: Recording) -> None:
    """A valve is moved in each hour of the reference and in this one; the flow only in this one."""
    hour, moved = np.arange(0.0, 3600.0, 4), (np.arange(0.0, 3600.0, 4) >= 1800)
    for number in range(5):
        await recorded.samples("valve", number * 3600 + hour, noise(10 + number)[:900] + 10 * moved)
        await recorded.samples("flow", number * 3600 + hour, noise(20 + number)[:900] + 10 * moved * (number == 4))
    span = at(4 * 3600), at(5 * 3600)
    rows = await recorded.ask("change_points", *span, reference="4 h")
    assert [(row["channel"], row["kind"], row["changed_at"]) for row in rows] == [("flow", "level", at(4.5 * 3600))]
    # Without samples in the reference, the interval alone decides.
    rows = await recorded.ask("change_points", *span, reference=f"{at(-7200).isoformat()}..{at(-3600).isoformat()}")
    assert {(row["channel"], row["kind"]) for row in rows} == {("flow", "level"), ("valve", "level")}


async def test_what_holds_its_values_comes_last_without_a_score(recorded: Recording) -> None:
    """A set point has no noise to measure by, and is moved where the operator pleases."""
    await recorded.samples("setpoint", _SECONDS, np.where(_SECONDS >= 1200, 33.98, 33.95))
    await recorded.samples("flow", _SECONDS, noise(8) + 30 * (_SECONDS >= 2040))
    rows = await recorded.ask("change_points", at(0), at(3600))
    assert [(row["channel"], row["changed_at"], row["score"] is None) for row in rows] == [
        ("flow", at(2040), False),
        ("setpoint", at(1200), True),
    ]


async def test_silence_is_no_change(recorded: Recording) -> None:
    """A pushed channel, whose gaps nobody records; where it goes on, it is as it was."""
    hours = np.arange(-4 * 3600.0, 3600.0, 10)
    values = np.random.default_rng(30).normal(50, 1, len(hours))
    sent = (hours < 900) | (hours >= 1800)
    await recorded.samples("flow", hours[sent], values[sent])
    await recorded.pushed()
    assert await recorded.ask("change_points", at(0), at(3600)) == []
