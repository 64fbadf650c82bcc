"""Recordings in the form of public ones, as the benchmark of labelled events reads them."""

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
    """Tennessee Eastman: runs of noise below a folder, with their digests; in all but d00, XMV10 steps."""
    (folder / "tep").mkdir()
    paths = []
    for number, run in enumerate(runs):
        value = np.random.default_rng(number).normal(50.0, 1.0, (ROWS, 52))
        value[FAULT:, CAUSE] += 0.0 if run == "d00" else 20.0
        paths.append(folder / "tep" / f"{run}_te.dat")
        np.savetxt(paths[-1], value, fmt="%.6e")
    _digests(folder, monkeypatch, paths)


def write_slow(folder: Path, monkeypatch: pytest.MonkeyPatch, missing: str = "Bad") -> None:
    """BibMon: a sample every 5 minutes for eleven days; two channels move together, but for the fault.

    The other lacks two values, with ``missing`` instead of the second. All lack the third day.
    """
    times = np.datetime64("2017-12-24T00:00") + np.arange(11 * 288) * np.timedelta64(5, "m")
    noise = np.random.default_rng(1).normal(0.0, 1.0, (2, len(times)))
    other = [f"{number:.4f}" for number in noise[0]]
    other[100], other[2000] = "Bad", missing
    is_fault = (times >= np.datetime64("2018-01-02T06:00")) & (times < np.datetime64("2018-01-02T09:00"))
    moved = np.where(is_fault, 20.0, noise[1])
    columns = zip(times, other, moved, noise[1], strict=True)
    day = slice(2 * 288, 3 * 288)
    rows = [f"{str(at).replace('T', ' ')}:00,{a},{b:.4f},{c:.4f}" for at, a, b, c in columns]
    rows[day] = [f"{row.partition(',')[0]},Bad,Bad,Bad" for row in rows[day]]
    text = "\n".join([",tag0,tag100,tag102", *rows])
    write_text(folder, monkeypatch, "bibmon/bibmon/real_process_data/real_process_data.csv", text)


def write_text(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str | bytes) -> None:
    """A file below a folder, with its digest."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    _digests(folder, monkeypatch, [path])


def _digests(folder: Path, monkeypatch: pytest.MonkeyPatch, paths: list[Path]) -> None:
    """Put files into the table, beside what is there."""
    table = folder / "digests.sha256"
    names = [str(path.relative_to(folder)) for path in paths]
    lines = [line for line in (table.read_text().splitlines() if table.exists() else []) if line[66:] not in names]
    lines += [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}" for path, name in zip(paths, names, strict=True)
    ]
    table.write_text("\n".join(lines))
    monkeypatch.setattr(recordings, "_DIGESTS", table)
