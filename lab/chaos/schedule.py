"""Schedule of faults: random, but determined by its seed; and its play.

Faults of one domain come one after the other, each once before any comes again. The domains run beside each other, so
that a database may be away while a collector is killed and the plant's network is cut. The writer is ended early in
each round, then lives for long enough to close minutes of the rollups under the other faults.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

FaultDomain: TypeAlias = Literal["plant", "process", "database", "disk", "machine", "member", "link", "server"]
FaultAction: TypeAlias = (
    Literal["kill", "suspend", "restart", "cut", "silence", "garble", "plant", "lock", "terminate", "fill", "busy"]
    | Literal["lose_disk", "fail_over", "restore", "set_clock"]
)

_FIRST = 2.0  # s before the first fault
# s between two faults of a domain; a disk that is always full would let little be tried, and so a machine always busy
_PAUSE: dict[FaultDomain, tuple[float, float]] = {
    "plant": (2.0, 8.0),
    "process": (2.0, 8.0),
    "database": (2.0, 8.0),
    "disk": (10.0, 60.0),
    "machine": (5.0, 60.0),
    # of a redundant pair and its database: a member that comes back, or a new standby, takes a while
    "member": (20.0, 40.0),
    "link": (3.0, 15.0),
    "server": (60.0, 120.0),
}
_ROUND = 240.0  # s
_ENDING = 90.0  # s of a round, from its begin, in which the writer may be ended
_SEED_STEP = 2**31
_SOAK_SECONDS = 60.0  # from a fault of a soak to the next


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail. ``seconds``: least and longest; 0 for what happens in a moment."""

    name: str
    domain: FaultDomain
    act: FaultAction
    on: str  # a process, a wire, or what the plant is told
    seconds: tuple[float, float] = (0.0, 0.0)
    values: tuple[float, float] = (0.0, 0.0)

    @property
    def ends_writer(self) -> bool:
        """Return whether it forgets the minutes that it has open."""
        return self.on == "writer" and self.act in ("kill", "restart")


@dataclass(frozen=True, slots=True)
class Step:
    """A fault of the schedule."""

    at: float  # s from the start
    fault: Fault
    seconds: float
    value: float

    def __str__(self) -> str:
        value = f" ({self.value:+.0f})" if self.value else ""
        length = f", {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.fault.name}{value}{length}"


FAULTS: tuple[Fault, ...] = (
    Fault("OPC UA connection cut, refused for a while", "plant", "cut", "opcua", (0.0, 8.0)),
    Fault("OPC UA network black-holed", "plant", "silence", "opcua", (3.0, 15.0)),
    Fault("garbage on the OPC UA wire", "plant", "garble", "opcua"),
    Fault("OPC UA server killed and restarted", "plant", "restart", "plant", (0.5, 6.0)),
    Fault("OPC UA server suspended", "plant", "suspend", "plant", (2.0, 10.0)),
    Fault("OPC UA subscriptions forgotten", "plant", "plant", "forget_subscriptions", (1.0, 1.0)),
    Fault("OPC UA notifications lost, to be republished", "plant", "plant", "lose_messages", (1.0, 4.0), (0, 0)),
    Fault("OPC UA notifications lost for good", "plant", "plant", "lose_messages", (1.0, 4.0), (1, 1)),
    Fault("OPC UA source clock jumps", "plant", "plant", "clock_jump", (3.0, 8.0), (-1800.0, 1800.0)),
    Fault("OPC UA values with a Bad status", "plant", "plant", "bad_status", (2.0, 6.0)),
    Fault("Modbus connection cut, refused for a while", "plant", "cut", "modbus", (0.0, 8.0)),
    Fault("Modbus network black-holed", "plant", "silence", "modbus", (2.0, 10.0)),
    Fault("garbage on the Modbus wire", "plant", "garble", "modbus"),
    Fault("Modbus exceptions", "plant", "plant", "exception", (2.0, 6.0), (4, 4)),
    Fault("collector-opcua killed", "process", "kill", "collector-opcua"),
    Fault("collector-modbus killed", "process", "kill", "collector-modbus"),
    Fault("collector-push killed", "process", "kill", "collector-push"),
    Fault("writer killed", "process", "kill", "writer"),
    Fault("collector-opcua suspended", "process", "suspend", "collector-opcua", (2.0, 10.0)),
    Fault("collector-modbus suspended", "process", "suspend", "collector-modbus", (2.0, 10.0)),
    Fault("collector-push suspended", "process", "suspend", "collector-push", (2.0, 8.0)),
    Fault("writer suspended", "process", "suspend", "writer", (2.0, 12.0)),
    Fault("collector-opcua stopped and started", "process", "restart", "collector-opcua", (0.0, 4.0)),
    Fault("collector-modbus stopped and started", "process", "restart", "collector-modbus", (0.0, 4.0)),
    Fault("writer stopped and started", "process", "restart", "writer", (0.0, 4.0)),
    Fault("gateway's connections cut, refused for a while", "process", "cut", "push", (0.0, 5.0)),
    Fault("gateway's network black-holed", "process", "silence", "push", (2.0, 8.0)),
    Fault("database killed", "database", "kill", "postgres"),
    Fault("database stopped and started", "database", "restart", "postgres", (0.0, 8.0)),
    Fault("database suspended", "database", "suspend", "postgres", (2.0, 12.0)),
    Fault("database connections cut, refused for a while", "database", "cut", "database", (0.0, 8.0)),
    Fault("database network black-holed", "database", "silence", "database", (3.0, 15.0)),
    Fault("garbage on the database wire", "database", "garble", "database"),
    Fault("samples table locked", "database", "lock", "postgres", (1.0, 8.0)),
    Fault("database sessions ended", "database", "terminate", "postgres"),
    Fault("spool's disk full", "disk", "fill", "spool", (3.0, 12.0)),
    # A domain of its own, and the last: what the seeds of before do stays as it is.
    Fault("processors busy with others", "machine", "busy", "processors", (5.0, 20.0), (2, 9)),
)


