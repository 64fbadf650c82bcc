"""A member of a redundant pair: a state folder whose processes reach plant and database by ways of their own."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from core.errors import OperationError
from core.paths import State
from lab.chaos.appliance import plantlog
from ops.appliance import orphans

PLANT = "plant"  # its host name: another address for each member
_UP_SECONDS = 300.0  # within which `up` succeeds, whatever else fails meanwhile
_AGAIN_SECONDS = 2.0
_END_SECONDS = 30.0
# In a mount name space, which ends with the processes in it.
_ENTER = 'mount --bind "$0" /etc/hosts && exec "$@"'
_SOURCE = Path(__file__).with_name("wall_clock.c")


@dataclass(frozen=True, slots=True)
class Member:
    """Member ``number``. ``dsn``: of the database's owner, as this member reaches it."""

    number: int
    state: State
    config: Path
    dsn: str
    plant_address: str
    clock: WallClock

    async def up(self) -> int:
        """Start, or go on starting while the database is away; how often ``up`` failed. Raises OperationError."""
        deadline, failed = time.monotonic() + _UP_SECONDS, 0
        while True:
            try:
                await self._plantlog("up", "--config", str(self.config), "--no-simulator")
            except OperationError:
                if time.monotonic() > deadline:
                    raise
                failed += 1
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                return failed

    async def kill(self) -> None:
        """SIGKILL to all processes, the supervisor first: a power failure."""
        await asyncio.to_thread(lambda: psutil.wait_procs(self._send(signal.SIGKILL), _END_SECONDS))

    def lose_disk(self, other: Member) -> None:
        """The state folder is gone, and a new one takes its place."""
        shutil.rmtree(self.state.root)
        self.take_identity(other)

    def take_identity(self, other: Member) -> None:
        """Make a new state folder one of the other member's installation, as docs/redundancy.md says."""
        self.state.root.mkdir(parents=True)
        shutil.copy(other.state.installation, self.state.installation)
        shutil.copytree(other.state.root / "secrets", self.state.root / "secrets")

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Suspend all processes inside the block."""
        processes = await asyncio.to_thread(self._send, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def _send(self, number: signal.Signals) -> Sequence[psutil.Process]:
        by_name = orphans.find(self.state)
        processes = [
            process for name in sorted(by_name, key=lambda name: name != "supervisord") for process in by_name[name]
        ]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return processes

    async def _plantlog(self, *arguments: str) -> None:
        hosts = self.config.parent / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{self.plant_address} {PLANT}\n")
        hosts.chmod(0o644)
        enter = ("unshare", "--mount", "sh", "-c", _ENTER, str(hosts))
        environment = {"PLANTLOG_DSN": self.dsn, **self.clock.environment}
        await plantlog(self.state, *arguments, environment=environment, prefix=enter)


class WallClock:
    """The clock of the processes that have :attr:`environment`. Files are in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._difference = folder / "clock"
        library = folder / "clock.so"
        self._difference.write_bytes(bytes(8))
        options = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
        command: list[str | Path] = ["gcc", *options, "-o", library, _SOURCE, "-ldl"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise OperationError("--machines requires a compiler: apt-get install gcc libc6-dev") from None
        if run.returncode:
            raise OperationError(f"gcc exited with {run.returncode}: {run.stderr}")
        self.environment = {"LD_PRELOAD": str(library), "PLANTLOG_CLOCK": str(self._difference)}

    def set(self, seconds: float) -> None:
        """Let it differ from the true time."""
        with self._difference.open("r+b", buffering=0) as file:
            file.write(int(seconds * 1e6).to_bytes(8, "little", signed=True))
