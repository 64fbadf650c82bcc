"""Alarm limits of the demo plant: no alarms in normal operation; every scenario except the leak raises one.

Level control compensates for a leak, so no limit detects it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

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
