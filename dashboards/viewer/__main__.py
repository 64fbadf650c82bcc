"""``python -m dashboards.viewer --state FOLDER``: serve the dashboards until terminated."""

from __future__ import annotations

import argparse
import sys

from core.process.entry import add_arguments, run
from core.scheduling import lower_priority
from dashboards.viewer.process import run_viewer

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m dashboards.viewer", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    lower_priority()
    sys.exit(run("viewer", run_viewer, arguments.state))
