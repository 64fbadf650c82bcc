"""``python -m ops.maintenance --state FOLDER``: the process that keeps the database in shape."""

from __future__ import annotations

import argparse
import sys

from ingest.entry import add_arguments, run
from ingest.scheduling import step_back
from ops.maintenance.process import run_maintenance

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ops.maintenance", description=__doc__)
    add_arguments(parser)
    told = parser.parse_args()
    step_back()
    sys.exit(run(run_maintenance, told.state))
