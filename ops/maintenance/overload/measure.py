"""Indicators of overload: CPU pressure, age of the spools' oldest batch, and polls that are late."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.config.model import HealthOptions
from core.source_states import UP
from ingest.spool.member import read_member, stands_by
from ops import health
from ops.maintenance.overload.state import Indicators
from schema.queries import load

_LATE_SECONDS = 2.0  # as of pace_of()
_ASK_COLLECTORS_FROM = 0.5  # CPU pressure from which on polls may be late for want of it


class Pressure:
    """The share of time in which somebody waited for a processor (Linux: pressure stall information, PSI).

    The machine's and, where it is larger, that of the control group that this process is in, which may have a limit of
    its own. Where the kernel tells neither: by how much more wants to run than there are processors.
    """

    def __init__(self, files: Iterable[Path] | None = None) -> None:
        self._files = [path for path in files or (_MACHINE_FILE, _cgroup_file()) if os.access(path, os.R_OK)]
        self._before: tuple[float, list[float]] | None = None

    def sample(self) -> float:
        """The share, 0 to 1, since the call before."""
        if not self._files:
            return max(0.0, min(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)) - 1))
        now, waited = time.monotonic(), [_stalled_seconds(path) for path in self._files]
        before, self._before = self._before, (now, waited)
        if before is None or now <= before[0]:
            return 0.0
        return max(0.0, min(1.0, max((b - a) / (now - before[0]) for a, b in zip(before[1], waited, strict=True))))


_MACHINE_FILE = Path("/proc/pressure/cpu")


def _cgroup_file() -> Path:
    """The file of our control group; one that is not there where groups are not of version 2."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return Path("/nonexistent")
    cgroup = next((line[3:] for line in lines if line.startswith("0::")), "/")
    return Path("/sys/fs/cgroup", cgroup.lstrip("/"), "cpu.pressure")


def _stalled_seconds(path: Path) -> float:
    """Seconds for which at least one waited, since the machine's start; 0 where the file can't be read."""
    try:
        total = path.read_text().partition("total=")[2].split()[0]
    except (OSError, IndexError):
        return 0.0
    return int(total) / 1e6


@dataclass(frozen=True, slots=True)
class SpoolBacklog:
    """Backlog of the spools for the database."""

    seconds: float  # for which the oldest batch has waited
    bytes: int


def total_backlog(folder: Path) -> SpoolBacklog:
    """Backlog of all spools in ``folder``."""
    by_source = backlogs(folder).values()
    return SpoolBacklog(
        max((backlog.seconds for backlog in by_source), default=0.0), sum(backlog.bytes for backlog in by_source)
    )


def backlogs(folder: Path) -> dict[str, SpoolBacklog]:
    """Spool → its backlog; spools of backfilled values are left out, because they wait for everything else."""
    by_source: dict[str, SpoolBacklog] = {}
    # The standby of a redundant pair keeps what the other member has not written yet: that waits for nothing here. Both
    # keep the newest states of their sources.
    waits = not stands_by(folder)
    query = "select_oldest_received_at" if read_member(folder) is None else "select_oldest_sample_received_at"
    for path in sorted(folder.glob("*.sqlite")):
        if path.name.endswith(".backfill.sqlite"):
            continue
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.2)) as connection:
                (received,) = connection.execute(load("spool")[query]).fetchone() or (None,)
                seconds = 0.0 if received is None or not waits else max(0.0, time.time() - received / 1e6)
            by_source[path.stem] = SpoolBacklog(seconds, path.stat().st_size)
        except (OSError, sqlite3.Error):  # it is being made, or written: the next look sees it
            continue
    return by_source


def poll_period(source: Mapping[str, Any], now: float, late_seconds: float) -> float:
    """Seconds between two polls of a source (as ``/health`` has it); 0: as configured.

    A poll that goes on, and has no pace yet, counts where it is late by ``late_seconds``.
    """
    late = now - source["due_at"] / 1e6 if source.get("due_at") else 0.0
    pace: float = source.get("pace_seconds", 0.0)
    return max(pace, late) if late >= late_seconds else pace


def _pace(source: Mapping[str, Any], now: float) -> float:
    """Bytes/s of the device; 0 where it is away."""
    away = source.get("state") not in UP
    return 0.0 if away else poll_period(source, now, _LATE_SECONDS)


def measure(folder: Path, pressure: Pressure, polling: Iterable[str], options: HealthOptions) -> Indicators:
    """Measure all strains now. The collectors that poll are asked only where the processors are short.

    ``folder``: the spools', in the state folder.
    """
    pressed, wait = pressure.sample(), total_backlog(folder)
    pace = 0.0
    if pressed >= _ASK_COLLECTORS_FROM:
        reports = [health.fetch(process, options, folder.parent) or {} for process in polling]
        sources = [source for report in reports for source in report.get("sources", ())]
        pace = max((_pace(source, time.time()) for source in sources), default=0.0)
    return Indicators(time.time(), pressed, wait.seconds, pace, wait.bytes)
