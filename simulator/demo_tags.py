"""Tag list of the demo plant: about 300, most via OPC UA, those of packaged units via Modbus, some via both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

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


def _tank_farm_plc() -> Iterator[SimTag]:
    """The tank farm's own controller: floats in every word order, bits, a string."""
    for t in TANKS:
        base, order = 100 * t, _ORDERS[t % 4]
        p, n = f"tank{t}/", f"tankfarm-plc/tank{t}/"
        device = "tankfarm-plc"
        for k, (q, unit, hi) in enumerate(
            (
                ("level", "m", 8.0),
                ("temperature", "°C", 120.0),
                ("inlet_flow", "m³/h", 200.0),
                ("outlet_flow", "m³/h", 200.0),
            )
        ):
            register = Register(device, "input", base + 2 * k, "float32", order)
            yield SimTag(n + q, p + q, "analog", unit, 0, hi, register=register)
        yield SimTag(
            n + "volume_total",
            p + "volume_total",
            "counter",
            "m³",
            0,
            register=Register(device, "input", base + 8, "float64", order),
        )
        yield SimTag(
            n + "pump_speed",
            p + "speed",
            "analog",
            "%",
            0,
            100,
            register=Register(device, "input", base + 12, "int16", order, divisor=10),
        )
        yield SimTag(
            n + "motor_current",
            p + "motor_current",
            "analog",
            "A",
            0,
            100,
            register=Register(device, "input", base + 13, "uint16", order, divisor=10),
        )
        yield SimTag(
            n + "vibration",
            p + "vibration",
            "analog",
            "mm/s",
            0,
            20,
            register=Register(device, "input", base + 14, "uint16", order, divisor=100),
        )
        yield SimTag(
            n + "starts", p + "starts", "counter", "", 0, register=Register(device, "input", base + 15, "uint32", order)
        )
        yield SimTag(
            n + "hours", p + "hours", "counter", "h", 0, register=Register(device, "input", base + 17, "float32", order)
        )
        yield SimTag(
            n + "level_sp",
            p + "level_sp",
            "analog",
            "m",
            0,
            8,
            register=Register(device, "holding", base, "float32", order),
        )
        yield SimTag(
            n + "running", p + "running", "discrete", register=Register(device, "holding", base + 2, "bool", bit=0)
        )
        yield SimTag(n + "trip", p + "trip", "discrete", register=Register(device, "holding", base + 2, "bool", bit=7))
        yield SimTag(n + "valve", p + "valve", "discrete", register=Register(device, "coil", 10 * t, "bool"))
        yield SimTag(n + "alarm_hi", p + "alarm_hi", "discrete", register=Register(device, "discrete", 10 * t, "bool"))
        yield SimTag(
            n + "alarm_lo", p + "alarm_lo", "discrete", register=Register(device, "discrete", 10 * t + 1, "bool")
        )
        yield SimTag(
            n + "product", p + "product", "text", register=Register(device, "holding", base + 10, "string", length=8)
        )


def _line_plc() -> Iterator[SimTag]:
    """The conveyor line's controller: integers, scaled values, counters."""
    device = "conveyor-plc"
    for s in SECTIONS:
        base, p, n = 20 * s, f"line/s{s}/", f"conveyor/section{s}/"
        yield SimTag(
            n + "speed",
            p + "speed",
            "analog",
            "m/s",
            0,
            3,
            register=Register(device, "holding", base, "int16", divisor=1000),
        )
        yield SimTag(
            n + "motor_current",
            p + "motor_current",
            "analog",
            "A",
            0,
            40,
            register=Register(device, "holding", base + 1, "uint16", divisor=100),
        )
        yield SimTag(
            n + "motor_temperature",
            p + "motor_temperature",
            "analog",
            "°C",
            0,
            150,
            register=Register(device, "holding", base + 2, "int16", divisor=10),
        )
        yield SimTag(
            n + "items", p + "items", "counter", "", 0, register=Register(device, "holding", base + 4, "uint32", "CDAB")
        )
        yield SimTag(n + "running", p + "running", "discrete", register=Register(device, "discrete", 10 * s, "bool"))
        yield SimTag(n + "jam", p + "jam", "discrete", register=Register(device, "discrete", 10 * s + 1, "bool"))
        yield SimTag(
            n + "photo_eye", p + "photo_eye", "discrete", register=Register(device, "discrete", 10 * s + 2, "bool")
        )
    yield SimTag(
        "conveyor/speed_sp",
        "line/speed_sp",
        "analog",
        "m/s",
        0,
        3,
        register=Register(device, "holding", 0, "int16", divisor=1000),
    )
    yield SimTag("conveyor/rejects", "line/rejects", "counter", "", 0, register=Register(device, "holding", 2, "int32"))
    yield SimTag("conveyor/mode", "line/mode", "text", register=Register(device, "holding", 8, "string", length=4))
    yield SimTag(
        "conveyor/product", "line/product", "text", register=Register(device, "holding", 12, "string", length=4)
    )


def _meters() -> Iterator[SimTag]:
    """Energy and gas meters behind one gateway: doubles and long integers."""
    device = "meters"
    for k, b in enumerate(BOILERS):
        p, n = f"boiler{b}/", f"meters/boiler{b}/"
        yield SimTag(
            n + "steam_total",
            p + "steam_total",
            "counter",
            "t",
            0,
            register=Register(device, "input", 40 * k, "float64", "ABCD"),
        )
        yield SimTag(
            n + "fuel",
            p + "fuel",
            "analog",
            "t/h",
            0,
            15,
            register=Register(device, "input", 40 * k + 4, "float64", "CDAB"),
        )
        yield SimTag(
            n + "air",
            p + "air",
            "analog",
            "t/h",
            0,
            200,
            register=Register(device, "input", 40 * k + 8, "float64", "DCBA"),
        )
        yield SimTag(
            n + "steam_kg",
            p + "steam_total",
            "counter",
            "kg",
            0,
            register=Register(device, "input", 40 * k + 12, "int64", divisor=1000),
        )
        yield SimTag(
            n + "oxygen",
            p + "oxygen",
            "analog",
            "%",
            0,
            21,
            register=Register(device, "input", 40 * k + 16, "int32", "BADC", divisor=1000),
        )
        yield SimTag(
            n + "draft",
            p + "furnace_draft",
            "analog",
            "Pa",
            -50,
            50,
            register=Register(device, "input", 40 * k + 18, "int16", divisor=10),
        )
    yield SimTag(
        "meters/line/energy",
        "line/energy",
        "counter",
        "kWh",
        0,
        register=Register(device, "input", 200, "uint64", "CDAB", divisor=100),
    )


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
