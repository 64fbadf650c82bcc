"""A small plant: two boilers, a tank farm with pumps, a conveyor line. Signals by name, stepped together."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simulator.demo_tags import BOILERS, SECTIONS, TANKS, demo_tags
from simulator.tags import SimTag

_STEAM_PER_FUEL = 12.0  # t/h of steam a t/h of fuel
_TANK_AREA = 50.0  # m²
_PUMP_FLOW = 120.0  # m³/h at full speed
_AMBIENT = 15.0  # °C


class DemoPlant:
    """The process model. All signals are in ``v``; set points are signals that nobody but a writer changes."""

    name = "demo"

    def __init__(self, seed: int = 1) -> None:
        self.tags: list[SimTag] = demo_tags()
        self._random = np.random.default_rng(seed)
        self.time = 0.0  # s of plant time
        self.leak: dict[int, float] = {}  # tank → m³/h that leave unseen
        self.tripped: set[int] = set()  # tanks whose pump can't run
        self.v: dict[str, float] = {}
        self.texts: dict[str, str] = {"line/mode": "AUTO", "line/product": "P-100"}
        for b in BOILERS:
            self.v |= {f"boiler{b}/pressure_sp": 40.0, f"boiler{b}/level_sp": 50.0, f"boiler{b}/pressure": 38.0}
            self.v |= {f"boiler{b}/level": 48.0, f"boiler{b}/fuel": 5.0, f"boiler{b}/integral": 5.0}
            self.v |= {f"boiler{b}/steam_total": 0.0, f"boiler{b}/demand": 60.0 + 5 * b}
            self.texts[f"boiler{b}/mode"] = "AUTO"
        for t in TANKS:
            self.v |= {f"tank{t}/level": 2.0 + t, f"tank{t}/level_sp": 4.0, f"tank{t}/speed": 50.0}
            self.v |= {f"tank{t}/temperature": 40.0 + 3 * t, f"tank{t}/starts": 0.0, f"tank{t}/hours": 0.0}
            self.v |= {f"tank{t}/running": 0.0, f"tank{t}/outlet": 60.0, f"tank{t}/volume_total": 0.0}
            self.texts[f"tank{t}/product"] = f"OIL-{t}"
        self.v |= {"line/speed_sp": 1.2, "line/items": 0.0, "line/rejects": 0.0}
        for s in SECTIONS:
            self.v |= {f"line/s{s}/items": 0.0, f"line/s{s}/jam": 0.0, f"line/s{s}/speed": 1.2}
        self.step(0.1)

    def numbers(self) -> NDArray[np.float64]:
        """The present value of every tag."""
        return np.array([math.nan if tag.kind == "text" else self.v[tag.signal] for tag in self.tags])

    def text(self, tag: int) -> str:
        """The present value of a text tag."""
        return self.texts[self.tags[tag].signal]

    def write(self, signal: str, value: float) -> None:
        """An operator's write to a set point."""
        self.v[signal] = value

    def step(self, seconds: float) -> None:
        """Move on; long steps are cut so that the controllers stay stable."""
        while seconds > 1e-9:
            dt = min(seconds, 1.0)
            self.time += dt
            noise = iter(
                self._random.standard_normal(40 * len(BOILERS) + 20 * len(TANKS) + 10 * len(SECTIONS)).tolist()
            )
            for b in BOILERS:
                self._boiler(b, dt, noise)
            for t in TANKS:
                self._tank(t, dt, noise)
            self._line(dt, noise)
            seconds -= dt

    def _boiler(self, b: int, dt: float, noise: Iterator[float]) -> None:
        v, p = self.v, f"boiler{b}/"
        v[p + "demand"] += (
            0.02 * (60.0 + 15 * math.sin(self.time / 300 + b) - v[p + "demand"]) * dt + 0.3 * next(noise) * dt
        )
        error = v[p + "pressure_sp"] - v[p + "pressure"]
        v[p + "integral"] = min(12.0, max(0.5, v[p + "integral"] + 0.02 * error * dt))
        v[p + "fuel"] += (min(12.0, max(0.5, v[p + "integral"] + 0.4 * error)) - v[p + "fuel"]) * min(1.0, dt / 3)
        steam = v[p + "fuel"] * _STEAM_PER_FUEL
        v[p + "pressure"] = max(0.0, v[p + "pressure"] + 0.01 * (steam - v[p + "demand"]) * dt)
        v[p + "steam_flow"] = v[p + "demand"] + 0.2 * next(noise)
        v[p + "feedwater"] = max(0.0, v[p + "demand"] + 3.0 * (v[p + "level_sp"] - v[p + "level"]))
        v[p + "level"] += 0.02 * (v[p + "feedwater"] - v[p + "demand"]) * dt + 0.05 * next(noise) * dt
        v[p + "air"] = v[p + "fuel"] * 13.5 + 0.3 * next(noise)
        v[p + "oxygen"] = 3.0 + 0.2 * (v[p + "air"] / v[p + "fuel"] - 13.5) + 0.05 * next(noise)
        v[p + "flue_temperature"] = 140.0 + 6.0 * v[p + "fuel"] + 0.4 * next(noise)
        v[p + "steam_temperature"] = 380.0 + 2.0 * (v[p + "pressure"] - 40.0) + 0.5 * next(noise)
        v[p + "furnace_draft"] = -8.0 + 0.3 * next(noise)
        v[p + "steam_total"] += v[p + "steam_flow"] * dt / 3600
        v[p + "flame"] = float(v[p + "fuel"] > 0.4)
        v[p + "alarm_pressure_hi"] = float(v[p + "pressure"] > 44.0)
        v[p + "alarm_level_lo"] = float(v[p + "level"] < 35.0)
        v[p + "alarms"] = v[p + "alarm_pressure_hi"] + v[p + "alarm_level_lo"]
        for n in range(1, 13):  # tube metal temperatures: slow, coupled to the flue gas
            key = f"{p}tube{n}"
            target = v[p + "flue_temperature"] * 2.2 + 4 * n
            v[key] = v.get(key, target) + (target - v.get(key, target)) * min(1.0, dt / 60) + 0.1 * next(noise) * dt

    def _tank(self, t: int, dt: float, noise: Iterator[float]) -> None:
        v, p = self.v, f"tank{t}/"
        was = v[p + "running"]
        # on and off around the set point, as level control by a pump does
        want = (
            1.0
            if v[p + "level"] < v[p + "level_sp"] - 0.2
            else 0.0
            if v[p + "level"] > v[p + "level_sp"] + 0.2
            else was
        )
        v[p + "running"] = 0.0 if t in self.tripped else want
        v[p + "trip"] = float(t in self.tripped)
        v[p + "starts"] += float(v[p + "running"] > was)
        v[p + "speed"] += (90.0 * v[p + "running"] - v[p + "speed"]) * min(1.0, dt / 4)
        inlet = _PUMP_FLOW * v[p + "speed"] / 100
        v[p + "outlet"] = max(0.0, v[p + "outlet"] + 0.01 * (60 - v[p + "outlet"]) * dt + 0.5 * next(noise) * dt)
        out = v[p + "outlet"] * min(1.0, v[p + "level"] / 0.5) + self.leak.get(t, 0.0)
        v[p + "level"] = min(8.0, max(0.0, v[p + "level"] + (inlet - out) / 3600 / _TANK_AREA * dt * 20))
        v[p + "inlet_flow"] = max(0.0, inlet + 0.3 * next(noise) * v[p + "running"])
        v[p + "outlet_flow"] = max(0.0, out - self.leak.get(t, 0.0) + 0.2 * next(noise))
        v[p + "temperature"] += 0.001 * (_AMBIENT + 30 - v[p + "temperature"]) * dt + 0.01 * next(noise) * dt
        v[p + "pressure"] = 1.013 + 0.0981 * v[p + "level"] * 0.87 + 0.001 * next(noise)
        v[p + "motor_current"] = v[p + "speed"] * 0.8 + 0.4 * next(noise) * v[p + "running"]
        v[p + "vibration"] = 0.5 + 0.02 * v[p + "speed"] + 0.05 * abs(next(noise))
        v[p + "hours"] += v[p + "running"] * dt / 3600
        v[p + "volume_total"] += v[p + "outlet_flow"] * dt / 3600
        v[p + "valve"] = float(v[p + "outlet"] > 1.0)
        v[p + "alarm_hi"] = float(v[p + "level"] > 6.5)
        v[p + "alarm_lo"] = float(v[p + "level"] < 1.0)

    def _line(self, dt: float, noise: Iterator[float]) -> None:
        v = self.v
        for s in SECTIONS:
            p = f"line/s{s}/"
            if v[p + "jam"]:
                v[p + "jam"] = float(self._random.random() > 0.05 * dt)
            else:
                v[p + "jam"] = float(self._random.random() < 0.0005 * dt)
            target = 0.0 if v[p + "jam"] else v["line/speed_sp"]
            v[p + "speed"] += (target - v[p + "speed"]) * min(1.0, dt / 2)
            v[p + "motor_current"] = 4.0 + 6.0 * v[p + "speed"] + (9.0 if v[p + "jam"] else 0.0) + 0.2 * next(noise)
            v[p + "motor_temperature"] = 35.0 + 2.5 * v[p + "motor_current"] + 0.1 * next(noise)
            passed = float(self._random.poisson(max(0.0, v[p + "speed"]) * dt))
            v[p + "items"] += passed
            v[p + "photo_eye"] = float(passed > 0)
            v[p + "running"] = float(v[p + "speed"] > 0.05)
        v["line/items"] = v[f"line/s{SECTIONS[-1]}/items"]
        v["line/rejects"] += float(self._random.random() < 0.01 * dt)
        v["line/energy"] = (
            v.get("line/energy", 0.0) + sum(v[f"line/s{s}/motor_current"] for s in SECTIONS) * 0.4 * dt / 3600
        )
        self.texts["line/mode"] = "JAM" if any(v[f"line/s{s}/jam"] for s in SECTIONS) else "AUTO"
        self.texts["line/product"] = f"P-{100 + int(self.time / 600) % 5}"
