"""Variables that are proposed as counters."""

from __future__ import annotations

import pytest
from asyncua.ua import ObjectIds

from ops.registration.discovery.discover import is_counter


@pytest.mark.parametrize(
    ("name", "unit", "data_type"),
    [
        ("Line/Meter/ActiveEnergy", "kWh", ObjectIds.Double),
        ("Line/Meter/Import", "kWh", ObjectIds.Float),
        ("boiler1/steam_total", "t", ObjectIds.Double),
        ("Pump.OperatingHours", "h", ObjectIds.Float),
        ("Pump/StartsTotal", "", ObjectIds.UInt32),
        ("Line/PULSES", "", ObjectIds.UInt16),
    ],
)
def test_counters(name: str, unit: str, data_type: int) -> None:
    assert is_counter(name, unit, data_type)


@pytest.mark.parametrize(
    ("name", "unit", "data_type"),
    [
        ("Line/TotalPower", "kW", ObjectIds.Double),
        ("Tank/Volume", "m³", ObjectIds.Double),
        ("Line/Total", "", ObjectIds.Double),
        ("Line/Encounters", "", ObjectIds.UInt32),
        ("Counter/Speed", "", ObjectIds.UInt32),
        ("Tank/Level", "", ObjectIds.UInt16),
    ],
)
def test_other_numbers(name: str, unit: str, data_type: int) -> None:
    assert not is_counter(name, unit, data_type)
