"""``python -m ingest PROCESS --state FOLDER``: one process of the appliance.

SIGTERM writes pending data to disk and exits with 0; a second SIGTERM exits at once.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import partial
from typing import Literal

from core.process.entry import Process, add_arguments, run
from core.process.scheduling import start_own_session
from ingest.run.process import run_collectors, run_push, run_writer

_PROCESSES: dict[str, Process] = {"push": run_push, "writer": run_writer}


def _process(argument: str) -> tuple[str, Process]:
    """Name and function of a process; collectors may have a number, as in ``modbus-2``."""
    if collector := re.fullmatch("(opcua|modbus)(?:-([2-9]|1[0-9]))?", argument):
        kind: Literal["opcua", "modbus"] = "opcua" if collector[1] == "opcua" else "modbus"
        return f"collector-{argument}", partial(run_collectors, kind, int(collector[2] or 1))
    if argument not in _PROCESSES:
        raise argparse.ArgumentTypeError(
            f"unknown process {argument!r}; legal: opcua, modbus, modbus-2 …, {', '.join(_PROCESSES)}"
        )
    return f"collector-{argument}" if argument == "push" else argument, _PROCESSES[argument]


def main() -> int:
    """Run one process until it is terminated."""
    parser = argparse.ArgumentParser(prog="python -m ingest", description=__doc__)
    parser.add_argument("process", type=_process)
    add_arguments(parser)
    arguments = parser.parse_args()
    start_own_session()
    name, process = arguments.process
    return run(name, process, arguments.state)


if __name__ == "__main__":
    sys.exit(main())
