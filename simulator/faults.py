"""Telling the simulated plant to fail."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["stop_answering", "close_connections", "exception", "bad_status", "freeze", "clock_jump"]
KINDS: tuple[Kind, ...] = (
    "stop_answering",  # a device or the OPC UA server stays silent, connections stay open
    "close_connections",  # and refuses new ones until it is over
    "exception",  # a device answers with this exception code
    "bad_status",  # OPC UA: values have this status; a channel's name, or opcua for all
    "freeze",  # a channel keeps its value
    "clock_jump",  # OPC UA source timestamps are off by this many seconds
)


@dataclass(slots=True)
class Fault:
    """One fault under way."""

    target: str  # "opcua", a device's name, or a channel's name
    fault: Kind
    value: float
    until: float  # monotonic s


@dataclass(slots=True)
class Faults:
    """All faults under way."""

    active: list[Fault] = field(default_factory=list)

    def add(self, target: str, fault: Kind, seconds: float, value: float) -> None:
        """Begin a fault."""
        self.active.append(Fault(target, fault, value, time.monotonic() + seconds))

    def clear(self) -> None:
        """End all."""
        self.active.clear()

    def get(self, target: str, fault: Kind) -> Fault | None:
        """The fault of this kind on this target, if one is under way."""
        now = time.monotonic()
        return next((f for f in self.active if f.target == target and f.fault == fault and now < f.until), None)

    def of_kind(self, fault: Kind) -> list[Fault]:
        """All faults of one kind."""
        now = time.monotonic()
        self.active = [f for f in self.active if now < f.until]
        return [f for f in self.active if f.fault == fault]
