"""Tag list of the demo plant: about 300, most via OPC UA, those of packaged units via Modbus, some via both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeAlias

from core.config.sources import ChannelKind, WordOrder
from simulator.tags import OpcuaType, Register, SimTag

BOILERS = (1, 2)
TANKS = (1, 2, 3, 4, 5, 6)
SECTIONS = tuple(range(1, 9))
TUBES = tuple(range(1, 13))  # per boiler

_ORDERS: tuple[WordOrder, ...] = ("ABCD", "CDAB", "BADC", "DCBA")

# (quantity, kind, unit, lo, hi, OPC UA type, period); states and texts are checked in every step, published on change
_BOILER: tuple[tuple[str, ChannelKind, str, float | None, float | None, OpcuaType, float], ...] = (
    ("pressure", "analog", "bar", 0, 60, "Double", 0.5),
    ("pressure_sp", "analog", "bar", 0, 60, "Double", 1),
    ("level", "analog", "%", 0, 100, "Double", 0.5),
    ("level_sp", "analog", "%", 0, 100, "Double", 1),
    ("fuel", "analog", "t/h", 0, 15, "Double", 0.5),
    ("air", "analog", "t/h", 0, 200, "Float", 0.5),
    ("demand", "analog", "t/h", 0, 120, "Float", 1),
    ("steam_flow", "analog", "t/h", 0, 120, "Float", 0.5),
    ("feedwater", "analog", "t/h", 0, 150, "Float", 0.5),
    ("oxygen", "analog", "%", 0, 21, "Float", 1),
    ("flue_temperature", "analog", "°C", 0, 400, "Float", 1),
    ("steam_temperature", "analog", "°C", 0, 600, "Float", 1),
    ("furnace_draft", "analog", "Pa", -50, 50, "Float", 0.1),
    ("steam_total", "counter", "t", 0, None, "Double", 1),
    ("flame", "discrete", "", 0, 1, "Boolean", 0.1),
    ("alarm_pressure_hi", "discrete", "", 0, 1, "Boolean", 0.1),
    ("alarm_level_lo", "discrete", "", 0, 1, "Boolean", 0.1),
    ("alarms", "counter", "", 0, None, "Int32", 1),
    ("mode", "text", "", None, None, "String", 0.1),
)

_TANK: tuple[tuple[str, ChannelKind, str, float | None, float | None, OpcuaType | None], ...] = (
    ("level", "analog", "m", 0, 8, "Double"),
    ("level_sp", "analog", "m", 0, 8, "Double"),
    ("temperature", "analog", "°C", 0, 120, "Float"),
    ("pressure", "analog", "bar", 0, 4, "Float"),
    ("inlet_flow", "analog", "m³/h", 0, 200, "Float"),
    ("outlet_flow", "analog", "m³/h", 0, 200, "Float"),
    ("running", "discrete", "", 0, 1, "Boolean"),
    ("alarm_hi", "discrete", "", 0, 1, "Boolean"),
    ("product", "text", "", None, None, "String"),
)


def demo_tags() -> list[SimTag]:
    """All tags, in a fixed order."""
    tags = (*_opcua(), *_tank_farm_plc(), *_line_plc(), *_meters())
    return [replace(tag, alarms=limits_of(tag.name)) for tag in tags]


def _opcua() -> Iterator[SimTag]:
    for b in BOILERS:
        for quantity, kind, unit, lo, hi, type_, period in _BOILER:
            name = f"boilerhouse/boiler{b}/{quantity}"
            yield SimTag(name, f"boiler{b}/{quantity}", kind, unit, lo, hi, type_, period=period)
        for n in TUBES:
            name = f"boilerhouse/boiler{b}/tube{n}_temperature"
            yield SimTag(name, f"boiler{b}/tube{n}", "analog", "°C", 0, 700, "Float", period=1)
    for t in TANKS:
        for quantity, kind, unit, lo, hi, tank_type in _TANK:
            period = 1 if kind == "analog" else 0.1
            name = f"tankfarm/tank{t}/{quantity}"
            yield SimTag(name, f"tank{t}/{quantity}", kind, unit, lo, hi, tank_type, period=period)


# Quantity, kind, unit, lo, hi, and the register that has it.
_Row: TypeAlias = tuple[str, ChannelKind, str, float | None, float | None, Register]
# Quantities of which the signal has another name.
_SIGNALS = {"pump_speed": "speed", "steam_kg": "steam_total", "draft": "furnace_draft"}


def _modbus(name: str, signal: str, rows: Iterable[_Row]) -> Iterator[SimTag]:
    """Tags of Modbus. ``name``, ``signal``: what the names of all of them, and of their signals, begin with."""
    for quantity, kind, unit, lo, hi, register in rows:
        yield SimTag(name + quantity, signal + _SIGNALS.get(quantity, quantity), kind, unit, lo, hi, register=register)


def _tank_farm_plc() -> Iterator[SimTag]:
    """The tank farm's own controller: floats in every word order, bits, a string."""
    register = partial(Register, "tankfarm-plc")
    for t in TANKS:
        base, order = 100 * t, _ORDERS[t % 4]
        rows: list[_Row] = [
            ("level", "analog", "m", 0, 8, register("input", base, "float32", order)),
            ("temperature", "analog", "°C", 0, 120, register("input", base + 2, "float32", order)),
            ("inlet_flow", "analog", "m³/h", 0, 200, register("input", base + 4, "float32", order)),
            ("outlet_flow", "analog", "m³/h", 0, 200, register("input", base + 6, "float32", order)),
            ("volume_total", "counter", "m³", 0, None, register("input", base + 8, "float64", order)),
            ("pump_speed", "analog", "%", 0, 100, register("input", base + 12, "int16", order, divisor=10)),
            ("motor_current", "analog", "A", 0, 100, register("input", base + 13, "uint16", order, divisor=10)),
            ("vibration", "analog", "mm/s", 0, 20, register("input", base + 14, "uint16", order, divisor=100)),
            ("starts", "counter", "", 0, None, register("input", base + 15, "uint32", order)),
            ("hours", "counter", "h", 0, None, register("input", base + 17, "float32", order)),
            ("level_sp", "analog", "m", 0, 8, register("holding", base, "float32", order)),
            ("running", "discrete", "", None, None, register("holding", base + 2, "bool", bit=0)),
            ("trip", "discrete", "", None, None, register("holding", base + 2, "bool", bit=7)),
            ("valve", "discrete", "", None, None, register("coil", 10 * t, "bool")),
            ("alarm_hi", "discrete", "", None, None, register("discrete", 10 * t, "bool")),
            ("alarm_lo", "discrete", "", None, None, register("discrete", 10 * t + 1, "bool")),
            ("product", "text", "", None, None, register("holding", base + 10, "string", length=8)),
        ]
        yield from _modbus(f"tankfarm-plc/tank{t}/", f"tank{t}/", rows)


