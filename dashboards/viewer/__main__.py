"""``python -m dashboards.viewer --state FOLDER``: serve the dashboards until told to stop."""

from __future__ import annotations

import argparse
import sys

from dashboards.viewer.process import run_viewer
from ingest.entry import add_arguments, run
from ingest.scheduling import step_back

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m dashboards.viewer", description=__doc__)
    add_arguments(parser)
    told = parser.parse_args()
    step_back()
    sys.exit(run(run_viewer, told.state))
