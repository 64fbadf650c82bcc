"""The machines of a redundant pair fail: first one at a time, then also several at once."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from core.config import processes, token_file
from core.database import FAILURES
from core.errors import OperationError
from core.paths import State
from core.timestamps import now_us
from ingest.journal.replay import has_requests
from ingest.spool.waiting import settled, waiting
from lab.chaos.appliance_trial import LONG_SECONDS, ChaosOptions, cancel, gaps_and_quarantine
from lab.chaos.gateway import SOURCE, TEMPLATE, Gateway
from lab.chaos.machines.database import DatabaseServers
from lab.chaos.machines.faults import FAULTS, Machines, inject, single_steps
from lab.chaos.machines.member import PLANT, Member, WallClock
from lab.chaos.plants import OPCUA, Ports, Simulated
from lab.chaos.report import Report, TrialOutcome
from lab.chaos.schedule import play, schedule
from lab.chaos.settling import closed, not_stored, rollups
from ops import ports
from schema.queries import load
from simulator.compare import compare
from simulator.compare_samples import Comparison
from simulator.export import export
from simulator.plants import LoadPlant
from simulator.relay import Relay, running_relays

_HOST = "127.0.0.1"
_ADDRESSES = {"plant-1": "127.0.1.1", "plant-2": "127.0.1.2"}  # all of 127.0.0.0/8 is this machine
_MEMBER_PORTS = len(processes.PORTS) + 5  # health pages, viewer, push, and relays to push and to both servers
_SINGLE_SHARE = 0.5  # of the time
_BEFORE_US = 30_000_000  # before a fault: what a member had not written yet, or a standby lacks
_WARM_UP_US = 3_000_000  # every channel has had its first sample
_CONFIGURATION = """\
[plant]
name = "machines"
[redundancy]
member = {member}
[health]
port = {health}
[viewer]
port = {viewer}
[push]
port = {push}
[writer]
time_out = "10s"
[[source]]
name = "load-opcua"
kind = "opcua"
address = "opc.tcp://{plant}:{opcua}/plantlog/simulator"
insecure = true
publishing_interval = "500ms"
tags = "{tags}"
{opcua_options}
[[source]]
name = "{source}"
kind = "push"
token_file = "gateway.token"
channel = "{template}"
unknown = "create"
"""
# Each member asks for the lease a minute after the other one has taken it, if it has something that the database lacks.
_TIMEOUT = 300.0
_POLL_SECONDS = 1.0
_BEHIND_US = 1_000_000


async def run(options: ChaosOptions, progress: Callable[[str], None]) -> Report:
    """Bring everything up, let it fail, compare, bring it down. Raises OperationError where it hangs."""
    if os.geteuid() != 0:
        raise OperationError("--machines requires root: each member has an /etc/hosts of its own")
    folder = options.folder
    first = ports.free_ports(8 + 2 * _MEMBER_PORTS)
    plant_ports = Ports(first, first + 1, first + 2, first + 3, first + 4, viewer=0, health=0)
    plant = Simulated(folder / "plant", plant_ports, options.channels, options.hz)
    token = secrets.token_urlsafe(24)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(plant.kill)
        await plant.start()
        export(LoadPlant(options.channels, options.hz), folder / "config", PLANT, first, first + 2, False, 0)
        database = DatabaseServers(folder / "database")
        stack.push_async_callback(database.stop)
        replication = await database.start((first + 5, first + 6))
        progress("plant and database are running; starting the members")
        links: dict[str, list[Relay]] = {"replication": list(replication.values())}
        members = []
        for number in (1, 2):
            member_ports = range(first + 8 + (number - 1) * _MEMBER_PORTS, first + 8 + number * _MEMBER_PORTS)
            *_, push, push_relay, to_first, to_second = member_ports
            links[f"database-{number}"] = [
                await database.way(node, port) for node, port in zip(database.nodes, (to_first, to_second), strict=True)
            ]
            requested = {f"plant-{number}": (first, first + 1), f"push-{number}": (push_relay, push)}
            for name, relay in (await stack.enter_async_context(running_relays(requested, _ADDRESSES))).items():
                links[name] = [relay]
            login = database.primary.dsn.rpartition("@")[0]
            members.append(
                Member(
                    number,
                    State(folder / f"member-{number}"),
                    _configure(folder / f"config-{number}", number, member_ports, first, folder / "config", token),
                    f"{login}@{_HOST}:{to_first},{_HOST}:{to_second}/plantlog",
                    _ADDRESSES[f"plant-{number}"],
                    WallClock(folder / f"config-{number}"),
                )
            )
        machines = Machines(members, database, links)
        for member, other in zip(members, (None, members[0]), strict=True):
            stack.push_async_callback(member.kill)
            if other is not None:
                member.take_identity(other)
            await member.up()
        gateway = Gateway([f"http://{_HOST}:{_push_relay(first, number)}" for number in (1, 2)], token, plant.truth)
        pushing = asyncio.create_task(gateway.run())
        stack.push_async_callback(cancel, pushing)
        watch = Watch(machines, gateway, plant.truth)
        await watch.complete()
        start = now_us() + _WARM_UP_US
        outcomes = await _fail_singly(options, machines, watch, progress)
        progress("now also several at once")
        rest = options.seconds * (1 - _SINGLE_SHARE)
        steps = schedule(options.seed, rest, FAULTS)
        await play(steps, rest, partial(inject, machines=machines), progress)
        for relay in (relay for of_link in links.values() for relay in of_link):
            await relay.restore()
        progress("faults are over; waiting until pending data are stored")
        end = now_us()
        during = await closed(watch.reader)
        compared, settled = await watch.compared(start, recorded=True)
        gaps, quarantined = await gaps_and_quarantine(watch.reader)
        progress("waiting for the rollups")
        rollup_result = await rollups(watch.reader, during, end, due=options.seconds >= LONG_SECONDS)
        return Report(
            options.seed,
            options.seconds,
            options.server,
            compared,
            [*(outcome.step for outcome in outcomes), *steps],
            gaps,
            quarantined,
            settled,
            gateway.refused,
            rollups=rollup_result,
            outcomes=outcomes,
        )


async def _fail_singly(
    options: ChaosOptions, machines: Machines, watch: Watch, progress: Callable[[str], None]
) -> list[TrialOutcome]:
    """Inject one fault after the other, each when all is as before."""
    began, outcomes = time.monotonic(), list[TrialOutcome]()
    for step in single_steps(options.seed):
        if time.monotonic() - began > options.seconds * _SINGLE_SHARE:
            break
        progress(f"{time.monotonic() - began:7.1f} s  {step}")
        from_us = now_us()
        await inject(step, machines)
        compared, seconds = await watch.compared(from_us - _BEFORE_US, recorded=False)
        outcomes.append(TrialOutcome(step, seconds, compared["all"].missing, await watch.gaps_since(from_us)))
        progress(f"{time.monotonic() - began:7.1f} s    {outcomes[-1]}")
    return outcomes


def _configure(folder: Path, number: int, member_ports: range, opcua: int, plant: Path, token: str) -> Path:
    """Write a member's configuration."""
    folder.mkdir()
    token_file.write(folder / "gateway.token", token)
    path = folder / "plant.toml"
    path.write_text(
        _CONFIGURATION.format(
            member=number,
            health=member_ports[0],
            viewer=member_ports[-5],
            push=member_ports[-4],
            plant=PLANT,
            opcua=opcua,
            tags=plant / "tags" / "opcua.csv",
            opcua_options=OPCUA,
            source=SOURCE,
            template=TEMPLATE,
        )
    )
    return path


