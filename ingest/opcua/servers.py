"""Choice of one of a source's redundant servers (non-transparent server redundancy, OPC 10000-4, 6.6.2.4).

One server at a time publishes. The others are connected to without subscriptions, to know their ServiceLevel.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic

from asyncua import Client, ua

from core.backoff import Backoff
from core.config.sources import OpcuaSource
from core.errors import SourceError
from core.opcua.service import read_value
from core.opcua.session import close, connect, refuses_connections
from core.timeouts import within
from ingest.status import SourceStatus

_MAINTENANCE, _NO_DATA, _DEGRADED, _HEALTHY = 0, 1, 2, 200  # first level of each sub-range (Table 103)
_SUB_RANGES = (_MAINTENANCE, _NO_DATA, _DEGRADED, _HEALTHY)
_SETS = (1, 2, 3, 5)  # RedundancySupport of Cold, Warm, Hot and HotAndMirrored: each server has an address of its own
_READ_SECONDS = 1.0  # s, between reads of a ServiceLevel
_MAINTENANCE_SECONDS = 60.0  # s, between connections to a server in maintenance, which wants none
_STEADY_READS = 5  # reads in a row for which another server must be better, unless this one has no data
_FAILED = (SourceError, ua.UaError, OSError, TimeoutError)


class FailOverError(SourceError):
    """Another server has a better ServiceLevel."""


class Servers:
    """The servers of one source, and what is known of each. A source with one address has one."""

    def __init__(self, source: OpcuaSource, pki: Path, status: SourceStatus, in_use: str) -> None:
        """``in_use``: the address of the server that has the subscriptions, empty if there is none."""
        self._addresses = source.servers
        self._pki = pki
        self._status = status
        self.in_use = in_use
        self._levels: dict[str, int | None] = {}  # None: it can't be connected to
        self._reasons: dict[str, str] = {}  # why
        self._tried: set[str] = set()  # in this round of connection attempts

    @property
    def are_redundant(self) -> bool:
        """Return whether there are several."""
        return len(self._addresses) > 1

    def next(self) -> str:
        """The address for the next attempt: each once in a round, the best first."""
        if self.is_round_over:
            self._tried.clear()
        address = max((a for a in self._addresses if a not in self._tried), key=self._order)
        self._tried.add(address)
        return address

    @property
    def is_round_over(self) -> bool:
        """Return whether all were tried: it is time to wait."""
        return self._tried.issuperset(self._addresses)

    async def all_refuse(self, source: OpcuaSource) -> bool:
        """Return whether nobody listens at any address."""
        return all(await asyncio.gather(*(refuses_connections(source.at(address)) for address in self._addresses)))

    def _order(self, address: str) -> tuple[int, bool, int, int]:
        """The greatest is the best: by sub-range, then the one in use, then by level, then the first configured."""
        level = self._levels.get(address)
        level = -1 if level is None else level
        return bisect(_SUB_RANGES, level), address == self.in_use, level, -self._addresses.index(address)

    def failed(self, address: str, reason: str) -> None:
        """Note that a connection attempt failed."""
        self._levels[address], self._reasons[address] = None, reason
        self._show()

    def session_ended(self, address: str, was_cut: bool) -> None:
        """A long session ended: start another round. One that ``was_cut`` by the server's side may be continued there
        without a loss; one that timed out, or was left, is not tried again first."""
        if self.are_redundant:
            self._tried = set() if was_cut else {address}

    async def read_levels(self, source: OpcuaSource) -> None:
        """Read the ServiceLevel of all, at the start."""
        if self.are_redundant:
            await asyncio.gather(*(self._probe(source.at(address)) for address in self._addresses))

    async def _probe(self, source: OpcuaSource) -> None:
        try:
            client = await within(2 * source.time_out, connect(source, self._pki))
            try:
                await self._read(client, source)
            finally:
                await close(client, source.time_out)
        except _FAILED as error:
            self.failed(source.address, _text(error))

    async def watch_others(self, source: OpcuaSource) -> None:
        """Keep a session with each server that is not in use, and read its ServiceLevel, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for address in self._addresses:
                if address != self.in_use:
                    tasks.create_task(self._watch(source.at(address)))

    async def _watch(self, source: OpcuaSource) -> None:
        backoff = Backoff(source.backoff_min, source.backoff_max)
        while True:
            wait = _MAINTENANCE_SECONDS
            try:
                client = await connect(source, self._pki)
                try:
                    while await self._read(client, source) > _MAINTENANCE:
                        backoff.reset()
                        await asyncio.sleep(_READ_SECONDS)
                finally:
                    await close(client, source.time_out)
            except _FAILED as error:
                self.failed(source.address, _text(error))
                wait = backoff.next()
            await asyncio.sleep(wait)

    async def watch_server_in_use(self, client: Client, source: OpcuaSource) -> None:
        """Read the ServiceLevel of the server in use.

        Raises FailOverError if another one is in a better sub-range. A server that is healthy is kept (6.6.2.4.3).
        """
        reads = 0
        await self._read_set(client, source)
        while self.are_redundant:
            level = await self._read(client, source)
            best = max(self._addresses, key=self._order)
            reads = 0 if best == self.in_use else reads + 1
            if reads and (level < _DEGRADED or reads >= _STEADY_READS):
                raise FailOverError(f"ServiceLevel {level}; {best} has {self._levels[best]}")
            await asyncio.sleep(_READ_SECONDS)

    async def _read_set(self, client: Client, source: OpcuaSource) -> None:
        """Show that the server belongs to a set of more servers than are configured (OPC 10000-5, 6.3.7 to 6.3.9)."""
        values = []
        redundancy = client.get_node(ua.NodeId(ua.ObjectIds.Server_ServerRedundancy))
        for name in ("RedundancySupport", "ServerUriArray"):
            try:
                node = await within(source.time_out, redundancy.get_child(f"0:{name}"))
                values.append(await within(source.time_out, node.read_value()))
            except (ua.UaError, TimeoutError):  # many servers have neither
                values.append(None)
        support, uris = values
        remark = ""
        if support in _SETS and isinstance(uris, list) and len(uris) > len(self._addresses):
            names = ", ".join(map(str, uris))
            remark = (
                f"the server is one of {len(uris)} redundant ones ({names}), of which the source has "
                f"{len(self._addresses)}: see the option addresses"
            )
        self._status.remark("redundancy", remark)

    async def _read(self, client: Client, source: OpcuaSource) -> int:
        """The ServiceLevel of a server (OPC 10000-5, 6.3.1); one that does not tell is healthy."""
        try:
            level = int(await read_value(client, ua.ObjectIds.Server_ServiceLevel, source.time_out))
        except (ua.uaerrors.BadNodeIdUnknown, TypeError):
            level = _HEALTHY
        self._levels[source.address] = level
        self._show()
        return level

    def _show(self) -> None:
        """Show in the status what is known of each."""
        if self.are_redundant:
            self._status.remarks["servers"] = "; ".join(
                f"{address}{' (in use)' if address == self.in_use else ''}: {self._known(address)}"
                for address in self._addresses
            )

    def _known(self, address: str) -> str:
        level = self._levels.get(address)
        return self._reasons.get(address, "not tried yet") if level is None else f"ServiceLevel {level}"


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


