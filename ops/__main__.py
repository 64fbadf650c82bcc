"""``python -m ops``: the command line of plantlog. ``./plantlog`` prepares the environment and runs this."""

from __future__ import annotations

import sys

from ops.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