def schedule(seed: int, seconds: float, faults: Collection[Fault]) -> list[Step]:
    """The steps of ``seconds`` seconds in the order of their times; all are over by the end."""
    steps = [
        step
        for number, domain in enumerate(dict.fromkeys(fault.domain for fault in faults))
        for step in _schedule_domain(
            random.Random(seed * _SEED_STEP + number), seconds, [fault for fault in faults if fault.domain == domain]
        )
    ]
    return sorted(steps, key=lambda step: step.at)


def soak_schedule(seed: int, seconds: float, faults: Collection[Fault]) -> list[Step]:
    """A fault a minute, each once before any comes again; all are over by ``seconds``."""
    chance = random.Random(seed * _SEED_STEP)
    steps, remaining = list[Step](), list[Fault]()
    for minute in range(int(seconds / _SOAK_SECONDS)):
        remaining = remaining or chance.sample(list(faults), len(faults))
        fault = remaining.pop()
        lasts = chance.uniform(*fault.seconds)
        at = chance.uniform(_FIRST, _SOAK_SECONDS - lasts)
        steps.append(Step(minute * _SOAK_SECONDS + at, fault, lasts, chance.uniform(*fault.values)))
    return steps


def _schedule_domain(chance: random.Random, seconds: float, faults: list[Fault]) -> Iterator[Step]:
    at, remaining = _FIRST, list[Fault]()
    while True:
        if not remaining:
            remaining = chance.sample(faults, len(faults))
        fault = remaining.pop()
        step = Step(
            at + chance.uniform(*_PAUSE[fault.domain]),
            fault,
            chance.uniform(*fault.seconds),
            chance.uniform(*fault.values),
        )
        at = step.at + step.seconds
        if at > seconds:
            return
        if not (step.fault.ends_writer and step.at % _ROUND > _ENDING):
            yield step


async def play(
    steps: Sequence[Step], seconds: float, inject: Callable[[Step], Awaitable[None]], progress: Callable[[str], None]
) -> None:
    """Do each step when it is due, those of a domain one after the other.

    Returns when all steps are over, and after ``seconds`` at the earliest.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def inject_when_due(step: Step) -> None:
        await asyncio.sleep(max(0.0, started + step.at - loop.time()))
        async with domains[step.fault.domain]:  # what took longer than planned holds up only its own domain
            progress(f"{loop.time() - started:7.1f} s  {step}")
            await inject(step)

    domains = {step.fault.domain: asyncio.Lock() for step in steps}
    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(inject_when_due(step))
        group.create_task(asyncio.sleep(seconds))
