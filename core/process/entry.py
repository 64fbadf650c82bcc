"""Entry point of a process of the appliance: arguments, log, signals."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

from core import log
from core.config.processes import is_collector
from core.config.settings import Settings, settings_of
from core.config.snapshot import plant_in_force
from core.errors import PlantlogError, first_cause
from core.process import starts

Process: TypeAlias = Callable[[Any, Path, asyncio.Event], Awaitable[None]]  # its settings, state folder, stop


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """Add the arguments that every process takes."""
    arguments.add_argument("--state", type=Path, required=True, metavar="FOLDER")


def run(name: str, process: Process, state: Path) -> int:
    """Run a process with its settings in the configuration in force until it is terminated; returns its exit code.

    SIGTERM writes pending data to disk and exits with 0; a second SIGTERM exits at once.
    """
    os.umask(0o077)  # spools, registry and logs are their owner's alone
    log.configure()
    logging.getLogger("asyncua").setLevel(logging.ERROR)  # it formats every message it sees
    try:
        if not is_collector(name):
            starts.note(state, name)
        settings = settings_of(name, plant_in_force(state, tags_of=()))
        asyncio.run(_run_until_terminated(process, settings, state))
    except (PlantlogError, BaseExceptionGroup) as error:
        cause = first_cause(error)
        if not isinstance(cause, PlantlogError):
            raise cause from error  # its name is the last line of the log, which `status` shows
        print(cause, file=sys.stderr)
        return 1
    return 0


async def _run_until_terminated(process: Process, settings: Settings, state: Path) -> None:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await process(settings, state, stop)


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, None], drain_seconds: float | None = None) -> None:
    """Run ``work`` until ``stop``, then cancel it, and wait until it has ended, for ``drain_seconds`` at most.

    Raises what it fails with before.
    """
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        working.result()
    working.cancel()
    await asyncio.wait((working,), timeout=drain_seconds)
