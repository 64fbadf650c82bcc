"""CPU of PostgreSQL's backends, by activity."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import asyncpg
import psutil

from lab.bench.process_usage import cpu_seconds
from schema.queries import load as queries

_BACKEND_KINDS = {  # by the beginning of the name, the first that fits
    "plantlog writer: rollups": "closing minutes",
    "plantlog writer": "ingest connections",
    "plantlog maintenance": "maintenance",
    "autovacuum worker": "autovacuum",
}
_OTHER = "rest"  # checkpointer, WAL writer, readers, and who came and went between two looks


class Backends:
    """Usage of the processes of one server since the first look. A backend that ends is known by the look before."""

    def __init__(
        self,
        postmaster: int,
        connection: asyncpg.Connection[Any],
        kinds: Mapping[str, str] = _BACKEND_KINDS,
    ) -> None:
        """``connection``: of a login that sees whose sessions there are.

        ``kinds``: beginning of a session's name → its kind, the first that fits.
        """
        self._kinds = kinds
        self._postmaster = psutil.Process(postmaster)
        self._connection = connection
        self._first: dict[int, float] | None = None
        self._backends: dict[int, tuple[str, float]] = {}  # pid → for whom, CPU seconds
        self._total = (0.0, 0.0)  # CPU seconds at the first look and at the last

    async def sample(self) -> None:
        """Note what each process has used so far."""
        names = {row["pid"]: row["name"] for row in await self._connection.fetch(queries("bench")["select_sessions"])}
        used, total = server_cpu(self._postmaster)
        if self._first is None:
            self._first, self._total = used, (total, total)
        self._total = self._total[0], total
        for pid, cpu in used.items():
            before = self._backends.get(pid, (_OTHER, 0.0))[0]  # it may have ended since it was asked for
            self._backends[pid] = self._kind(names[pid]) if pid in names else before, cpu

    def used(self) -> dict[str, float]:
        """CPU seconds of each kind between the first look and the last."""
        first = self._first or {}
        kinds = dict.fromkeys((*self._kinds.values(), _OTHER), 0.0)
        for pid, (kind, cpu) in self._backends.items():
            kinds[kind] += cpu - first.get(pid, 0.0)
        known = sum(seconds for kind, seconds in kinds.items() if kind != _OTHER)
        kinds[_OTHER] = max(0.0, self._total[1] - self._total[0] - known)
        return kinds

    def _kind(self, name: str) -> str:
        return next((kind for begin, kind in self._kinds.items() if name.startswith(begin)), _OTHER)


def server_cpu(postmaster: psutil.Process) -> tuple[dict[int, float], float]:
    """CPU seconds of each process of a server but the first, and of them all, those that have ended counted."""
    used = {pid: cpu for child in postmaster.children() for pid, cpu in _cpu(child)}
    own = postmaster.cpu_times()
    return used, own.user + own.system + own.children_user + own.children_system + sum(used.values())


def _cpu(process: psutil.Process) -> list[tuple[int, float]]:
    """Its id and CPU seconds; nothing where it is gone."""
    with suppress(OSError, ValueError, IndexError):
        return [(process.pid, cpu_seconds(process.pid))]
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return []
    return [(process.pid, times.user + times.system)]
