"""Tags of the simulated plant: OPC UA nodes or Modbus registers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.config.sources import ChannelKind, RegisterType, WordOrder

OpcuaType: TypeAlias = Literal["Double", "Float", "Int32", "Boolean", "String"]


@dataclass(frozen=True, slots=True)
class Register:
    """The address of a value in a Modbus device."""

    device: str
    table: Literal["coil", "discrete", "input", "holding"]
    address: int
    type: RegisterType
    word_order: WordOrder = "ABCD"
    bit: int | None = None
    length: int = 1  # number of registers of a string
    divisor: float = 1.0  # register = value × divisor, rounded


@dataclass(frozen=True, slots=True)
class SimTag:
    """One tag. ``signal``: name of the process value; several tags may have the same one."""

    name: str
    signal: str
    kind: ChannelKind = "analog"
    unit: str = ""
    lo: float | None = None
    hi: float | None = None
    opcua: OpcuaType | None = None
    register: Register | None = None
    period: float = 1.0  # s, publishing period (OPC UA)
    description: str = ""
    alarms: tuple[tuple[str, str], ...] = ()  # alarm_… columns of the tag list, and their values

    @property
    def writable(self) -> bool:
        """Return whether it is a set point, writable by operators."""
        return self.signal.endswith("_sp")

    def accepts(self, value: float) -> bool:
        """Return whether an operator's ``value`` is within the range."""
        return math.isfinite(value) and (self.lo is None or value >= self.lo) and (self.hi is None or value <= self.hi)


def node_identifier(tag: SimTag) -> str:
    """The string identifier of a tag's node: its name in dotted form."""
    return tag.name.replace("/", ".")


TICK = 0.1  # s, maximum time between two steps of a plant


def tick_for(period: float) -> float:
    """The longest tick up to :data:`TICK` that divides ``period``."""
    return period / math.ceil(period / TICK - 1e-6)


class SimPlant(Protocol):
    """A source of published values."""

    name: str
    tags: list[SimTag]
    tick: float  # s between steps, in wall-clock time
    spread: bool  # publish tags spread over each period instead of all at the same time

    def step(self, seconds: float) -> None:
        """Advance by ``seconds`` of plant time."""

    def numbers(self) -> NDArray[np.float64]:
        """The current value of every tag (n,), NaN for texts."""

    def text(self, tag: int) -> str:
        """The current value of a text tag."""

    def write(self, signal: str, value: float) -> None:
        """An operator's write to a set point."""
