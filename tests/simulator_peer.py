"""plantlog's own simulator as a peer: the channels of ``tests.peers``, by OPC UA or in a device's registers.

``python -m tests.simulator_peer opcua|modbus PORT FOLDER PREFIX COUNT MILLISECONDS``; ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.simulation import Simulator
from simulator.tags import Register, SimTag
from tests.peers import FIRST_REGISTER, NODE_KINDS, listens


class CountingPlant:
    """Every round has another value of every channel."""

    name = "counting"
    spread = False

    def __init__(self, via: str, prefix: str, count: int, period: float) -> None:
        make = _node if via == "opcua" else _register
        self.tags = [make(prefix, i, period) for i in range(count)]
        self.tick = period
        self._round = 0

    def step(self, seconds: float) -> None:
        """The next round."""
        self._round += 1

    def numbers(self) -> NDArray[np.float64]:
        """Values of all tags."""
        m = self._round * 100 + np.arange(len(self.tags)) // 5
        boolean = np.array([tag.opcua == "Boolean" for tag in self.tags])
        return np.where(boolean, self._round % 2, m % 100_000).astype(np.float64)

    def text(self, tag: int) -> str:
        """A text channel's value."""
        return f"step {self._round * 100 + tag // 5}"

    def write(self, signal: str, value: float) -> None:
        """Nobody writes."""


def _node(prefix: str, i: int, period: float) -> SimTag:
    types = list(NODE_KINDS)
    name, kind = f"{prefix}/{types[i % 5]}{i // 5}", NODE_KINDS[types[i % 5]]
    return SimTag(name, str(i), kind, opcua=types[i % 5], period=period)  # type: ignore[arg-type]


def _register(prefix: str, i: int, period: float) -> SimTag:
    register = Register("device", "holding", FIRST_REGISTER + 2 * i, "float32")
    return SimTag(f"{prefix}/unit1/c{i}", str(i), register=register, period=period)


async def _main() -> None:
    via, port, folder, prefix, count, milliseconds = sys.argv[1:]
    plant = CountingPlant(via, prefix, int(count), float(milliseconds) / 1000)
    stop = asyncio.Event()
    running = asyncio.create_task(
        Simulator(plant, Path(folder), secure=True, speed=1.0).run("127.0.0.1", int(port), int(port), stop)
    )
    while not running.done() and not listens(int(port)):
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    await asyncio.wait(
        [running, asyncio.create_task(asyncio.to_thread(sys.stdin.read))], return_when=asyncio.FIRST_COMPLETED
    )
    stop.set()
    await running


if __name__ == "__main__":
    asyncio.run(_main())
