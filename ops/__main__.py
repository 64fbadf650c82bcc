"""``python -m ops``: the command line of plantlog. ``./plantlog`` prepares the environment and runs this."""

from __future__ import annotations

import os
import sys

from ops.cli.app import main

if __name__ == "__main__":
    # Before numpy is imported: matrices are small here, and threads of OpenBLAS would wait for each other, spinning.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