def _line_plc() -> Iterator[SimTag]:
    """The conveyor line's controller: integers, scaled values, counters."""
    register = partial(Register, "conveyor-plc")
    for s in SECTIONS:
        base = 20 * s
        section: list[_Row] = [
            ("speed", "analog", "m/s", 0, 3, register("holding", base, "int16", divisor=1000)),
            ("motor_current", "analog", "A", 0, 40, register("holding", base + 1, "uint16", divisor=100)),
            ("motor_temperature", "analog", "°C", 0, 150, register("holding", base + 2, "int16", divisor=10)),
            ("items", "counter", "", 0, None, register("holding", base + 4, "uint32", "CDAB")),
            ("running", "discrete", "", None, None, register("discrete", 10 * s, "bool")),
            ("jam", "discrete", "", None, None, register("discrete", 10 * s + 1, "bool")),
            ("photo_eye", "discrete", "", None, None, register("discrete", 10 * s + 2, "bool")),
        ]
        yield from _modbus(f"conveyor/section{s}/", f"line/s{s}/", section)
    line: list[_Row] = [
        ("speed_sp", "analog", "m/s", 0, 3, register("holding", 0, "int16", divisor=1000)),
        ("rejects", "counter", "", 0, None, register("holding", 2, "int32")),
        ("mode", "text", "", None, None, register("holding", 8, "string", length=4)),
        ("product", "text", "", None, None, register("holding", 12, "string", length=4)),
    ]
    yield from _modbus("conveyor/", "line/", line)


