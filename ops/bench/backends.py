"""CPU of PostgreSQL's processes, by whom they work for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from schema.queries import load as queries

_KINDS = {  # by the beginning of the name, the first that fits
    "plantlog writer: rollups": "closing minutes",
    "plantlog writer": "ingest connections",
    "plantlog maintenance": "maintenance",
    "autovacuum worker": "autovacuum",
}
_REST = "rest"  # checkpointer, WAL writer, readers, and who came and went between two looks


class Backends:
    """What the processes of one server used since the first look. A backend that ends is known by the look before."""

    def __init__(
        self,
        postmaster: int,
        connection: asyncpg.Connection[Any],
        kinds: Mapping[str, str] = _KINDS,
        sessions: str | None = None,
    ) -> None:
        """``connection``: of a login that sees whose sessions there are.

        ``kinds``: beginning of a session's name → its kind, the first that fits. ``sessions``: asks for pid and name.
        """
        self._kinds = kinds
        self._sessions = sessions or queries("bench")["sessions"]
        self._postmaster = psutil.Process(postmaster)
        self._connection = connection
        self._first: dict[int, float] | None = None
        self._seen: dict[int, tuple[str, float]] = {}  # pid → for whom, CPU seconds
        self._total = (0.0, 0.0)  # CPU seconds at the first look and at the last

    async def look(self) -> None:
        """Note what each process has used so far."""
        names = {row["pid"]: row["name"] for row in await self._connection.fetch(self._sessions)}
        used, total = server_cpu(self._postmaster)
        if self._first is None:
            self._first, self._total = used, (total, total)
        self._total = self._total[0], total
        for pid, cpu in used.items():
            before = self._seen.get(pid, (_REST, 0.0))[0]  # it may have ended since it was asked for
            self._seen[pid] = self._kind(names[pid]) if pid in names else before, cpu

    def used(self) -> dict[str, float]:
        """CPU seconds of each kind between the first look and the last."""
        first = self._first or {}
        kinds = dict.fromkeys((*self._kinds.values(), _REST), 0.0)
        for pid, (kind, cpu) in self._seen.items():
            kinds[kind] += cpu - first.get(pid, 0.0)
        known = sum(seconds for kind, seconds in kinds.items() if kind != _REST)
        kinds[_REST] = max(0.0, self._total[1] - self._total[0] - known)
        return kinds

    def _kind(self, name: str) -> str:
        return next((kind for begin, kind in self._kinds.items() if name.startswith(begin)), _REST)


def server_cpu(postmaster: psutil.Process) -> tuple[dict[int, float], float]:
    """CPU seconds of each process of a server but the first, and of them all, those that have ended counted."""
    used = {pid: cpu for child in postmaster.children() for pid, cpu in _cpu(child)}
    own = postmaster.cpu_times()
    return used, own.user + own.system + own.children_user + own.children_system + sum(used.values())


def _cpu(process: psutil.Process) -> list[tuple[int, float]]:
    """Its id and CPU seconds; nothing where it is gone."""
    with suppress(OSError, ValueError, IndexError):  # in ns; cpu_times counts in 10 ms
        return [(process.pid, int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9)]
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return []
    return [(process.pid, times.user + times.system)]
