"""The plant of a load test: many channels with constantly changing values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simulator.tags import Register, SimTag, tick_for

_OPCUA_CHANNELS = 5000  # at most
_OPCUA_SHARE = 10 / 11
_MAX_HUNDREDTHS = 10_000  # hundredths; then restart at 0
_PER_DEVICE = 5000  # float32 channels per device
_PER_AREA = 100  # asyncua compares each new node with all others of its folder


class LoadPlant:
    """``channels`` ramps with random steps of 0.01, each published ``hz`` times per second.

    Ten of eleven are OPC UA channels, at most 5,000; the rest is Modbus.
    """

    name = "load"
    spread = True  # evenly, like sensor values

    def __init__(self, channels: int, hz: float, seed: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        self._values = self._random.integers(0, _MAX_HUNDREDTHS, channels)
        self.tick = tick_for(1 / hz) if hz >= 0.1 else 0.01 / hz  # 100 steps are smooth enough
        opcua = opcua_channels(channels)
        self.tags = [_load_tag(i, hz, opcua) for i in range(channels)]

    def step(self, seconds: float) -> None:
        """One step of every ramp; always upwards, because unchanged values are not samples."""
        self._values = (self._values + self._random.integers(1, 4, len(self._values))) % _MAX_HUNDREDTHS

    def numbers(self) -> NDArray[np.float64]:
        """All values."""
        return self._values / 100.0

    def text(self, tag: int) -> str:
        """Raise KeyError: there are no texts."""
        raise KeyError(self.tags[tag].name)

    def write(self, signal: str, value: float) -> None:
        """Ignore writes."""


def opcua_channels(channels: int) -> int:
    """Number of OPC UA channels among so many channels."""
    return min(_OPCUA_CHANNELS, math.ceil(channels * _OPCUA_SHARE))


def _load_tag(i: int, hz: float, opcua: int) -> SimTag:
    name, signal = f"load/area{i // _PER_AREA:03d}/c{i:05d}", str(i)
    if i < opcua:
        return SimTag(name, signal, "analog", "%", opcua="Double", period=1 / hz)
    k = i - opcua
    register = Register(f"load{k // _PER_DEVICE + 1}", "holding", 2 * (k % _PER_DEVICE), "float32")
    return SimTag(name, signal, "analog", "%", register=register, period=1 / hz)
