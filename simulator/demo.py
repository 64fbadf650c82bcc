"""A small plant: two boilers on one steam header, a tank farm with pumps, a conveyor line.

All signals are in one array and are stepped together, always by :data:`STEP`, so that a seed gives the same plant at
every speed. Sensor readings are separate from true values: ``steam_flow`` and ``steam``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulator.demo_tags import BOILERS, SECTIONS, TANKS, TUBES, demo_tags
from simulator.tags import SimTag

STEP = 0.1  # s of plant time

Floats: TypeAlias = NDArray[np.float64]

_STEAM_PER_FUEL = 12.0  # t/h of steam per t/h of fuel
_STEAM_PER_BAR = 8.0  # t/h from a drum to the header per bar of difference
_MOST_FUEL, _LEAST_FUEL = 12.0, 0.5  # t/h
DRUM = 0.02  # % of level per second, per t/h of feedwater in excess of steam
TANK_AREA = 2.5  # m²
_TANK_HEIGHT = 8.0  # m
_PUMP_FLOW = 120.0  # m³/h at full speed
_SECTION_LENGTH = 5.0  # m
_AMBIENT = 15.0  # °C

_BOILER = (
    *("demand", "pressure_sp", "level_sp", "pressure", "water", "integral", "fuel", "steam", "feedwater"),
    *("level", "steam_flow", "air", "oxygen", "flue_temperature", "steam_temperature", "furnace_draft", "steam_total"),
    *("flame", "alarm_pressure_hi", "alarm_level_lo", "alarms", *(f"tube{n}" for n in TUBES)),
)
_TANK = (
    *("level", "level_sp", "running", "trip", "speed", "inlet", "outlet", "leak", "starts", "hours", "inlet_flow"),
    *("outlet_flow", "temperature", "pressure", "motor_current", "vibration", "volume_total", "valve"),
    *("alarm_hi", "alarm_lo"),
)
_SECTION = ("speed", "motor_current", "motor_temperature", "items", "on_belt", "jam", "photo_eye", "running")
_LINE = ("speed_sp", "items", "rejects", "energy", "taken")
_START = {
    **{"demand": 65.0, "pressure_sp": 40.0, "level_sp": 50.0, "pressure": 40.0, "water": 50.0, "fuel": 5.4},
    **{"integral": 5.4, "steam": 65.0, "header/pressure": 31.9},
}
_TANK_START = {"level_sp": 4.0, "speed": 50.0, "outlet": 60.0}


class Signals:
    """The process values by name, as views of one array."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {"header/pressure": 0}
        for quantity in _BOILER:
            self._place(f"boiler{b}/{quantity}" for b in BOILERS)
        for quantity in _TANK:
            self._place(f"tank{t}/{quantity}" for t in TANKS)
        for quantity in _SECTION:
            self._place(f"line/s{s}/{quantity}" for s in SECTIONS)
        self._place(f"line/{quantity}" for quantity in _LINE)
        self.values: Floats = np.zeros(len(self._index))

    def _place(self, names: Iterable[str]) -> None:
        for name in names:
            self._index[name] = len(self._index)

    def __getitem__(self, name: str) -> float:
        return float(self.values[self._index[name]])

    def __setitem__(self, name: str, value: float) -> None:
        self.values[self._index[name]] = value

    def index(self, name: str) -> int:
        """Index of a signal in ``values``. Raises KeyError."""
        return self._index[name]

    def columns(self, prefix: str, units: Sequence[int], quantities: Sequence[str]) -> dict[str, Floats]:
        """Views by quantity, each with one value per unit."""
        starts = {q: self._index[f"{prefix}{units[0]}/{q}"] for q in quantities}
        return {q: self.values[start : start + len(units)] for q, start in starts.items()}


