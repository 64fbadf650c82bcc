"""``python -m ingest PROCESS --config plant.toml --state FOLDER``: one process of the appliance.

SIGTERM makes durable what is in hand and ends with 0; a second one ends at once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from ingest.config.load import load
from ingest.config.model import Plant
from ingest.errors import PlantlogError
from ingest.process import run_collectors, run_notifier, run_push, run_writer

_PROCESSES: dict[str, Callable[[Plant, Path, asyncio.Event], Awaitable[None]]] = {
    "opcua": lambda plant, state, stop: run_collectors("opcua", plant, state, stop),
    "modbus": lambda plant, state, stop: run_collectors("modbus", plant, state, stop),
    "push": run_push,
    "writer": run_writer,
    "notifier": run_notifier,
}


def main() -> int:
    """Run one process until it is told to stop."""
    arguments = argparse.ArgumentParser(prog="python -m ingest", description=__doc__)
    arguments.add_argument("process", choices=sorted(_PROCESSES))
    arguments.add_argument("--config", type=Path, required=True, metavar="PLANT.TOML")
    arguments.add_argument("--state", type=Path, required=True, metavar="FOLDER")
    given = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("asyncua", "pymodbus"):
        logging.getLogger(chatty).setLevel(logging.ERROR)  # they format every message they see
    try:
        plant = load(given.config)
        asyncio.run(_until_told(_PROCESSES[given.process], plant, given.state))
    except PlantlogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _until_told(
    process: Callable[[Plant, Path, asyncio.Event], Awaitable[None]], plant: Plant, state: Path
) -> None:
    stop = asyncio.Event()

    def told() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    await process(plant, state, stop)


if __name__ == "__main__":
    sys.exit(main())
