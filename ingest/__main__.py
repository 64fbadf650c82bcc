"""``python -m ingest PROCESS --state FOLDER``: one process of the appliance.

SIGTERM makes durable what is in hand and ends with 0; a second one ends at once.
"""

from __future__ import annotations

import argparse
import sys

from ingest.entry import Process, add_arguments, run
from ingest.process import run_collectors, run_notifier, run_push, run_writer
from ingest.scheduling import own_session

_PROCESSES: dict[str, Process] = {
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
    add_arguments(arguments)
    given = arguments.parse_args()
    own_session()
    return run(_PROCESSES[given.process], given.state)


if __name__ == "__main__":
    sys.exit(main())