def _meters() -> Iterator[SimTag]:
    """Energy and gas meters behind one gateway: doubles and long integers."""
    register = partial(Register, "meters", "input")
    for k, b in enumerate(BOILERS):
        base = 40 * k
        rows: list[_Row] = [
            ("steam_total", "counter", "t", 0, None, register(base, "float64", "ABCD")),
            ("fuel", "analog", "t/h", 0, 15, register(base + 4, "float64", "CDAB")),
            ("air", "analog", "t/h", 0, 200, register(base + 8, "float64", "DCBA")),
            ("steam_kg", "counter", "kg", 0, None, register(base + 12, "int64", divisor=1000)),
            ("oxygen", "analog", "%", 0, 21, register(base + 16, "int32", "BADC", divisor=1000)),
            ("draft", "analog", "Pa", -50, 50, register(base + 18, "int16", divisor=10)),
        ]
        yield from _modbus(f"meters/boiler{b}/", f"boiler{b}/", rows)
    energy = register(200, "uint64", "CDAB", divisor=100)
    yield from _modbus("meters/line/", "line/", [("energy", "counter", "kWh", 0, None, energy)])


# Pattern of a tag's name → columns of the tag list.
_LIMITS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (
        "boilerhouse/boiler*/pressure",
        {"lolo": "34", "lo": "37", "hi": "44", "hihi": "48", "deadband": "0.5", "delay": "2s", "priority": "high"},
    ),
    (
        "boilerhouse/boiler*/level",
        {"lolo": "25", "lo": "35", "hi": "65", "hihi": "75", "deadband": "2", "rate": "20", "priority": "high"},
    ),
    ("boilerhouse/boiler*/fuel", {"hi": "7", "deadband": "0.2", "delay": "5s"}),
    ("boilerhouse/boiler*/steam_flow", {"lo": "20", "deadband": "5", "off_delay": "2s"}),
    ("boilerhouse/boiler*/oxygen", {"lo": "1.5", "hi": "6", "deadband": "0.2", "delay": "5s", "stale": "30s"}),
    ("boilerhouse/boiler*/flue_temperature", {"hi": "195", "hihi": "210", "deadband": "2", "delay": "5s"}),
    ("boilerhouse/boiler*/flame", {"lo": "0.5", "priority": "critical", "latch": "true"}),
    (
        "tankfarm/tank*/level",
        {"lolo": "1", "lo": "2", "hi": "6.5", "hihi": "7.5", "deadband": "0.1", "delay": "2s", "priority": "high"},
    ),
    ("tankfarm-plc/tank*/level", {"bad": "true", "priority": "low"}),
    ("tankfarm-plc/tank*/trip", {"hi": "0.5", "priority": "high"}),
    ("tankfarm-plc/tank*/vibration", {"hi": "4.5", "hihi": "7.1", "deadband": "0.3", "delay": "5s"}),
    ("conveyor/section*/jam", {"hi": "0.5"}),
    ("conveyor/section*/motor_temperature", {"hi": "90", "hihi": "120", "deadband": "5", "priority": "low"}),
)


def limits_of(name: str) -> tuple[tuple[str, str], ...]:
    """The ``alarm_…`` columns of a tag and their values; empty without limits."""
    for pattern, limits in _LIMITS:
        if fnmatchcase(name, pattern):
            return tuple((f"alarm_{column}", cell) for column, cell in limits.items())
    return ()
