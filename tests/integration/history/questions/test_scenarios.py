"""Each of the simulator's scenarios is found by the question that it is there for.

The plant is stepped in this process, an hour and a quarter in seconds, and its readings are put into the tables with
the times that they would have had. This is the setup of a SQL test: no server, collector or writer takes part.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.scenarios import SCENARIOS, ScenarioPlant, parse
from tests.integration.history.questions.recording import Recording, at

_PARTS = 3470  # s; until then all plants are the same: a scenario records two minutes before it begins
_BEGINS = 3600
_LENGTH = 4200
_AREAS = {  # scenario → the part of the plant that is recorded, with what happens there by itself
    "stuck": ("boilerhouse/", "meters/"),
    "drift": ("boilerhouse/", "meters/"),
    "spike": ("boilerhouse/", "meters/"),
    "dropout": ("boilerhouse/", "meters/"),
    "leak": ("tankfarm",),
    "pump-trip": ("tankfarm",),
    "hidden-setpoint": ("boilerhouse/", "meters/"),
}


Calm: TypeAlias = tuple[ScenarioPlant, NDArray[np.float64]]  # a plant, and its readings of each second so far


def readings(plant: ScenarioPlant, seconds: int) -> NDArray[np.float64]:
    """Values of all tags in each of the next seconds, (seconds, tags)."""
    rows = np.empty((seconds, len(plant.tags)))
    for row in rows:
        plant.step(1.0)
        row[:] = plant.numbers()
    return rows


@pytest.fixture(scope="module")
def calm() -> Calm:
    plant = ScenarioPlant(1, [])
    return plant, readings(plant, _PARTS)


def parted(plant: ScenarioPlant, *scenarios: str) -> ScenarioPlant:
    """A plant that goes on as that one, with scenarios. (Its columns are views of one array, a deep copy's are not.)"""
    other = ScenarioPlant(1, [parse(scenario) for scenario in scenarios])
    other.v.values[:] = plant.v.values
    other._random.bit_generator.state = plant._random.bit_generator.state
    other.time, other._steps, other._remaining = plant.time, plant._steps, plant._remaining
    return other


async def play(recorded: Recording, calm: Calm, areas: tuple[str, ...], scenario: str | None) -> None:
    plant = parted(calm[0], *([] if scenario is None else [f"{scenario}@{_BEGINS}"]))
    rows = np.concatenate((calm[1], readings(plant, _LENGTH - _PARTS)))
    which = [i for i, tag in enumerate(plant.tags) if tag.name.startswith(areas)]
    await recorded.plant([plant.tags[i] for i in which], np.arange(1.0, _LENGTH + 1), rows[:, which])


def test_parted_plant_equals_one_with_the_scenario_from_the_start() -> None:
    scenarios = ("hidden-setpoint@200", "leak@190")
    calm = ScenarioPlant(1, [])
    readings(calm, 60)
    whole = readings(ScenarioPlant(1, [parse(scenario) for scenario in scenarios]), 220)
    assert np.array_equal(readings(parted(calm, *scenarios), 160), whole[60:], equal_nan=True)
    assert not np.array_equal(readings(parted(calm), 160), whole[60:], equal_nan=True)


INTERVAL = (at(_BEGINS - 60), at(_LENGTH))


def test_every_scenario_has_a_test() -> None:
    assert _AREAS.keys() == SCENARIOS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("areas", sorted(set(_AREAS.values())))
async def test_a_calm_plant_has_no_findings(recorded: Recording, calm: Calm, areas: tuple[str, ...]) -> None:
    await play(recorded, calm, areas, None)
    for name in ("stuck_sensors", "replayed_signals", "implausible", "excursions", "first_mover", "gaps_and_coverage"):
        assert await recorded.ask(name, *INTERVAL) == [], name


@pytest.mark.slow
async def test_stuck_scenario_is_found(recorded: Recording, calm: Calm) -> None:
    await play(recorded, calm, _AREAS["stuck"], "stuck")
    [row] = await recorded.ask("stuck_sensors", *INTERVAL)
    assert row["channel"] == "boilerhouse/boiler1/oxygen"
    assert abs((row["stuck_from"] - at(_BEGINS)).total_seconds()) <= 2
    assert row["moving_beside"] > 10
    [twin] = await recorded.ask("implausible", *INTERVAL)
    assert (twin["channel"], twin["beside"]) == ("boilerhouse/boiler1/oxygen", "meters/boiler1/oxygen")


@pytest.mark.slow
async def test_drift_scenario_is_found(recorded: Recording, calm: Calm) -> None:
    await play(recorded, calm, _AREAS["drift"], "drift")
    [row] = await recorded.ask("excursions", *INTERVAL)
    assert (row["channel"], row["class"]) == ("boilerhouse/boiler1/flue_temperature", "slow")
    assert row["peak"] > 0
    changed = await recorded.ask("what_changed", *INTERVAL)
    assert (changed[0]["channel"], changed[0]["change"]) == ("boilerhouse/boiler1/flue_temperature", "higher")


@pytest.mark.slow
async def test_spike_scenario_is_found(recorded: Recording, calm: Calm) -> None:
    await play(recorded, calm, _AREAS["spike"], "spike")
    rows = await recorded.ask("excursions", *INTERVAL)
    assert {row["channel"] for row in rows} == {"boilerhouse/boiler2/level"}
    [fast] = [row for row in rows if row["class"] == "fast"]
    assert (fast["episodes"], fast["usual_period"].total_seconds()) == (20, 30)
    [first, *_] = await recorded.ask("first_mover", *INTERVAL)
    assert first["channel"] == "boilerhouse/boiler2/level"


@pytest.mark.slow
async def test_dropout_scenario_is_found(recorded: Recording, calm: Calm) -> None:
    await play(recorded, calm, _AREAS["dropout"], "dropout")
    rows = await recorded.ask("excursions", *INTERVAL)
    assert {row["channel"] for row in rows} == {"boilerhouse/boiler2/steam_flow"}
    [fast] = [row for row in rows if row["class"] == "fast"]
    assert (fast["episodes"], fast["usual_period"].total_seconds()) == (10, 60)
    assert fast["peak"] < 0


@pytest.mark.slow
async def test_leak_scenario_is_found(recorded: Recording, calm: Calm) -> None:
    await play(recorded, calm, _AREAS["leak"], "leak")
    rows = await recorded.ask("implausible", *INTERVAL)
    assert {row["channel"] for row in rows} == {"tankfarm/tank2/level", "tankfarm-plc/tank2/level"}
    for row in rows:
        assert row["rule"] == "does not follow its flows"
        lost = (row["plausible"] - row["measured"]) * 2.5  # m³, of a tank of 2.5 m²
        seconds = (row["ends"] - row["begins"]).total_seconds()
        assert lost / seconds * 3600 == pytest.approx(40, rel=0.1)


@pytest.mark.slow
async def test_pump_trip_scenario_is_found(recorded: Recording, calm: Calm) -> None:
    await play(recorded, calm, _AREAS["pump-trip"], "pump-trip")
    [first, *_] = await recorded.ask("first_mover", *INTERVAL)
    assert first["channel"] == "tankfarm-plc/tank3/trip"
    lines = await recorded.ask("timeline", *INTERVAL, channels=["*/tank3/*"])
    [trip] = [line for line in lines if line["channel"] == "tankfarm-plc/tank3/trip"]
    assert (trip["what"], trip["detail"].strip()) == ("state", "0 → 1")
    assert abs((trip["time"] - at(_BEGINS)).total_seconds()) <= 1


@pytest.mark.slow
async def test_hidden_setpoint_scenario_is_found(recorded: Recording, calm: Calm) -> None:
    """The set point is raised, and what the pressure's sensor says is a recording."""
    await play(recorded, calm, _AREAS["hidden-setpoint"], "hidden-setpoint")
    changes = await recorded.ask("setpoint_changes", *INTERVAL, channels=["*_sp"])
    assert [(c["channel"], c["old"], c["new"]) for c in changes] == [("boilerhouse/boiler1/pressure_sp", "40", "46")]
    [replay] = await recorded.ask("replayed_signals", *INTERVAL)
    assert (replay["channel"], replay["what"]) == ("boilerhouse/boiler1/pressure", "exact")
    assert abs((replay["copy_from"] - at(_BEGINS)).total_seconds()) <= 3
    assert (replay["copy_from"] - replay["original_from"]).total_seconds() == 120
    [first, *_] = await recorded.ask("first_mover", *INTERVAL)
    assert first["channel"] == "boilerhouse/boiler1/pressure_sp"
    related = await recorded.ask("correlation", *INTERVAL, target="boilerhouse/boiler1/fuel", channels=["*/boiler1/*"])
    assert "boilerhouse/boiler1/air" in [r["channel"] for r in related[:3]]
    assert "boilerhouse/boiler1/pressure" not in [r["channel"] for r in related], "it no longer follows the fuel"
