"""Servers of one database, as `plantlog admin database` makes them: machines are loopback addresses and folders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from core.paths import State
from ops.appliance import orphans
from ops.postgres.membership import Membership
from tests import command
from tests.ports import free_port
from tests.waiting import until


class Servers:
    """A monitor, and nodes ``a`` and ``b``."""

    def __init__(self, folder: Path) -> None:
        self.monitor, self.a, self.b = (folder / name for name in ("monitor", "a", "b"))
        self._made: dict[Path, tuple[str, int]] = {}
        self.monitor_dsn = ""

    async def start(self) -> None:
        """All three; ``a`` is the primary."""
        for address, state in (("127.0.0.2", self.monitor), ("127.0.0.3", self.a), ("127.0.0.4", self.b)):
            await self.add(address, state)

    async def add(self, address: str, state: Path) -> None:
        """A server, or one that was stopped."""
        port = self._made.get(state, ("", free_port()))[1]
        words = ["node", "--monitor", self.monitor_dsn]
        if state == self.monitor:
            words = ["monitor", *(("--replace", self.monitor_dsn) if self.monitor_dsn else ())]
        result = await command.in_a_process(state, "admin", "database", *words, "--address", address, "--port", port)
        assert result.code == 0, result
        self._made[state] = address, port
        if state == self.monitor:
            found = Membership.load(State(state))
            assert found is not None
            self.monitor_dsn = found.join

    async def restart(self, state: Path) -> None:
        """A server that was stopped or powered off, without any options."""
        result = await command.in_a_process(state, "admin", "database", "monitor" if state == self.monitor else "node")
        assert result.code == 0, result

    async def stop(self) -> None:
        """All of them."""
        for state in (self.monitor, self.a, self.b):
            if state.exists():
                await command.in_a_process(state, "down")

    def power_off(self, state: Path) -> None:
        """All processes of a server at once, without a word."""
        found = [process for processes in orphans.find(State(state)).values() for process in processes]
        for process in list(found):
            with suppress(psutil.NoSuchProcess):
                found += process.children(recursive=True)
        for act in (psutil.Process.suspend, psutil.Process.kill):
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    act(process)
        psutil.wait_procs(found, 30)

    def where(self, state: Path) -> str:
        """Address and port."""
        return "{}:{}".format(*self._made[state])

    def dsn(self, *states: Path, login: str | None = None) -> str:
        """DSN of the database at these servers, in the order given; ``login``: another one than the owner."""
        owner = urlsplit(State(self.a).dsn("owner"))
        hosts = ",".join(map(self.where, states))
        ca = State(states[0]).pki / "tls" / "ca.crt"
        options = f"sslmode=verify-full&sslrootcert={ca}"
        return f"postgresql://{login or f'{owner.username}:{owner.password}'}@{hosts}/plantlog?{options}"

    async def status(self) -> dict[str, dict[str, Any]]:
        """The monitor's states of ``a`` and ``b``."""
        result = await command.plantlog(self.monitor, "admin", "database", "status", "--json")
        assert result.code == 0, result
        names = {f"{address}:{port}": state.name for state, (address, port) in self._made.items()}
        return {names[row["name"]]: row for row in json.loads(result.out)}

    async def states(self) -> dict[str, str]:
        """The states of those that answer."""
        return {name: row["state"] for name, row in (await self.status()).items() if row["health"] == 1}

    async def until_both(self) -> None:
        """Until there is a standby again."""
        await until(self._are_both, every=0.5)

    async def _are_both(self) -> bool:
        return sorted((await self.states()).values()) == ["primary", "secondary"]


@asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[Servers]:
    """Three that run inside the block."""
    found = Servers(folder)
    try:
        await found.start()
        yield found
    finally:
        await asyncio.shield(found.stop())
