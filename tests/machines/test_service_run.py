"""``plantlog admin service run`` with a service manager that the test is: what it is told, and what remains."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.config import token_file
from core.paths import CHECKOUT, State
from ops.appliance import orphans
from ops.appliance.supervisor import Supervisor
from ops.deployment import Deployment
from tests import command
from tests.ports import free_ports
from tests.processes import environment
from tests.waiting import PATIENCE, until

_CONFIGURATION = """
[plant]
name = "p"
[health]
port = {first}
[viewer]
port = {viewer}
[push]
port = {push}
[[source]]
name = "edge"
kind = "push"
token_file = "token"
unknown = "create"
"""
_TIMES = 2  # a start may take longer than other waits


@pytest.fixture
def state(tmp_path: Path) -> State:
    """A state folder whose next ``up`` starts a plant with one push source."""
    first = free_ports(20)
    token_file.write(tmp_path / "token", "token-of-edge-gateway")
    config = tmp_path / "plant.toml"
    config.write_text(_CONFIGURATION.format(first=first, viewer=first + 15, push=first + 16))
    state = State(tmp_path / "s")
    state.claim()
    Deployment(config, simulator=False).save(state)
    return state


class Service:
    """Service that runs, and the states that its manager received."""

    def __init__(self, process: asyncio.subprocess.Process, manager: socket.socket, log: Path) -> None:
        self.process = process
        self.manager = manager
        self.log = log
        self.states: list[str] = []

    async def listen(self) -> None:
        """Take what it says, for ever."""
        while True:
            self.states += (await asyncio.get_running_loop().sock_recv(self.manager, 65_536)).decode().splitlines()

    async def until_told(self, *starts: str) -> None:
        """Wait until there is a message that begins with each of these, from now on."""
        self.states.clear()

        def all_told() -> bool:
            assert self.process.returncode is None, self.log.read_text()
            return all(any(line.startswith(start) for line in self.states) for start in starts)

        await until(all_told, _TIMES * PATIENCE, show=self.log.read_text)

    async def end(self) -> int:
        """Wait for its end; the exit code."""
        await until(lambda: self.process.returncode is not None, _TIMES * PATIENCE, show=self.log.read_text)
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def started(state: State) -> AsyncIterator[Service]:
    """A service as systemd starts it."""
    address, log = state.root.parent / "notify", state.root.parent / "log"
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.setblocking(False)
        environment = {"PLANTLOG_STATE": str(state.root), "NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "4000000"}
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "ops", "admin", "service", "run", "--name", "mill"),
                env={**os.environ, "PYTHONPATH": str(CHECKOUT), **environment},
                stdout=output,
                stderr=output,
            )
        service = Service(process, manager, log)
        listening = asyncio.create_task(service.listen())
        try:
            yield service
        finally:
            listening.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
            orphans.end(state, lambda line: None)


@pytest.mark.timeout(900)
async def test_service_tells_its_manager_how_it_is(state: State) -> None:
    async with started(state) as service:
        await service.until_told("EXTEND_TIMEOUT_USEC=", "STATUS=starting")
        await service.until_told("READY=1", "WATCHDOG=1", "STATUS=5 of 5 processes run; ")
        programs = [process for found in orphans.find(state).values() for process in found]
        assert not any("NOTIFY_SOCKET" in environment(process) for process in programs), "PostgreSQL would write to it"
        await service.until_told("WATCHDOG=1")

        second = await command.in_a_process(state.root, "admin", "service", "run")
        assert second.code == 1
        assert f"another service runs the appliance in {state.root}: mill" in second.err

        assert (await command.in_a_process(state.root, "up")).code == 0
        await service.until_told("WATCHDOG=1", "STATUS=5 of 5 processes run")

        down = await command.in_a_process(state.root, "down")
        assert (down.code, "stop service mill" in down.out) == (0, True), down
        assert await service.end() == 0, "systemd does not restart it"
        assert "STOPPING=1" in service.states
        assert orphans.find(state) == {}


@pytest.mark.timeout(900)
async def test_service_without_its_supervisor_ends_with_an_error(state: State) -> None:
    async with started(state) as service:
        await service.until_told("READY=1")
        os.kill(Supervisor(state).pid(), signal.SIGKILL)
        assert await service.end() == 1
        assert "the supervisor is gone: see" in service.log.read_text()
        assert orphans.find(state) == {}

    async with started(state) as service:  # as systemd starts it again, and ends it at once
        await until(lambda: orphans.find(state), _TIMES * PATIENCE)
        service.process.send_signal(signal.SIGTERM)
        assert await service.end() == 0
        assert service.states.index("READY=1") < service.states.index("STOPPING=1"), "or it would be a failure"
        assert orphans.find(state) == {}


async def test_service_with_a_wrong_configuration_ends_with_an_error(state: State) -> None:
    (state.root.parent / "plant.toml").write_text("[plnt]\n")
    async with started(state) as service:
        assert await service.end() == 1
        assert "plant.toml:1: plnt: found" in service.log.read_text()
        assert "READY=1" not in service.states