_REFUSED_WAIT = 2.0  # s


class ConnectionBackoff:
    """Exponential backoff with jitter, so that the clients of a busy server do not return at the same time.

    If the address refuses connections, no server is there that could be busy: it is tried every two seconds, so that a
    server that is back is connected to at once.
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self._backoff = Backoff(shortest, longest)
        self._longest = longest  # s

    def session_ended(self, seconds: float) -> None:
        """A session ended after this time. If it was short, waits continue to grow."""
        if seconds > self._longest:
            self._backoff.reset()

    def wait(self, refused: bool) -> float:
        """Seconds until the next attempt; ``refused``: the last connection was refused."""
        return self._backoff.next(_REFUSED_WAIT if refused else math.inf)

    async def pause(self, refused: bool, nobody_listens: Callable[[], Awaitable[bool]]) -> None:
        """Sleep until the next attempt, but no longer than until ``nobody_listens``.

        A server that ends is often still listening when its session fails, and would then be waited for as if busy.
        """
        end = monotonic() + self.wait(refused)
        while (rest := end - monotonic()) > 0:
            if rest > _REFUSED_WAIT and await nobody_listens():
                return
            await asyncio.sleep(min(rest, _REFUSED_WAIT))


def connection_refused(group: BaseExceptionGroup[BaseException]) -> bool:
    """Return whether an attempt failed because nobody listens."""
    return any(isinstance(error.__cause__, ConnectionRefusedError) for error in group.exceptions)
