"""The nodes that a monitor knows, and what it does with them on request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

from core.database import FAILURES
from core.errors import OperationError
from ops.postgres.managed import REPLICATOR
from ops.postgres.membership import Membership
from schema.queries import load

PRIMARY = frozenset({"single", "primary", "wait_primary"})
STANDBY = frozenset({"secondary", "catchingup"})
_CONNECT_SECONDS = 10.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Node:
    """Server, as the monitor knows it."""

    name: str
    address: str
    port: int
    state: str  # pg_auto_failover's
    assigned: str  # the state that it is to reach
    health: int
    timeline: int
    bytes_behind: int

    @property
    def is_primary(self) -> bool:
        """Return whether it takes writes."""
        return self.state in PRIMARY and self.assigned in PRIMARY

    @property
    def settled(self) -> bool:
        """Return whether it answers, and is what it is to be."""
        return self.health == 1 and self.state == self.assigned and self.state in PRIMARY | {"secondary"}


@asynccontextmanager
async def _monitor(dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    address = dsn.rpartition("@")[2].partition("/")[0]
    try:
        connection = await asyncpg.connect(dsn, timeout=_CONNECT_SECONDS)
    except ssl.SSLCertVerificationError as error:
        raise OperationError(
            f"the monitor at {address} is another one than the DSN is of, or its secret is wrong: "
            f"{error.verify_message}"
        ) from error
    except FAILURES as error:
        raise OperationError(
            f"the monitor at {address} does not respond: {str(error) or type(error).__name__}"
        ) from error
    try:
        yield connection
    except FAILURES as error:
        raise OperationError(f"the monitor at {address}: {error}") from error
    finally:
        connection.terminate()


async def nodes(monitor: str) -> list[Node]:
    """Nodes in the order of their addresses. Raises OperationError."""
    async with _monitor(monitor) as connection:
        return [Node(**row) for row in await connection.fetch(load("failover")["select_nodes"])]


async def switch_over(monitor: str, seconds: float) -> Node:
    """The standby becomes the primary. Returns it, once both are what they are to be. Raises OperationError."""
    before = await nodes(monitor)
    if not any(node.settled and not node.is_primary for node in before):
        raise OperationError("no standby is ready to become the primary: see `plantlog admin database status`")
    former = next((node.name for node in before if node.is_primary), None)
    async with _monitor(monitor) as connection:
        await connection.execute(load("failover")["switch_over"])
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        servers = await nodes(monitor)
        if all(node.settled for node in servers):
            (primary,) = (node for node in servers if node.is_primary)
            if primary.name != former:
                return primary
        if asyncio.get_running_loop().time() > deadline:
            raise OperationError(
                f"the standby is not the primary after {seconds:g} s: see `plantlog admin database status`"
            )
        await asyncio.sleep(_POLL_SECONDS)


async def remove(monitor: str, address: str, port: int) -> None:
    """The monitor forgets a node. Raises OperationError."""
    if not any((node.address, node.port) == (address, port) for node in await nodes(monitor)):
        raise OperationError(f"{address}:{port} is not a node: see `plantlog admin database status`")
    async with _monitor(monitor) as connection:
        await connection.execute(load("failover")["remove_node"], address, port)


async def speed_up_backup(primary: Node, ours: Membership) -> None:
    """Let the primary begin a base backup at once, not with its next checkpoint. Runs until it is cancelled."""
    queries = load("failover")
    dsn = f"postgresql://{REPLICATOR}:{ours.secret}@{primary.address}:{primary.port}/postgres?{ours.options}"
    while True:
        with suppress(*FAILURES):
            connection = await asyncpg.connect(dsn, timeout=_CONNECT_SECONDS)
            try:
                if await connection.fetchval(queries["base_backup_waits"]):
                    await connection.execute(queries["checkpoint"])
            finally:
                connection.terminate()
        await asyncio.sleep(1.0)
