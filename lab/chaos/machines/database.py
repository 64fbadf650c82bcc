"""The database of a redundant pair: a primary, its asynchronous standby, and a backup repository."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import asyncpg

from core.database import FAILURES
from core.errors import OperationError
from lab.chaos.machines.node import Node
from ops.postgres.bootstrap import create_database
from schema.queries import load
from simulator.relay import Relay

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.2
_STREAMING_SECONDS = 120.0
_FORMER_SECONDS = 5.0  # that a former primary is there beside its successor


@dataclass(frozen=True, slots=True)
class _Way:
    """A relay to a node, which follows it to another port."""

    relay: Relay
    port: int
    node: Node


class DatabaseServers:
    """Two servers; :meth:`start` makes the first one the primary."""

    def __init__(self, folder: Path) -> None:
        self.primary, self.standby = Node(folder / "first"), Node(folder / "second")
        self.nodes = self.primary, self.standby
        self._folder = folder
        self._ways: list[_Way] = []
        self._replication: dict[Node, int] = {}  # ports of the relays before each node

    async def start(self, replication: Sequence[int]) -> Mapping[str, Relay]:
        """Start both; ``replication``: ports of the relays in front of each. Returns these."""
        repository, passphrase = self._folder / "repository", self._folder / "passphrase"
        repository.mkdir(parents=True)
        for above in repository.parents[:2]:
            above.chmod(0o711)  # the servers' accounts write to the repository
        passphrase.touch(mode=0o600)
        passphrase.write_text(secrets.token_urlsafe(24))
        await asyncio.to_thread(self.primary.archive_to, repository, passphrase, uuid4())
        await asyncio.to_thread(self.primary.start)
        await create_database(self.primary.dsn)
        relays = {}
        for node, name, port in zip(self.nodes, ("first", "second"), replication, strict=True):
            self._replication[node] = port
            if node is self.standby:
                await asyncio.to_thread(node.clone, self.primary, replication[0])
                await asyncio.to_thread(node.start)
            relays[f"replication-{name}"] = await self.way(node, port)
        await self._until_streaming()
        await asyncio.to_thread(self.primary.back_up)
        return relays

    async def way(self, node: Node, port: int) -> Relay:
        """A relay to a node, wherever that listens."""
        way = _Way(Relay(), port, node)
        self._ways.append(way)
        await way.relay.start((_HOST, port), (_HOST, node.port))
        return way.relay

    async def stop(self) -> None:
        """Stop both servers, and all ways to them."""
        await asyncio.gather(*(way.relay.stop() for way in self._ways))
        for node in self.nodes:
            await asyncio.to_thread(node.kill)

    async def fail_over(self, lag: float, seconds: float, lose_disk: bool) -> None:
        """The primary is killed when its standby lags by ``lag`` seconds; ``seconds`` later that one is promoted.

        The old primary comes back, as a primary as it thinks, and is made a standby. Or its disk is lost.
        """
        former, successor = self.primary, self.standby
        between = [way.relay for way in self._ways if way.port in self._replication.values()]
        for relay in between:
            relay.refuse()
        await asyncio.sleep(lag)
        await asyncio.to_thread(former.kill)
        for relay in between:
            await relay.accept()
        await asyncio.sleep(seconds)
        await asyncio.to_thread(successor.promote)
        self.primary, self.standby = successor, former
        if lose_disk:
            await asyncio.to_thread(former.clone, successor, self._replication[successor])
        else:
            await asyncio.to_thread(former.start)
            await asyncio.sleep(_FORMER_SECONDS)
            await asyncio.to_thread(former.stop)
            await asyncio.to_thread(former.rewind, successor, self._replication[successor])
        await asyncio.to_thread(former.start)
        await self._until_streaming()

    async def restore(self, seconds: float) -> None:
        """The primary becomes what it was just after a backup, ``seconds`` ago, and the standby a copy of it."""
        at = await asyncio.to_thread(self.primary.back_up) + timedelta(seconds=1)
        await asyncio.sleep(seconds)
        for node in (self.primary, self.standby):
            await asyncio.to_thread(node.stop)
        await asyncio.to_thread(self.primary.restore, at)
        await asyncio.to_thread(self.primary.start)
        for way in self._ways:
            await way.relay.start((_HOST, way.port), (_HOST, way.node.port))
        await asyncio.to_thread(self.standby.clone, self.primary, self._replication[self.primary])
        await asyncio.to_thread(self.standby.start)
        await self._until_streaming()

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """The primary and its sessions are suspended inside the block."""
        processes = self.primary.processes()
        try:
            for process in processes:
                process.suspend()
            yield
        finally:
            for process in processes:
                process.resume()

    async def fetchval(self, query: str, *parameters: object) -> object:
        """The value that a query gives the primary's owner."""
        [row] = await self.fetch(query, *parameters)
        return row[0]

    async def fetch(self, query: str, *parameters: object) -> list[asyncpg.Record]:
        """Fetch rows."""
        connection = await asyncpg.connect(self.primary.dsn)
        try:
            return await connection.fetch(query, *parameters)
        finally:
            await connection.close()

    async def _until_streaming(self) -> None:
        try:
            async with asyncio.timeout(_STREAMING_SECONDS):
                while not await self._streaming():
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise OperationError(
                f"the standby does not stream from the primary after {_STREAMING_SECONDS:.0f} s: see the logs in "
                f"{self._folder}"
            ) from None

    async def _streaming(self) -> bool:
        try:
            return bool(await self.fetchval(load("chaos")["count_streaming"]))
        except FAILURES:
            return False