def _push_relay(first: int, number: int) -> int:
    return first + 8 + number * _MEMBER_PORTS - 3


class Watch:
    """Waits until all is as before."""

    def __init__(self, machines: Machines, gateway: Gateway, truth: Path) -> None:
        self._machines = machines
        self._gateway = gateway
        self._truth = truth

    @property
    def reader(self) -> str:
        """The DSN of a reader at the primary, not through a relay."""
        return self._machines.database.primary.at_address(self._machines.members[0].state.dsn("reader"))

    async def complete(self) -> float:
        """Wait until all that was published by now is stored, and both members receive everything.

        The seconds that this took. Raises OperationError where it takes too long: then something hangs.
        """
        seconds, left = await settled(partial(self._pending, now_us() + _BEHIND_US), _TIMEOUT)
        if left:
            raise OperationError(f"not as before after {_TIMEOUT:.0f} s: {'; '.join(left)}")
        return seconds

    async def compared(self, from_us: int, *, recorded: bool) -> tuple[dict[str, Comparison], float]:
        """Published samples that the table has, when nothing is missing, or nothing comes any more.

        ``recorded``: a gap does for what is missing. The second: the seconds that this took.
        """
        to_us, started = now_us(), time.monotonic()
        while True:
            await self.complete()
            reading = compare(self._truth, self.reader, from_us, to_us)
            compared = await asyncio.to_thread(asyncio.run, reading)  # the relays pass bytes meanwhile
            total = compared["all"]
            missing = total.missing_silent if recorded else total.missing
            if not missing or time.monotonic() - started > _TIMEOUT:
                return compared, time.monotonic() - started
            await asyncio.sleep(_POLL_SECONDS)

    async def gaps_since(self, us: int) -> int:
        """Gaps of the pair that begin at or after that time."""
        number = await self._machines.database.fetchval(load("chaos")["count_gaps_since"], us)
        assert isinstance(number, int)
        return number

    async def _pending(self, us: int) -> list[str]:
        """Describe what is still waited for."""
        if self._gateway.oldest <= us:
            return [f"the gateway has {self._gateway.waiting} batches that were not accepted"]
        for member in self._machines.members:
            if path := waiting(member.state.spool, us, load("spool")["select_min_received_at_of_data"]):
                return path
            if has_requests(member.state.spool):
                return [f"member {member.number} writes its journal again"]
        try:
            members = await self._machines.database.fetch(load("chaos")["select_incomplete_members"])
        except FAILURES as error:
            return [f"the database: {error}"]
        if members:
            return [f"member {row['member']} is away, or missed something just now" for row in members]
        return await not_stored(self.reader, us)
