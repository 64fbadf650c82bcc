"""Scenarios: plant failures for an investigator to find, each starting at a plant time."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.errors import OperationError
from simulator.demo import STEP, DemoPlant

_DEFAULT_START = 60.0  # s after the start
_READINGS_PER_SECOND = round(1 / STEP)  # readings
_REPLAY_SECONDS = 120.0  # s of recorded readings to replay

# scenario → affected tag, description
SCENARIOS = {
    "stuck": "boilerhouse/boiler1/oxygen is stuck at its value",
    "drift": "boilerhouse/boiler1/flue_temperature drifts up by 0.05 °C per second",
    "spike": "boilerhouse/boiler2/level shows one reading of 100 every 30 s",
    "dropout": "boilerhouse/boiler2/steam_flow falls to 0 for 5 s in every 60 s",
    "leak": "tank 2 loses an unmetered 40 m³/h",
    "pump-trip": "the pump of tank 3 trips and stays off",
    "hidden-setpoint": "boiler 1's pressure set point is raised to 46 bar while its pressure replays old readings",
}

_SENSORS = {  # scenario → tag with a wrong sensor
    "stuck": "boilerhouse/boiler1/oxygen",
    "drift": "boilerhouse/boiler1/flue_temperature",
    "spike": "boilerhouse/boiler2/level",
    "dropout": "boilerhouse/boiler2/steam_flow",
    "hidden-setpoint": "boilerhouse/boiler1/pressure",
}


@dataclass(slots=True)
class Scenario:
    """A scenario that starts at ``start`` (s of plant time)."""

    name: str
    start: float
    recorded: deque[float] = field(
        default_factory=lambda: deque(maxlen=round(_REPLAY_SECONDS / STEP))
    )  # one reading per step
    started: bool = False


def parse(text: str) -> Scenario:
    """Parse ``NAME`` or ``NAME@SECONDS``. Raises OperationError with the valid names."""
    match = re.fullmatch(r"([a-z-]+)(?:@(\d+(?:\.\d+)?))?", text)
    if match is None or match[1] not in SCENARIOS:
        raise OperationError(f"no scenario {text!r}; legal: {', '.join(SCENARIOS)}, each optionally with @SECONDS")
    return Scenario(match[1], float(match[2]) if match[2] else _DEFAULT_START)


class ScenarioPlant(DemoPlant):
    """The demo plant with scenarios: some change the process, some only sensor readings."""

    def __init__(self, seed: int, scenarios: list[Scenario]) -> None:
        self._scenarios: list[Scenario] = []
        super().__init__(seed)
        self._scenarios = scenarios
        self._index = {tag.name: i for i, tag in enumerate(self.tags)}
        self._overrides: dict[int, float] = {}  # tag → sensor reading

    def numbers(self) -> NDArray[np.float64]:
        """Sensor readings (n,)."""
        values = super().numbers()
        for i, value in self._overrides.items():
            values[i] = value
        return values

    def _advance(self) -> None:
        """One step, with the effects of the scenarios on process and sensors."""
        started = [s for s in self._scenarios if self.time >= s.start]
        for scenario in started:
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
                    scenario.recorded.append(float(true[i]))
                else:
                    self._overrides[i] = _reading(scenario, float(true[i]), self.time - scenario.start)


def _reading(scenario: Scenario, true: float, since: float) -> float:
    """The sensor reading ``since`` seconds after the start of the scenario."""
    if not scenario.started:
        scenario.started = True
        for _ in range(
            len(scenario.recorded) % _READINGS_PER_SECOND
        ):  # whole seconds: clients reading once per second get equal readings
            scenario.recorded.popleft()
        if not scenario.recorded:
            scenario.recorded.append(true)
    match scenario.name:
        case "stuck":
            return scenario.recorded[-1]
        case "drift":
            return true + 0.05 * since
        case "spike":
            return 100.0 if since % 30 < 1 else true
        case "dropout":
            return 0.0 if since % 60 < 5 else true
        case _:  # hidden-setpoint replays the recording in a loop
            scenario.recorded.rotate(-1)
            return scenario.recorded[-1]
