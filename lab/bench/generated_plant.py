"""A plant of generated channels at 1 Hz, in which every question of ``plantlog ask`` finds something.

A unit of the plant has 100 channels: a tank, set points, states, twins of two transmitters, and transmitters. Every
tenth unit has an upset in one hour of each day: a sensor that is stuck, one that is replayed, spikes, Bad values,
others that move one after the other, one that swings, a tank that leaks, a gap, and a silence that is on no record.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import numpy as np

from core.batch import Float64s, Int64s
from core.samples import Samples
from core.timestamps import begin, microseconds
from lab.bench.data import BAD, values

UPSET_HOUR = 15
UPSETS = 10  # one of so many units has one
UNIT = 100  # channels
TARGET = 10  # a channel that correlation may be about
_TANK = ("level", "inlet_flow", "outlet_flow")
_HELD = {
    3: ("setpoint1", 6, 20),
    4: ("setpoint2", 6, 20),
    5: ("mode", 3, 4),
    6: ("running", 70, 2),
    9: ("valve", 70, 2),
}
_TWINS = {7: 10, 8: 11}  # position in the unit → that of the transmitter
_DAY = 86_400  # s
_QUARTER = 1800  # s; a tank is filled, rests, is emptied, and rests
_UPSET = UPSET_HOUR * 3600  # s
GAP = _UPSET + 3300, _UPSET + 3360  # s of the day, of all channels of a unit
_SILENCE = _UPSET + 2700, _UPSET + 2760  # of one channel


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel as it is registered."""

    name: str
    source: str
    kind: str
    unit: str


def channel(number: int) -> Channel:
    """The channel with a number, which is also its id."""
    unit, position = _position(number)
    if position in _HELD:
        kind = "analog" if position < 5 else "discrete"
        return Channel(f"north/unit{unit:04}/{_HELD[position][0]}", source(unit), kind, "")
    area = "meters" if position in _TWINS else "north"
    transmitter = f"transmitter{_TWINS.get(position, position):02}"
    name = _TANK[position] if position < len(_TANK) else transmitter
    return Channel(f"{area}/unit{unit:04}/{name}", source(unit), "analog", "%")


def source(unit: int) -> str:
    """The source of a unit's channels."""
    return f"gateway{unit:04}"


def units(channels: int) -> range:
    """The units of so many channels."""
    return range(-(-channels // UNIT))


def has_upset(unit: int) -> bool:
    """Return whether a unit has one."""
    return unit % UPSETS == 0


def samples(number: int, day: date, hours: range) -> Samples:
    """The samples of a channel in hours of a day: the same ones each time."""
    unit, position = _position(number)
    value = _values(number, day) / 100
    status = np.zeros(_DAY, np.uint32)
    seconds = np.arange(hours.start * 3600, hours.stop * 3600)
    if has_upset(unit):
        seconds = _without(seconds, GAP)
        if position == 13:
            bad = slice(_UPSET + 1200, _UPSET + 1800)
            value[bad], status[bad] = np.nan, BAD
        elif position == 18:
            seconds = _without(seconds, _SILENCE)
        else:
            _disturb(value, position)
    time = microseconds(begin(day)) + seconds * 1_000_000
    return Samples(np.full(len(time), number, np.int32), time, value[seconds], status[seconds])


def _without(seconds: Int64s, part: tuple[int, int]) -> Int64s:
    return seconds[(seconds < part[0]) | (seconds >= part[1])]


def _position(number: int) -> tuple[int, int]:
    """The unit, and the position in it."""
    return divmod(number - 1, UNIT)


def _values(number: int, day: date) -> Float64s:
    """A day of a channel without upsets, in hundredths, shape (86,400,)."""
    position = _position(number)[1]
    random = np.random.default_rng([number, day.toordinal()])
    if position in _TWINS:
        return _values(number + _TWINS[position] - position, day) + np.rint(random.normal(0.0, 1.0, _DAY))
    if position in _HELD:
        _, changes, levels = _HELD[position]
        steps = np.cumsum(random.random(_DAY) < changes / _DAY)
        return 100 * random.integers(0, levels, _DAY)[steps].astype(np.float64)
    if position >= len(_TANK):
        return np.rint(100 * values("transmitter", _DAY, random))
    phase = np.arange(_DAY) // _QUARTER % 4
    fills, empties = phase == 0, phase == 2
    if position == 0:
        rise = fills.astype(np.float64) - empties.astype(np.float64)
        level: Float64s = 4000 + 2000 / _QUARTER * np.cumsum(rise)
        return np.rint(level + random.normal(0.0, 1.0, _DAY))
    return np.where(fills if position == 1 else empties, np.rint(random.normal(4000.0, 2.5, _DAY)), 0.0)


def _disturb(value: Float64s, position: int) -> None:
    """The upset of a channel."""
    if position == 0:
        value -= np.clip((np.arange(_DAY) - _UPSET - 2100) // 2, 0, 300) / 100
    elif position == 10:
        value[_UPSET + 300 : _UPSET + 2700] = value[_UPSET + 300]
    elif position == 11:
        value[_UPSET + 1800 : _UPSET + 2400] = value[_UPSET - 1200 : _UPSET - 600]
    elif position == 12:
        value[_UPSET + 600 : _UPSET + 3600 : 900] += 20
    elif 14 <= position <= 17:
        value[_UPSET + 2400 + 5 * position : _UPSET + 3000] += 15
    elif position == 19:
        value[_UPSET : _UPSET + 3600] += np.rint(500 * np.sin(np.arange(3600) * (2 * np.pi / 60)))
