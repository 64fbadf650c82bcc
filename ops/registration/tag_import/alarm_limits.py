"""Alarms of an Ignition tag as the alarm columns of a tag list, which has two high and two low limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PRIORITIES = {"Diagnostic": "low", "Low": "low", "Medium": "medium", "High": "high", "Critical": "critical"}
_RANKS = tuple(_PRIORITIES)
_CARRIED = ("name", "mode", "setpointA", "priority", "deadband", "timeOnDelaySeconds", "timeOffDelaySeconds", "enabled")
# A channel has one of each for all of its limits: (property, column, unit of the column)
_SHARED = (
    ("deadband", "alarm_deadband", ""),
    ("timeOnDelaySeconds", "alarm_delay", "s"),
    ("timeOffDelaySeconds", "alarm_off_delay", "s"),
)


def limits(alarms: Any, kind: str, dropped: list[str]) -> dict[str, str]:
    """The columns. What has no column goes to ``dropped``."""
    by_mode: dict[str, list[tuple[float, Mapping[str, Any]]]] = {"AboveValue": [], "BelowValue": []}
    for alarm in alarms if isinstance(alarms, list) else ():
        if not isinstance(alarm, dict):
            continue
        mode, setpoint = str(alarm.get("mode", "Equality")), alarm.get("setpointA", 0)
        usable = mode in by_mode and isinstance(setpoint, int | float) and not isinstance(setpoint, bool)
        if alarm.get("enabled", True) is not True or not usable or kind == "text":
            dropped.append(f"an alarm of mode {mode!r}, not enabled, or without a fixed limit")
        else:
            by_mode[mode].append((float(setpoint), alarm))
    highs = sorted(by_mode["AboveValue"], key=lambda limit: limit[0])
    lows = sorted(by_mode["BelowValue"], key=lambda limit: -limit[0])
    columns: dict[str, str] = {}
    used: list[Mapping[str, Any]] = []
    for names, levels in ((("alarm_hi", "alarm_hihi"), highs), (("alarm_lo", "alarm_lolo"), lows)):
        for name, (setpoint, alarm) in zip(names, levels, strict=False):
            if str(setpoint) in columns.values():
                dropped.append("an alarm with the limit of another one")
                continue
            columns[name] = str(setpoint)
            used.append(alarm)
        if len(levels) > len(names):
            dropped.append("a third alarm limit on one side")
    return columns | _of_all(used, dropped)


def _of_all(alarms: Sequence[Mapping[str, Any]], dropped: list[str]) -> dict[str, str]:
    """Attributes common to the limits of a channel: the highest priority, delays and deadband."""
    if not alarms:
        return {}
    dropped += [f"{name} of an alarm" for alarm in alarms for name in alarm if name not in _CARRIED]
    priorities = [str(alarm.get("priority", "Low")) for alarm in alarms]
    ranks = sorted(_RANKS.index(priority) for priority in priorities if priority in _RANKS)
    if len(set(priorities)) > 1 or len(ranks) < len(priorities) or "Diagnostic" in priorities:
        dropped.append("priorities of alarms: a channel has one, the highest")
    columns = {"alarm_priority": _PRIORITIES[_RANKS[ranks[-1]]] if ranks else "low"}
    for name, column, unit in _SHARED:
        values = {alarm.get(name, 0) for alarm in alarms if isinstance(alarm.get(name, 0), int | float)}
        if len(values) > 1 or [a for a in alarms if not isinstance(a.get(name, 0), int | float)]:
            dropped.append(f"{name} of alarms that differ, or are not fixed")
        elif value := values.pop():
            columns[column] = f"{value}{unit}"
    return columns
