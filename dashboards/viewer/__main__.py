"""``python -m dashboards.viewer --config plant.toml --state FOLDER``: serve the dashboards until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from dashboards.viewer.process import run_viewer
from ingest.config.load import load
from ingest.errors import PlantlogError


def main() -> int:
    """Exit code 1 where it can't begin."""
    arguments = argparse.ArgumentParser(prog="python -m dashboards.viewer", description=__doc__)
    arguments.add_argument("--config", type=Path, required=True, metavar="PLANT.TOML")
    arguments.add_argument("--state", type=Path, required=True, metavar="FOLDER")
    given = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(_until_told(given.config, given.state))
    except PlantlogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _until_told(config: Path, state: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run_viewer(load(config), state, stop)


if __name__ == "__main__":
    sys.exit(main())
