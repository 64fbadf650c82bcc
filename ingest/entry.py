"""A process of the appliance from its start to its end: arguments, log, signals."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from ingest import log
from ingest.config.model import Plant
from ingest.config.snapshot import plant_in_force
from ingest.errors import PlantlogError

Process: TypeAlias = Callable[[Plant, Path, asyncio.Event], Awaitable[None]]  # options, state folder, stop


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """What every process is told."""
    arguments.add_argument("--state", type=Path, required=True, metavar="FOLDER")


def run(process: Process, state: Path) -> int:
    """Run one process, by the configuration in force, until it is told to stop; its exit code.

    SIGTERM makes durable what is in hand and ends with 0; a second one ends at once.
    """
    os.umask(0o077)  # spools, registry and logs are their owner's alone
    log.begin()
    for chatty in ("asyncua", "pymodbus"):
        logging.getLogger(chatty).setLevel(logging.ERROR)  # they format every message they see
    try:
        asyncio.run(_until_told(process, plant_in_force(state, tags_of=()), state))
    except PlantlogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _until_told(process: Process, plant: Plant, state: Path) -> None:
    stop = asyncio.Event()

    def told() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    await process(plant, state, stop)
