"""Units and ranges of variables: the properties EngineeringUnits and EURange of an AnalogItem (OPC 10000-8, 5.3.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from sys import intern
from typing import Any, TypeAlias

from asyncua import ua

from ingest.opcua.browse.browse import Browser
from ingest.opcua.browse.channel_names import plain

UnitAndRange: TypeAlias = tuple[str, float | None, float | None]  # unit, low and high end of the range

UNIT_AND_RANGE = ("EngineeringUnits", "EURange")  # properties
_UNECE = "http://www.opcfoundation.org/UA/units/un/cefact"


async def units_and_ranges(browser: Browser, properties: Mapping[Any, Mapping[str, Any]]) -> dict[Any, UnitAndRange]:
    """Of each variable, by its properties (browse name → node id), what the server has."""
    wanted = [
        (node, name, named[name]) for node, named in properties.items() for name in UNIT_AND_RANGE if name in named
    ]
    values = await browser.read([(node, ua.AttributeIds.Value) for _, _, node in wanted], _unit_or_range)
    units: dict[Any, str] = {}
    ranges: dict[Any, tuple[float, float]] = {}
    for (node, name, _), value in zip(wanted, values, strict=True):
        if name == "EngineeringUnits" and isinstance(value, str):
            units[node] = value
        elif name == "EURange" and isinstance(value, tuple):
            ranges[node] = value
    found: dict[Any, UnitAndRange] = {}
    for node in properties:
        lo, hi = ranges.get(node, (0.0, 0.0))
        found[node] = (units.get(node, ""), *((lo, hi) if lo < hi else (None, None)))  # unset ranges are 0 to 0
    return found


def _unit_or_range(data_value: Any) -> str | tuple[float, float] | None:
    read: Any = None if data_value.Value is None else data_value.Value.Value
    if hasattr(read, "DisplayName"):
        return intern(plain(read.DisplayName.Text or "") or _common_code(read))
    if hasattr(read, "Low") and math.isfinite(read.Low) and math.isfinite(read.High):
        return read.Low, read.High
    return None


def _common_code(unit: Any) -> str:
    """The UNECE code of a unit without a name, as CEL: the UnitId has its characters (OPC 10000-8, 5.6.4.3)."""
    if unit.NamespaceUri != _UNECE or not 0 < unit.UnitId < 1 << 24:
        return ""
    code = unit.UnitId.to_bytes(3, "big").lstrip(b"\0")
    return code.decode() if code.isalnum() else ""
