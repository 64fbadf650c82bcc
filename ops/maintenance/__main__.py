"""``python -m ops.maintenance --state FOLDER``: the process that runs the maintenance jobs."""

from __future__ import annotations

import argparse
import sys

from core.process.entry import add_arguments, run
from core.process.scheduling import lower_priority
from ops.maintenance.process import run_maintenance

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ops.maintenance", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    lower_priority()
    sys.exit(run("maintenance", run_maintenance, arguments.state))
