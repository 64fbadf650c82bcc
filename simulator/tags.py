"""What the simulated plant shows: one tag, by OPC UA or in a Modbus device's registers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingest.config.model import ChannelKind, RegisterType, WordOrder

OpcuaType: TypeAlias = Literal["Double", "Float", "Int32", "Boolean", "String"]


@dataclass(frozen=True, slots=True)
class Register:
    """Where a value stands in a Modbus device."""

    device: str
    table: Literal["coil", "discrete", "input", "holding"]
    address: int
    type: RegisterType
    word_order: WordOrder = "ABCD"
    bit: int | None = None
    length: int = 1  # registers of a string
    divisor: float = 1.0  # register = value × divisor, rounded


@dataclass(frozen=True, slots=True)
class SimTag:
    """One tag. ``signal`` names the process value it shows; two tags may show the same one."""

    name: str
    signal: str
    kind: ChannelKind = "analog"
    unit: str = ""
    lo: float | None = None
    hi: float | None = None
    opcua: OpcuaType | None = None
    register: Register | None = None
    period: float = 1.0  # s between published values (OPC UA)
    description: str = ""
    alarms: tuple[tuple[str, str], ...] = ()  # columns alarm_… of the tag list, and their cells

    @property
    def writable(self) -> bool:
        """Whether an operator may write it: a set point."""
        return self.signal.endswith("_sp")

    def accepts(self, value: float) -> bool:
        """Whether an operator's ``value`` is within the range."""
        return math.isfinite(value) and (self.lo is None or value >= self.lo) and (self.hi is None or value <= self.hi)


TICK = 0.1  # s, the longest time between two steps of a plant


def tick_for(period: float) -> float:
    """The longest tick up to :data:`TICK` of which ``period`` is a whole number."""
    return period / math.ceil(period / TICK - 1e-6)


class Plant(Protocol):
    """A thing whose values are published."""

    name: str
    tags: list[SimTag]
    tick: float  # s between steps, as the clock on the wall goes
    spread: bool  # publish evenly over each period instead of all tags of a period at one instant

    def step(self, seconds: float) -> None:
        """Move on by ``seconds`` of plant time."""

    def numbers(self) -> NDArray[np.float64]:
        """The present value of every tag (n,), NaN for texts."""

    def text(self, tag: int) -> str:
        """The present value of a text tag."""

    def write(self, signal: str, value: float) -> None:
        """An operator's write to a set point."""
