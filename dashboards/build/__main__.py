"""``python -m dashboards.build``: write every dashboard into ``dashboards/json``; ``--check`` only compares."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dashboards.build.everything import files

FOLDER = Path(__file__).parents[1] / "json"


def main() -> int:
    """Exit code 1: with ``--check``, a file is not what would be written."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; say which files are not up to date")
    given = parser.parse_args()
    stale = [
        name
        for name, content in files().items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != content
    ]
    for name in stale:
        sys.stdout.write(f"{name} {'is not up to date' if given.check else 'written'}\n")
        if not given.check:
            (FOLDER / name).write_text(files()[name], encoding="utf-8")
    return int(bool(stale) and given.check)


if __name__ == "__main__":
    sys.exit(main())
