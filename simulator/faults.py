"""Fault injection."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from core.errors import OperationError
from simulator.tags import SimTag

Kind: TypeAlias = Literal[
    "stop_answering",
    "close_connections",
    "forget_subscriptions",
    "lose_messages",
    "garbage",
    "exception",
    "bad_status",
    "freeze",
    "clock_jump",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
SECONDS = 10.0  # default duration


@dataclass(frozen=True, slots=True)
class _Rule:
    what: str
    targets: tuple[str, ...]  # "opcua", "device", "opcua channel", "modbus channel"
    value: float = 0.0  # default
    values: tuple[float, float] = (0.0, 0.0)  # minimum and maximum
    integer: bool = False


RULES: Mapping[Kind, _Rule] = {
    "stop_answering": _Rule("no responses on open connections", ("opcua", "device")),
    "close_connections": _Rule("connections closed, new ones refused", ("opcua", "device")),
    "forget_subscriptions": _Rule("connections closed once, all subscriptions lost", ("opcua",)),
    "lose_messages": _Rule(
        "published messages are lost; with --value 1 they cannot be republished", ("opcua",), 0, (0, 1), integer=True
    ),
    "garbage": _Rule("invalid bytes, every second", ("opcua", "device")),
    "exception": _Rule("every request is answered with this exception code", ("device",), 4, (1, 255), integer=True),
    "bad_status": _Rule(
        "values have this status", ("opcua", "opcua channel"), 0x80050000, (0, 2**32 - 1), integer=True
    ),
    "freeze": _Rule("values are frozen", ("opcua", "device", "opcua channel", "modbus channel")),
    "clock_jump": _Rule("source timestamps are off by this many seconds", ("opcua",), 3600, (-1e9, 1e9)),
}


@dataclass(slots=True)
class Fault:
    """One active fault."""

    target: str  # "opcua", a device's name, or a channel's name
    fault: Kind
    value: float
    until: float  # monotonic s
    tags: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # indices of the target's tags
    frozen: dict[int, float | str] = field(default_factory=dict)  # freeze: tag → frozen value

    @property
    def seconds_left(self) -> float:
        """Seconds until it ends."""
        return max(0.0, self.until - time.monotonic())


class Faults:
    """All active faults of a plant with these tags."""

    def __init__(self, tags: list[SimTag]) -> None:
        self._active: list[Fault] = []
        self._kind_of_target: dict[str, str] = {}  # target → kind of target
        members: dict[str, list[int]] = {}
        for i, tag in enumerate(tags):
            via = "opcua" if tag.opcua is not None else "modbus"
            for target, what in (
                (tag.name, f"{via} channel"),
                ("opcua", "opcua") if tag.register is None else (tag.register.device, "device"),
            ):
                self._kind_of_target[target] = what
                members.setdefault(target, []).append(i)
        self._members = {target: np.array(indices, np.int64) for target, indices in members.items()}

    def add(self, target: str, fault: Kind, seconds: float = SECONDS, value: float | None = None) -> Fault:
        """Start a fault. Raises OperationError with the valid choices."""
        if fault not in RULES:
            raise OperationError(f"fault: found {fault!r}; legal: {', '.join(KINDS)}")
        rule = RULES[fault]
        if self._kind_of_target.get(target) not in rule.targets:
            raise OperationError(f"target: found {target!r}; legal for {fault}: {self._legal(rule)}")
        if not (isinstance(seconds, int | float) and 0 < seconds <= 86_400):
            raise OperationError(f"seconds: found {seconds!r}; legal: above 0, to 86400")
        lo, hi = rule.values
        chosen = rule.value if value is None or lo == hi else value
        if not (isinstance(chosen, int | float) and math.isfinite(chosen) and lo <= chosen <= hi) or (
            rule.integer and chosen != int(chosen)
        ):
            raise OperationError(
                f"value: found {value!r}; legal for {fault}: a {'whole ' * rule.integer}number, {lo:.0f} to {hi:.0f}"
            )
        begun = Fault(target, fault, float(chosen), time.monotonic() + seconds, self._members[target])
        self._active.append(begun)
        return begun

    def clear(self) -> None:
        """End all faults."""
        self._active.clear()

    def active(self) -> list[Fault]:
        """All active faults in order of their start."""
        if self._active:
            now = time.monotonic()
            self._active = [f for f in self._active if now < f.until]
        return self._active

    def get(self, target: str, fault: Kind) -> Fault | None:
        """The active fault of this kind on this target, if any."""
        return next((f for f in self.active() if f.target == target and f.fault == fault), None)

    def of_kind(self, fault: Kind) -> list[Fault]:
        """All active faults of one kind."""
        return [f for f in self.active() if f.fault == fault]

    def _legal(self, rule: _Rule) -> str:
        named = [t for t, what in self._kind_of_target.items() if what in rule.targets and not what.endswith("channel")]
        channels = [what for what in rule.targets if what.endswith("channel")]
        what = "channel" if len(channels) > 1 else "".join(channels).replace("opcua", "OPC UA")
        return ", ".join(named + [f"the name of a {what}".replace("a OPC", "an OPC")] * bool(channels))
