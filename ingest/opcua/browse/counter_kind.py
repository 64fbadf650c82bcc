"""Which variables `discover` proposes as counters: numbers that by type, unit and name only ever increase."""

from __future__ import annotations

import re

from asyncua import ua

_IDS = ua.ObjectIds
_INTEGERS = frozenset(
    (
        *(_IDS.Byte, _IDS.UInt16, _IDS.Int32, _IDS.UInt32, _IDS.Int64, _IDS.UInt64),
        *(_IDS.Integer, _IDS.UInteger),
    )
)
_ENERGIES = frozenset({"wh", "kwh", "mwh", "gwh", "varh", "kvarh", "mvarh", "vah", "kvah"})
_AMOUNTS = _ENERGIES | {"h", "s", "m³", "m3", "l", "t", "kg", "pcs", "gj", "mj"}
_WORDS = frozenset(
    {
        *("count", "counter", "counts", "cycles", "energy", "hours", "odometer", "pulses", "runtime", "starts"),
        *("total", "totalised", "totaliser", "totalized", "totalizer"),
    }
)


def is_counter(name: str, unit: str, data_type: int) -> bool:
    """Whether a number with the last part of this ``name`` is likely to be a counter.

    Energies are; a name such as TotalFlow makes an amount a counter, or an integer without a unit. ``data_type``: the
    built-in type, or its abstract supertype (OPC 10000-6, 5.1.2).
    """
    unit = unit.strip().lower()
    if unit in _ENERGIES:
        return True
    words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", re.split(r"[/.]", name)[-1])}
    return bool(words & _WORDS) and (unit in _AMOUNTS if unit else data_type in _INTEGERS)
