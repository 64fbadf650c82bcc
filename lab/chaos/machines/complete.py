"""Recovery of a redundant pair and its database after a fault: nothing waits, nothing is missing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from core.database import FAILURES
from core.errors import OperationError
from core.timestamps import now_us
from ingest.journal.replay import has_requests
from lab.chaos.await_idle import not_stored, waiting
from lab.chaos.gateway import Gateway
from lab.chaos.machines.faults import Machines
from schema.queries import load
from simulator.compare import compare
from simulator.comparison import Comparison

# Each member asks for the lease a minute after the other one has taken it, if it has something that the database lacks.
_TIMEOUT = 300.0
_POLL_SECONDS = 1.0
_BEHIND_US = 1_000_000


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
        us, started = now_us() + _BEHIND_US, time.monotonic()
        while pending := await self._pending(us):
            if time.monotonic() - started > _TIMEOUT:
                raise OperationError(f"not as before after {_TIMEOUT:.0f} s: {'; '.join(pending)}")
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - started

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
            if path := waiting(member.state, us, load("spool")["select_min_received_at_of_data"]):
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
