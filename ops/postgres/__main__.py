"""``python -m ops.postgres --state FOLDER``: run the database server of a state folder."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from core.process import starts
from ops.postgres.managed import server

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ops.postgres", description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    state = parser.parse_args().state.absolute()
    starts.note(state, "postgres")
    command = server(state).command()
    os.chdir("/")
    os.execvp(command[0], command)