class DemoPlant:
    """The process model. Set points are signals changed only by operators."""

    name = "demo"
    tick = STEP
    spread = False

    def __init__(self, seed: int = 1) -> None:
        self.tags: list[SimTag] = demo_tags()
        self._random = np.random.default_rng(seed)
        self.time = 0.0  # s of plant time
        self._steps = 0
        self._remaining = 0.0  # s of plant time not yet stepped
        self.v = Signals()
        self.texts: dict[str, str] = {}
        self.tripped: set[int] = set()  # tanks with a tripped pump
        v = self.v
        self._boilers = v.columns("boiler", BOILERS, _BOILER)
        self._tanks = v.columns("tank", TANKS, _TANK)
        self._sections = v.columns("line/s", SECTIONS, _SECTION)
        first = v.index(f"boiler{BOILERS[0]}/tube{TUBES[0]}")
        self._tubes = v.values[first : first + len(TUBES) * len(BOILERS)].reshape(len(TUBES), len(BOILERS))
        self._tube_offset = 4.0 * np.array(TUBES, np.float64)[:, None]
        v["header/pressure"] = _START["header/pressure"]
        for quantity, column in self._boilers.items():
            column[:] = _START.get(quantity, 0.0)
        for quantity, column in self._tanks.items():
            column[:] = _TANK_START.get(quantity, 0.0)
        self._tanks["level"][:] = 2.0 + 0.8 * np.array(TANKS)
        self._tanks["temperature"][:] = 40.0 + 3.0 * np.array(TANKS)
        self._tubes[:] = (140.0 + 6.0 * self._boilers["fuel"]) * 2.2 + self._tube_offset
        v["line/speed_sp"] = 1.2
        self._sections["speed"][:] = 1.2
        self._sections["on_belt"][:] = _SECTION_LENGTH  # one per metre
        self._is_text = np.array([tag.kind == "text" for tag in self.tags])
        self._signal = np.array([0 if tag.kind == "text" else v.index(tag.signal) for tag in self.tags])
        self._advance()

    def numbers(self) -> Floats:
        """The current value of every tag (n,), NaN for texts."""
        values: Floats = self.v.values[self._signal]
        values[self._is_text] = math.nan
        return values

    def text(self, tag: int) -> str:
        """The current value of a text tag."""
        return self.texts[self.tags[tag].signal]

    def write(self, signal: str, value: float) -> None:
        """An operator's write to a set point."""
        self.v[signal] = value

    def step(self, seconds: float) -> None:
        """Advance by ``seconds`` of plant time in whole steps; the remainder is carried over to the next call."""
        self._remaining += seconds
        while self._remaining > STEP - 1e-6:
            self._remaining -= STEP
            self._advance()

    def _advance(self) -> None:
        """One step. All noise is drawn at once, so that no unit influences the noise of another one."""
        self._steps += 1
        self.time = self._steps * STEP
        noise = self._random.standard_normal((16, 8))
        chance = self._random.random((3, len(SECTIONS)))
        tube_noise = self._random.standard_normal(self._tubes.shape)
        self._step_boilers(STEP, noise[:8, : len(BOILERS)], tube_noise)
        self._step_tanks(STEP, noise[8:14, : len(TANKS)])
        self._step_line(STEP, noise[14, : len(SECTIONS)], chance)

    def _step_boilers(self, dt: float, noise: Floats, tube_noise: Floats) -> None:
        b, v = self._boilers, self.v
        target = 65.0 + 15.0 * np.sin(self.time / 300 + np.array(BOILERS))
        b["demand"] += 0.02 * (target - b["demand"]) * dt + 0.1 * noise[0] * math.sqrt(dt)
        # Pressure drives steam from each drum to the header, where consumers draw it.
        b["steam"][:] = np.maximum(0.0, _STEAM_PER_BAR * (b["pressure"] - v["header/pressure"]))
        v["header/pressure"] += 0.01 * (b["steam"].sum() - b["demand"].sum()) * dt
        error = b["pressure_sp"] - b["pressure"]
        b["integral"][:] = np.clip(b["integral"] + 0.02 * error * dt, _LEAST_FUEL, _MOST_FUEL)
        fuel = np.clip(b["integral"] + 0.4 * error, _LEAST_FUEL, _MOST_FUEL)
        b["fuel"] += (fuel - b["fuel"]) * dt / 3
        b["pressure"] += 0.01 * (_STEAM_PER_FUEL * b["fuel"] - b["steam"]) * dt
        b["feedwater"][:] = np.clip(b["steam"] + 3.0 * (b["level_sp"] - b["water"]), 0.0, 150.0)
        b["water"][:] = np.clip(b["water"] + DRUM * (b["feedwater"] - b["steam"]) * dt, 0.0, 100.0)
        # what the sensors say
        b["level"][:] = np.clip(b["water"] + 0.05 * noise[1], 0.0, 100.0)
        b["steam_flow"][:] = np.maximum(0.0, b["steam"] + 0.2 * noise[2])
        b["air"][:] = b["fuel"] * 13.5 + 0.3 * noise[3]
        b["oxygen"][:] = np.clip(3.0 + 0.2 * (b["air"] / b["fuel"] - 13.5) + 0.05 * noise[4], 0.0, 21.0)
        b["flue_temperature"][:] = 140.0 + 6.0 * b["fuel"] + 0.4 * noise[5]
        b["steam_temperature"][:] = 380.0 + 2.0 * (b["pressure"] - 40.0) + 0.5 * noise[6]
        b["furnace_draft"][:] = -8.0 + 0.3 * noise[7]
        b["steam_total"] += b["steam_flow"] * dt / 3600
        b["flame"][:] = b["fuel"] > 0.4
        b["alarm_pressure_hi"][:] = b["pressure"] > 44.0
        b["alarm_level_lo"][:] = b["water"] < 35.0
        b["alarms"][:] = b["alarm_pressure_hi"] + b["alarm_level_lo"]
        # tube metal temperatures: slow, coupled to the flue gas
        target = (140.0 + 6.0 * b["fuel"]) * 2.2 + self._tube_offset
        self._tubes += (target - self._tubes) * dt / 60 + 0.1 * tube_noise * dt
        for k, unit in enumerate(BOILERS):
            self.texts[f"boiler{unit}/mode"] = "LIMIT" if b["alarms"][k] else "AUTO"

    def _step_tanks(self, dt: float, noise: Floats) -> None:
        t = self._tanks
        t["trip"][:] = [unit in self.tripped for unit in TANKS]
        # on and off around the set point, as level control by a pump does
        off = t["level"] - t["level_sp"]
        target = np.where(off < -0.2, 1.0, np.where(off > 0.2, 0.0, t["running"])) * (1.0 - t["trip"])
        t["starts"] += target > t["running"]
        t["running"][:] = target
        t["speed"] += (90.0 * t["running"] - t["speed"]) * dt / 4
        t["inlet"][:] = _PUMP_FLOW * t["speed"] / 100
        opened = t["outlet"] + 0.01 * (60.0 - t["outlet"]) * dt + 0.5 * noise[0] * math.sqrt(dt)
        t["outlet"][:] = np.maximum(0.0, opened) * np.minimum(1.0, t["level"] / 0.5)
        change = (t["inlet"] - t["outlet"] - t["leak"]) / 3600 / TANK_AREA * dt
        t["level"][:] = np.clip(t["level"] + change, 0.0, _TANK_HEIGHT)
        # what the sensors say
        t["inlet_flow"][:] = np.maximum(0.0, t["inlet"] + 0.3 * noise[1] * t["running"])
        t["outlet_flow"][:] = np.maximum(0.0, t["outlet"] + 0.2 * noise[2])
        t["temperature"] += 0.001 * (_AMBIENT + 30 - t["temperature"]) * dt + 0.01 * noise[3] * dt
        t["pressure"][:] = 1.013 + 0.0981 * t["level"] * 0.87 + 0.001 * noise[4]
        t["motor_current"][:] = np.maximum(0.0, t["speed"] * 0.8 + 0.4 * noise[5] * t["running"])
        t["vibration"][:] = 0.5 + 0.02 * t["speed"] + 0.05 * np.abs(noise[5])
        t["hours"] += t["running"] * dt / 3600
        t["volume_total"] += t["outlet_flow"] * dt / 3600
        t["valve"][:] = t["outlet"] > 1.0
        t["alarm_hi"][:] = t["level"] > 6.5
        t["alarm_lo"][:] = t["level"] < 1.0
        for unit in TANKS:
            self.texts[f"tank{unit}/product"] = f"OIL-{unit}"

    def _step_line(self, dt: float, noise: Floats, chance: Floats) -> None:
        s, v = self._sections, self.v
        s["jam"][:] = np.where(s["jam"] > 0, chance[0] > 0.05 * dt, chance[0] < 0.0005 * dt)
        # A jammed section stops itself and all upstream.
        stopped = np.maximum.accumulate(s["jam"][::-1])[::-1]
        s["speed"] += (v["line/speed_sp"] * (1.0 - stopped) - s["speed"]) * dt / 2
        s["motor_current"][:] = 4.0 + 6.0 * s["speed"] + 9.0 * s["jam"] + 0.2 * noise
        s["motor_temperature"][:] = 35.0 + 2.5 * s["motor_current"] + 0.1 * noise
        # An item moves to the next section at random, more often the faster it runs.
        left = np.minimum(s["on_belt"], self._random.poisson(s["on_belt"] * s["speed"] / _SECTION_LENGTH * dt))
        taken = float(chance[1, 0] < s["speed"][0] * dt)
        v["line/taken"] += taken
        s["on_belt"] += np.concatenate(([taken], left[:-1])) - left
        s["items"] += left
        s["photo_eye"][:] = left > 0
        s["running"][:] = s["speed"] > 0.05
        v["line/items"] = float(s["items"][-1])
        v["line/rejects"] += float(chance[2, 0] < 0.01 * dt)
        v["line/energy"] += float(s["motor_current"].sum()) * 0.4 * dt / 3600
        self.texts["line/mode"] = "JAM" if s["jam"].any() else "AUTO"
        self.texts["line/product"] = f"P-{100 + int(self.time / 600) % 5}"
