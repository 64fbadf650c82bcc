"""What goes wrong in a plant: things that an investigator should find later, each begun at a moment of plant time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.errors import OperationError
from simulator.demo import DemoPlant

_DEFAULT_START = 60.0  # s after the start
_REPLAYED = 120  # readings that are recorded, then played again

# scenario → the tag it shows on, and what happens
SCENARIOS = {
    "stuck": "boilerhouse/boiler1/oxygen keeps its value",
    "drift": "boilerhouse/boiler1/flue_temperature drifts up by 0.05 °C a second",
    "spike": "boilerhouse/boiler2/level shows one reading of 100 every 30 s",
    "dropout": "boilerhouse/boiler2/steam_flow falls to 0 for 5 s of every 60",
    "leak": "tank 2 loses 40 m³/h that no meter sees",
    "pump-trip": "the pump of tank 3 trips and stays off",
    "hidden-setpoint": "boiler 1's pressure set point is raised to 46 bar while its pressure replays old readings",
}


@dataclass(slots=True)
class Scenario:
    """One scenario under way from ``start`` (s of plant time)."""

    name: str
    start: float
    seen: dict[str, list[float]] = field(default_factory=dict)


def parse(text: str) -> Scenario:
    """``NAME`` or ``NAME@SECONDS``. Raises OperationError with the names that there are."""
    match = re.fullmatch(r"([a-z-]+)(?:@(\d+(?:\.\d+)?))?", text)
    if match is None or match[1] not in SCENARIOS:
        raise OperationError(f"no scenario {text!r}; there are {', '.join(SCENARIOS)}, each with @SECONDS if wanted")
    return Scenario(match[1], float(match[2]) if match[2] else _DEFAULT_START)


class ScenarioPlant(DemoPlant):
    """The demo plant with scenarios: some change the process, some only what its sensors say."""

    def __init__(self, seed: int, scenarios: list[Scenario]) -> None:
        self._scenarios: list[Scenario] = []
        super().__init__(seed)
        self._scenarios = scenarios
        self._index = {tag.name: i for i, tag in enumerate(self.tags)}

    def step(self, seconds: float) -> None:
        """Move on, with what the scenarios do to the process itself."""
        for scenario in self._scenarios:
            if self.time >= scenario.start:
                if scenario.name == "leak":
                    self.leak[2] = 40.0
                elif scenario.name == "pump-trip":
                    self.tripped.add(3)
                elif scenario.name == "hidden-setpoint":
                    self.v["boiler1/pressure_sp"] = 46.0
        super().step(seconds)

    def numbers(self) -> NDArray[np.float64]:
        """What the sensors say."""
        values = super().numbers()
        sensors: dict[str, tuple[str, Callable[[Scenario, float], float]]] = {
            "stuck": ("boilerhouse/boiler1/oxygen", self._stuck),
            "drift": ("boilerhouse/boiler1/flue_temperature", lambda s, v: v + 0.05 * (self.time - s.start)),
            "spike": ("boilerhouse/boiler2/level", lambda s, v: 100.0 if (self.time - s.start) % 30 < 1 else v),
            "dropout": ("boilerhouse/boiler2/steam_flow", lambda s, v: 0.0 if (self.time - s.start) % 60 < 5 else v),
            "hidden-setpoint": ("boilerhouse/boiler1/pressure", self._replayed),
        }
        for scenario in self._scenarios:
            if scenario.name in sensors:
                name, sensor = sensors[scenario.name]
                i = self._index[name]
                if self.time < scenario.start:
                    scenario.seen.setdefault(name, []).append(float(values[i]))
                else:
                    values[i] = sensor(scenario, float(values[i]))
        return values

    def _stuck(self, scenario: Scenario, value: float) -> float:
        kept = scenario.seen.setdefault("stuck", [value])
        return kept[0]

    def _replayed(self, scenario: Scenario, value: float) -> float:
        recorded = scenario.seen.get("boilerhouse/boiler1/pressure", [value])[-_REPLAYED:]
        played = scenario.seen.setdefault("played", [])
        played.append(0.0)
        return recorded[(len(played) - 1) % len(recorded)]
