"""broken_relation: channels that moved together and no longer do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.history.questions.recording import BAD, Recording, at

_SECONDS = np.arange(0.0, 1200.0)
_LATE = _SECONDS >= 900


def noise(seed: int, size: float) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, size, len(_SECONDS))


LOAD = np.convolve(noise(1, 1.0), np.ones(20) / 4, "same")


async def test_sisters_that_drift_apart_and_a_pump_without_flow(recorded: Recording) -> None:
    await recorded.samples("a/boiler1/oxygen", _SECONDS, 50 + LOAD + noise(2, 0.1) + 0.01 * _LATE * (_SECONDS - 900))
    await recorded.samples("b/boiler1/oxygen", _SECONDS, 50 + LOAD + noise(3, 0.1))
    await recorded.samples("w/pump/speed", _SECONDS, 40 + LOAD)
    await recorded.samples("w/pump/flow", _SECONDS, np.where(_LATE, 0.0, 30 + 3 * LOAD + noise(4, 0.3)))
    await recorded.samples("w/pump/head", _SECONDS, 10 + 2 * LOAD + noise(5, 0.2))
    await recorded.samples("w/pump/ambient", _SECONDS, 20 + noise(6, 1.0))
    await recorded.samples("w/pump/held", [0.0], [5.0])
    await recorded.samples("w/pump/bad", _SECONDS, 40 + LOAD, BAD)
    flow, oxygen = await recorded.ask("broken_relation", at(600), at(1200))
    assert flow["channel"] == "w/pump/flow"
    assert set(flow["partners"]) == {"w/pump/speed", "w/pump/head"}
    assert (flow["broken_at"], flow["until_when"]) == (at(900), None)
    assert flow["correlation_before"] > 0.9
    assert (oxygen["channel"], oxygen["partners"]) == ("a/boiler1/oxygen", ["b/boiler1/oxygen"])
    assert at(910) <= oxygen["broken_at"] <= at(1000)
    assert oxygen["correlation_before"] == pytest.approx(0.99, abs=0.02)
    assert flow["is_odd_one"], "it is apart from both"
    assert oxygen["is_odd_one"], "it drifts, and the other one does not"
    assert flow["score"] > oxygen["score"] > 1
    for turbine in range(1, 4):
        drift = 0.01 * (turbine == 2) * _LATE * (_SECONDS - 900)
        await recorded.samples(f"park/t{turbine}/bearing", _SECONDS, 50 + LOAD + noise(6 + turbine, 0.3) + drift)
    [bearing] = await recorded.ask("broken_relation", at(600), at(1200), channels=["park/*"])
    assert bearing["channel"] == "park/t2/bearing"
    assert set(bearing["partners"]) <= {"park/t1/bearing", "park/t3/bearing"}
    assert await recorded.ask("broken_relation", at(300), at(900)) == []
    assert await recorded.ask("broken_relation", at(0), at(600)) == [], "nothing is before, to learn from"
