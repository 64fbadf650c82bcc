"""What the simulated plant shows: one tag, by OPC UA or in a Modbus device's registers."""

from __future__ import annotations

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


class Plant(Protocol):
    """A thing whose values are published."""

    name: str
    tags: list[SimTag]

    def step(self, seconds: float) -> None:
        """Move on by ``seconds`` of plant time."""

    def numbers(self) -> NDArray[np.float64]:
        """The present value of every tag (n,), NaN for texts."""

    def text(self, tag: int) -> str:
        """The present value of a text tag."""

    def write(self, signal: str, value: float) -> None:
        """An operator's write to a set point."""
