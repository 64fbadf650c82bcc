"""Recordings in the form of the Tennessee Eastman files, as the benchmark of labelled events reads them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from lab.bench import recordings

CAUSE = 50  # column of XMV10
FAULT = 160  # row
ROWS = 320


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, runs: tuple[str, ...] = ("d00", "d04")) -> None:
    """Runs of noise below a folder, with their digests in the table; in all but d00, XMV10 steps."""
    (folder / "tep").mkdir()
    lines = []
    for number, run in enumerate(runs):
        value = np.random.default_rng(number).normal(50.0, 1.0, (ROWS, 52))
        value[FAULT:, CAUSE] += 0.0 if run == "d00" else 20.0
        path = folder / "tep" / f"{run}_te.dat"
        np.savetxt(path, value, fmt="%.6e")
        lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  tep/{path.name}\n")
    table = folder / "digests.sha256"
    table.write_text("".join(lines))
    monkeypatch.setattr(recordings, "_DIGESTS", table)
