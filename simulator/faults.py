"""Telling the simulated plant to fail."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ingest.errors import OperationError
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
SECONDS = 10.0  # how long a fault lasts, where nobody says


@dataclass(frozen=True, slots=True)
class _Rule:
    what: str
    on: tuple[str, ...]  # of "opcua", "device", "opcua channel", "modbus channel"
    value: float = 0.0  # where nobody says
    values: tuple[float, float] = (0.0, 0.0)  # least and greatest
    whole: bool = False


RULES: Mapping[Kind, _Rule] = {
    "stop_answering": _Rule("silence on open connections", ("opcua", "device")),
    "close_connections": _Rule("all connections cut, new ones refused", ("opcua", "device")),
    "forget_subscriptions": _Rule("all connections cut once, all subscriptions lost", ("opcua",)),
    "lose_messages": _Rule(
        "nothing published arrives; with 1 it can't be sent again", ("opcua",), 0, (0, 1), whole=True
    ),
    "garbage": _Rule("bytes that are no message, every second", ("opcua", "device")),
    "exception": _Rule("each request gets this exception code", ("device",), 4, (1, 255), whole=True),
    "bad_status": _Rule("values have this status", ("opcua", "opcua channel"), 0x80050000, (0, 2**32 - 1), whole=True),
    "freeze": _Rule("values stay what they are", ("opcua", "device", "opcua channel", "modbus channel")),
    "clock_jump": _Rule("source timestamps are off by this many seconds", ("opcua",), 3600, (-1e9, 1e9)),
}


@dataclass(slots=True)
class Fault:
    """One fault under way."""

    target: str  # "opcua", a device's name, or a channel's name
    fault: Kind
    value: float
    until: float  # monotonic s
    tags: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # indices of the target's tags
    held: dict[int, float | str] = field(default_factory=dict)  # freeze: tag → the value that it keeps

    @property
    def seconds_left(self) -> float:
        """Until it ends."""
        return max(0.0, self.until - time.monotonic())


class Faults:
    """All faults under way on a plant with these tags."""

    def __init__(self, tags: list[SimTag]) -> None:
        self._active: list[Fault] = []
        self._on: dict[str, str] = {}  # target → what it is
        members: dict[str, list[int]] = {}
        for i, tag in enumerate(tags):
            via = "opcua" if tag.opcua is not None else "modbus"
            for target, what in (
                (tag.name, f"{via} channel"),
                ("opcua", "opcua") if tag.register is None else (tag.register.device, "device"),
            ):
                self._on[target] = what
                members.setdefault(target, []).append(i)
        self._members = {target: np.array(indices, np.int64) for target, indices in members.items()}

    def add(self, target: str, fault: Kind, seconds: float = SECONDS, value: float | None = None) -> Fault:
        """Begin a fault. Raises OperationError with what is legal."""
        if fault not in RULES:
            raise OperationError(f"fault: found {fault!r}; legal: {', '.join(KINDS)}")
        rule = RULES[fault]
        if self._on.get(target) not in rule.on:
            raise OperationError(f"target: found {target!r}; legal for {fault}: {self._legal(rule)}")
        if not (isinstance(seconds, int | float) and 0 < seconds <= 86_400):
            raise OperationError(f"seconds: found {seconds!r}; legal: above 0, to 86400")
        lo, hi = rule.values
        chosen = rule.value if value is None or lo == hi else value
        if not (isinstance(chosen, int | float) and math.isfinite(chosen) and lo <= chosen <= hi) or (
            rule.whole and chosen != int(chosen)
        ):
            raise OperationError(
                f"value: found {value!r}; legal for {fault}: a {'whole ' * rule.whole}number, {lo:.0f} to {hi:.0f}"
            )
        begun = Fault(target, fault, float(chosen), time.monotonic() + seconds, self._members[target])
        self._active.append(begun)
        return begun

    def clear(self) -> None:
        """End all."""
        self._active.clear()

    def active(self) -> list[Fault]:
        """All that are under way, in the order in which they began."""
        if self._active:
            now = time.monotonic()
            self._active = [f for f in self._active if now < f.until]
        return self._active

    def get(self, target: str, fault: Kind) -> Fault | None:
        """The fault of this kind on this target, if one is under way."""
        return next((f for f in self.active() if f.target == target and f.fault == fault), None)

    def of_kind(self, fault: Kind) -> list[Fault]:
        """All faults of one kind."""
        return [f for f in self.active() if f.fault == fault]

    def _legal(self, rule: _Rule) -> str:
        named = [t for t, what in self._on.items() if what in rule.on and not what.endswith("channel")]
        channels = [what for what in rule.on if what.endswith("channel")]
        what = "channel" if len(channels) > 1 else "".join(channels).replace("opcua", "OPC UA")
        return ", ".join(named + [f"the name of a {what}".replace("a OPC", "an OPC")] * bool(channels))
