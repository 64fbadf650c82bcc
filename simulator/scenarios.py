"""What goes wrong in a plant: things that an investigator should find later, each begun at a moment of plant time."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.errors import OperationError
from simulator.demo import STEP, DemoPlant

_DEFAULT_START = 60.0  # s after the start
_A_SECOND = round(1 / STEP)  # readings
_REPLAYED = 120.0  # s of readings that are recorded, then played again

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

_SENSORS = {  # scenario → the tag whose sensor is not to be believed
    "stuck": "boilerhouse/boiler1/oxygen",
    "drift": "boilerhouse/boiler1/flue_temperature",
    "spike": "boilerhouse/boiler2/level",
    "dropout": "boilerhouse/boiler2/steam_flow",
    "hidden-setpoint": "boilerhouse/boiler1/pressure",
}


@dataclass(slots=True)
class Scenario:
    """One scenario under way from ``start`` (s of plant time)."""

    name: str
    start: float
    seen: deque[float] = field(default_factory=lambda: deque(maxlen=round(_REPLAYED / STEP)))  # a reading a step
    begun: bool = False


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
        self._false: dict[int, float] = {}  # tag → what its sensor says

    def numbers(self) -> NDArray[np.float64]:
        """What the sensors say (n,)."""
        values = super().numbers()
        for i, value in self._false.items():
            values[i] = value
        return values

    def _advance(self) -> None:
        """One step, with what the scenarios do to the process and to its sensors."""
        begun = [s for s in self._scenarios if self.time >= s.start]
        for scenario in begun:
            if scenario.name == "leak":
                self.v["tank2/leak"] = 40.0
            elif scenario.name == "pump-trip":
                self.tripped.add(3)
            elif scenario.name == "hidden-setpoint":
                self.v["boiler1/pressure_sp"] = 46.0
        super()._advance()
        if not self._scenarios:
            return
        true = super().numbers()
        for scenario in self._scenarios:
            if scenario.name in _SENSORS:
                i = self._index[_SENSORS[scenario.name]]
                if self.time < scenario.start:
                    scenario.seen.append(float(true[i]))
                else:
                    self._false[i] = _reading(scenario, float(true[i]), self.time - scenario.start)


def _reading(scenario: Scenario, true: float, since: float) -> float:
    """What the sensor says ``since`` seconds after the scenario's start."""
    if not scenario.begun:
        scenario.begun = True
        for _ in range(len(scenario.seen) % _A_SECOND):  # whole seconds: who reads once a second sees equal readings
            scenario.seen.popleft()
        if not scenario.seen:
            scenario.seen.append(true)
    match scenario.name:
        case "stuck":
            return scenario.seen[-1]
        case "drift":
            return true + 0.05 * since
        case "spike":
            return 100.0 if since % 30 < 1 else true
        case "dropout":
            return 0.0 if since % 60 < 5 else true
        case _:  # hidden-setpoint plays what was recorded, again and again
            scenario.seen.rotate(-1)
            return scenario.seen[-1]
