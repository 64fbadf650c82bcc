"""The faults of the machines of a redundant pair and of its database, and how each is done and undone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from random import Random

from lab.chaos.inject import interrupted
from lab.chaos.machines.database import DatabaseServers
from lab.chaos.machines.member import Member
from lab.chaos.schedule import Fault, FaultAction, Step
from simulator.relay import Relay

_FLAP_SECONDS = (0.3, 1.5)  # of a network that comes and goes


@dataclass(frozen=True, slots=True)
class Machines:
    """Targets of the faults."""

    members: Sequence[Member]
    database: DatabaseServers
    links: Mapping[str, Sequence[Relay]]  # by what they connect


def _of_members() -> list[Fault]:
    faults = []
    for n in "12":
        faults += [
            Fault(f"member {n} killed", "member", "kill", n, (1.0, 20.0)),
            Fault(f"disk of member {n} lost", "member", "lose_disk", n, (1.0, 15.0)),
            Fault(f"member {n} suspended", "member", "suspend", n, (2.0, 15.0)),
            Fault(f"clock of member {n} set", "member", "set_clock", n, (3.0, 15.0), (-1800.0, 1800.0)),
        ]
    return faults


def _of_links() -> list[Fault]:
    names = {f"{what}-{n}": f"{text} and member {n}" for n in "12" for what, text in _LINKS.items()}
    names["replication"] = "primary and standby"
    return [
        fault
        for link, between in names.items()
        for fault in (
            Fault(f"network between {between} cut", "link", "cut", link, (1.0, 15.0)),
            Fault(f"network between {between} black-holed", "link", "silence", link, (3.0, 20.0)),
        )
    ]


_LINKS = {"plant": "plant", "database": "database", "push": "gateway"}
FAULTS: tuple[Fault, ...] = (
    *_of_members(),
    *_of_links(),
    Fault("primary killed and restarted", "server", "restart", "primary", (1.0, 10.0)),
    Fault("primary suspended", "server", "suspend", "primary", (2.0, 12.0)),
    Fault("standby killed and restarted", "server", "restart", "standby", (1.0, 10.0)),
    # values: seconds that the standby lags; of clocks: that they differ by
    Fault(
        "primary killed, standby promoted, old primary back", "server", "fail_over", "rewound", (0.0, 8.0), (0.0, 5.0)
    ),
    Fault("disk of the primary lost, standby promoted", "server", "fail_over", "cloned", (0.0, 8.0), (0.0, 5.0)),
    Fault("fail-over while the network flaps", "server", "fail_over", "flapping", (2.0, 8.0), (0.0, 5.0)),
    Fault("database restored to an earlier moment", "server", "restore", "primary", (10.0, 40.0)),
)


def single_steps(seed: int) -> list[Step]:
    """Each fault once, those of the domains by turns; how many of them are done depends on the time."""
    chance = Random(seed)
    by_domain: dict[str, list[Fault]] = {}
    for fault in FAULTS:
        by_domain.setdefault(fault.domain, []).append(fault)
    turns = zip_longest(*(chance.sample(faults, len(faults)) for faults in by_domain.values()))
    return [
        Step(0.0, fault, chance.uniform(*fault.seconds), chance.uniform(*fault.values))
        for fault in _each_kind_first([fault for fault in chain.from_iterable(turns) if fault is not None])
    ]


def _each_kind_first(faults: Sequence[Fault]) -> list[Fault]:
    """Each kind with one of both members, then with the other one."""
    first = {(fault.act, fault.on.rstrip("-12")): fault for fault in reversed(faults)}.values()
    return sorted(faults, key=lambda fault: fault not in first)


async def inject(step: Step, machines: Machines) -> None:
    """Do a step, and undo it when its time is over or on cancellation."""
    await _ACTIONS[step.fault.domain, step.fault.act](step, machines)


async def _suspend_member(step: Step, machines: Machines) -> None:
    async with machines.members[int(step.fault.on) - 1].suspended():
        await asyncio.sleep(step.seconds)


async def _set_clock(step: Step, machines: Machines) -> None:
    clock = machines.members[int(step.fault.on) - 1].clock
    clock.set(step.value)
    try:
        await asyncio.sleep(step.seconds)
    finally:
        clock.set(0.0)


async def _end_member(step: Step, machines: Machines) -> None:
    number = int(step.fault.on)
    member, other = machines.members[number - 1], machines.members[2 - number]
    await member.kill()
    await asyncio.sleep(step.seconds)
    if step.fault.act == "lose_disk":
        await asyncio.to_thread(member.lose_disk, other)
    await member.up()


async def _interrupt(step: Step, machines: Machines) -> None:
    async with interrupted(machines.links[step.fault.on], step.fault.act):
        await asyncio.sleep(step.seconds)


async def _restart(step: Step, machines: Machines) -> None:
    node = machines.database.primary if step.fault.on == "primary" else machines.database.standby
    await asyncio.to_thread(node.kill)
    await asyncio.sleep(step.seconds)
    await asyncio.to_thread(node.start)


async def _suspend_server(step: Step, machines: Machines) -> None:
    async with machines.database.suspended():
        await asyncio.sleep(step.seconds)


async def _fail_over(step: Step, machines: Machines) -> None:
    flapping = asyncio.create_task(_flap(machines)) if step.fault.on == "flapping" else None
    try:
        await machines.database.fail_over(step.value, step.seconds, lose_disk=step.fault.on == "cloned")
    finally:
        if flapping is not None:
            flapping.cancel()
            await asyncio.wait((flapping,))


async def _flap(machines: Machines) -> None:
    """The ways of both members to the database come and go, each in its own time."""
    chance = Random(1)

    async def flap(relay: Relay) -> None:
        try:
            while True:
                relay.refuse()
                await asyncio.sleep(chance.uniform(*_FLAP_SECONDS))
                await relay.accept()
                await asyncio.sleep(chance.uniform(*_FLAP_SECONDS))
        finally:
            await relay.restore()

    async with asyncio.TaskGroup() as group:
        for name in ("database-1", "database-2"):
            for relay in machines.links[name]:
                group.create_task(flap(relay))


async def _restore(step: Step, machines: Machines) -> None:
    await machines.database.restore(step.seconds)


_ACTIONS: Mapping[tuple[str, FaultAction], Callable[[Step, Machines], Awaitable[None]]] = {
    ("member", "kill"): _end_member,
    ("member", "lose_disk"): _end_member,
    ("member", "suspend"): _suspend_member,
    ("member", "set_clock"): _set_clock,
    ("link", "cut"): _interrupt,
    ("link", "silence"): _interrupt,
    ("server", "restart"): _restart,
    ("server", "suspend"): _suspend_server,
    ("server", "fail_over"): _fail_over,
    ("server", "restore"): _restore,
}
