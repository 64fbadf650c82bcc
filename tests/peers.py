"""Servers that are not plantlog's own, as child processes: installed from the lock file on first use."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ops.alone import alone

_FOLDER = Path(__file__).parent / "peers"
_START_SECONDS = 60


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def install() -> None:
    """The packages in package-lock.json, exactly."""
    with alone(_FOLDER):
        if not (_FOLDER / "node_modules" / ".package-lock.json").exists():
            command = ["npm", "ci", "--ignore-scripts", "--no-fund", "--no-audit"]
            run = subprocess.run(command, cwd=_FOLDER, capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stderr


class Peer:
    """A running peer: its port, and the lines that it has printed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lines: list[str] = []


@asynccontextmanager
async def peer(script: str, *arguments: str) -> AsyncIterator[Peer]:
    """``node script PORT arguments``, ready inside the block."""
    install()
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *("node", script, str(port), *arguments),
        cwd=_FOLDER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    output = process.stdout
    running = Peer(port)
    try:
        async with asyncio.timeout(_START_SECONDS):
            while (line := (await output.readline()).decode().strip()) != "ready":
                assert line or not output.at_eof(), f"{script} ended before it was ready"

        async def read() -> None:
            while text := await output.readline():
                running.lines.append(text.decode().strip())

        reading = asyncio.create_task(read())
        yield running
        reading.cancel()
    finally:
        process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # else its pipe outlives the loop
