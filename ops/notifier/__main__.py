"""``python -m ops.notifier --state FOLDER``: the process that sends alarms to people."""

from __future__ import annotations

import argparse
import sys

from core.process.entry import add_arguments, run
from core.process.scheduling import start_own_session
from ops.notifier.process import run_notifier

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ops.notifier", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    start_own_session()
    sys.exit(run("notifier", run_notifier, arguments.state))
