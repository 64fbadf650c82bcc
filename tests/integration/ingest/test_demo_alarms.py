"""The demo plant's limits: quiet when all is well, and what each scenario does is an alarm."""

from __future__ import annotations

import numpy as np
import pytest

from core.batch import SampleBatch
from core.config.load import load
from core.paths import EXAMPLE
from core.samples import Samples
from ingest.alarms.channel import AlarmChange
from ingest.alarms.columns import AlarmColumns
from ingest.alarms.limits import limits_of
from simulator.scenarios import Scenario, ScenarioPlant

STARTS = 20.0  # s of plant time
SECONDS = 70


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (None, set()),
        ("stuck", {("boilerhouse/boiler1/oxygen", "stale")}),
        ("spike", {("boilerhouse/boiler2/level", limit) for limit in ("hi", "hihi", "rate")}),
        ("dropout", {("boilerhouse/boiler2/steam_flow", "lo")}),
        ("pump-trip", {("tankfarm-plc/tank3/trip", "hi")}),
        ("hidden-setpoint", {("boilerhouse/boiler1/fuel", "hi")}),
    ],
)
def test_demo_plant_raises_its_alarms(scenario: str | None, expected: set[tuple[str, str]]) -> None:
    plant = ScenarioPlant(1, [Scenario(scenario, STARTS)] if scenario else [])
    tags = {tag.name: tag for source in load(EXAMPLE).sources for tag in source.tags}
    names = [tag.name for tag in plant.tags if tag.kind != "text"]
    places = np.array([i for i, tag in enumerate(plant.tags) if tag.kind != "text"])
    columns = AlarmColumns({i: limits_of(tags[name]) for i, name in enumerate(names)}, 0)
    changes: list[AlarmChange] = []
    before = np.full(len(names), np.nan)
    for _ in range(2 * SECONDS):
        plant.step(0.5)
        values, at = plant.numbers()[places], round(plant.time * 1e6)
        moved = np.flatnonzero(values != before).astype(np.int32)  # as OPC UA publishes
        before = values
        times, good = np.full(len(moved), at, np.int64), np.zeros(len(moved), np.uint32)
        changes += columns.evaluate(SampleBatch(1, at, Samples(moved, times, values[moved], good)))
        changes += columns.check_clock(at)
    raised = {(names[c.channel_id], c.limit.name) for c in changes if c.action == "raised"}
    # Tank 6 begins too full, and the conveyor jams as it likes.
    found = {alarm for alarm in raised if not alarm[0].endswith("/jam")} - {("tankfarm/tank6/level", "hi")}
    assert found == expected
