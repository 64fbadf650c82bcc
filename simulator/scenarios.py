"""Scenarios: plant failures for an investigator to find, each between two plant times."""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.errors import OperationError
from simulator.demo import STEP, DemoPlant

_DEFAULT_START = 60.0  # s after the start
_READINGS_PER_SECOND = round(1 / STEP)  # readings
_REPLAYED = round(120 / STEP)  # recorded readings to replay, one for each step
SECONDS = 300.0  # default duration of one that begins now

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
_PROCESS = {  # scenario → signal and its value
    "leak": ("tank2/leak", 40.0),
    "hidden-setpoint": ("boiler1/pressure_sp", 46.0),
}
_TRIPPED = {"pump-trip": 3}  # scenario → tank


@dataclass(slots=True)
class Scenario:
    """A scenario from ``start`` to ``end`` (s of plant time)."""

    name: str
    start: float
    end: float = math.inf
    started: bool = False
    before: float = math.nan  # of the signal that it changes


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
        self._recorded = {name: deque[float](maxlen=_REPLAYED) for name in _SENSORS}  # readings while all is well
        self._overrides: dict[int, float] = {}  # tag → sensor reading
        self._sensors: dict[str, int] = {}  # scenario → tag
        super().__init__(seed)
        self._scenarios = scenarios
        index = {tag.name: i for i, tag in enumerate(self.tags)}
        self._sensors = {name: index[tag] for name, tag in _SENSORS.items()}

    def begin(self, name: str, seconds: float) -> None:
        """Let a scenario happen from now on, for some seconds of plant time. Raises OperationError."""
        if name not in SCENARIOS:
            raise OperationError(f"scenario: found {name!r}; legal: {', '.join(SCENARIOS)}")
        if not (isinstance(seconds, int | float) and 0 < seconds <= 86_400):
            raise OperationError(f"seconds: found {seconds!r}; legal: above 0, to 86400")
        for same in self.active():
            if same.name == name:
                same.end = self.time + seconds
                return
        self._scenarios.append(Scenario(name, self.time, self.time + seconds))

    def active(self) -> list[Scenario]:
        """The scenarios that happen now."""
        return [scenario for scenario in self._scenarios if scenario.start <= self.time < scenario.end]

    def clear(self) -> None:
        """End those that happen now."""
        for scenario in self.active():
            scenario.end = self.time

    def numbers(self) -> NDArray[np.float64]:
        """Sensor readings (n,)."""
        values = super().numbers()
        for i, value in self._overrides.items():
            values[i] = value
        return values

    def _advance(self) -> None:
        """One step, with the effects of the scenarios on process and sensors."""
        for scenario in [one for one in self._scenarios if self.time >= one.end]:
            self._scenarios.remove(scenario)
            self._end(scenario)
        for scenario in self.active():
            if changed := _PROCESS.get(scenario.name):
                signal, value = changed
                if math.isnan(scenario.before):
                    scenario.before = self.v[signal]
                self.v[signal] = value
            elif tank := _TRIPPED.get(scenario.name):
                self.tripped.add(tank)
        super()._advance()
        readings = super().numbers()
        happening = {scenario.name: scenario for scenario in self.active()}
        for name, i in self._sensors.items():
            if name not in happening:
                self._recorded[name].append(float(readings[i]))
            else:
                self._overrides[i] = self._reading(happening[name], float(readings[i]))

    def _end(self, scenario: Scenario) -> None:
        """Let process and sensor be as before."""
        if not math.isnan(scenario.before):
            self.v[_PROCESS[scenario.name][0]] = scenario.before
        self.tripped.discard(_TRIPPED.get(scenario.name, -1))
        self._overrides.pop(self._sensors.get(scenario.name, -1), None)

    def _reading(self, scenario: Scenario, true: float) -> float:
        """The value that the sensor of a scenario shows."""
        recorded, since = self._recorded[scenario.name], self.time - scenario.start
        if not scenario.started:
            scenario.started = True
            for _ in range(
                len(recorded) % _READINGS_PER_SECOND
            ):  # whole seconds: clients reading once per second get equal readings
                recorded.popleft()
            if not recorded:
                recorded.append(true)
        match scenario.name:
            case "stuck":
                return recorded[-1]
            case "drift":
                return true + 0.05 * since
            case "spike":
                return 100.0 if since % 30 < 1 else true
            case "dropout":
                return 0.0 if since % 60 < 5 else true
            case _:  # hidden-setpoint replays the recording in a loop
                recorded.rotate(-1)
                return recorded[-1]
