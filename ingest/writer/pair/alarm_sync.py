"""Alarm states from the table to this member's collectors.

The members of a redundant pair evaluate alarms each for itself. What an operator did at the other one, and what that
one alone has read, reaches this member's collectors from the table, so that after a take-over nothing is raised again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from uuid import UUID

import asyncpg

from core.database import FAILURES
from ingest.alarms.command_socket import request
from ingest.alarms.operator_api import AlarmRecord
from ingest.alarms.state import Alarm
from ingest.writer.pair.polled import Fetch
from schema.queries import load

log = logging.getLogger(__name__)

_SECONDS = 1.0
_OVERLAP_US = 60_000_000  # a lower revision may be committed later
_OK = 200


class AlarmSync:
    """``fetch`` asks the database; ``run_folder`` has the sockets of the collectors."""

    def __init__(self, run_folder: Path, installation: UUID, fetch: Fetch) -> None:
        self._folder = run_folder
        self._installation = installation
        self._fetch = fetch
        self._newest = 0  # revision that was seen
        self._sent: dict[tuple[int, str], int] = {}  # channel and limit → revision
        self._listeners_seen: set[tuple[str, int, int]] = set()  # sockets of the collectors

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.sync()
            except (*FAILURES, TimeoutError) as error:
                log.info("alarms: %s: %s", type(error).__name__, error)
            await asyncio.sleep(_SECONDS)

    async def sync(self) -> None:
        """Hand over what is new since the last call. Raises what the database raises."""
        if (listeners := self._listeners()) != self._listeners_seen:  # one that was started knows only its own
            self._listeners_seen, self._newest = listeners, 0
            self._sent.clear()
        since = max(0, self._newest - _OVERLAP_US)
        rows = await self._fetch(load("lease")["select_alarms"], self._installation, since)
        new = {(row["channel_id"], row["limit_name"]): row for row in rows}
        new = {key: row for key, row in new.items() if self._sent.get(key) != row["revision"]}
        if new:
            records = [asdict(AlarmRecord(*key, _alarm(row))) for key, row in new.items()]
            answers = await request(self._folder, "POST", "/alarms/states", records)
            if failed := [payload.get("error") for status, payload in answers if status != _OK]:
                log.warning("alarms: %s", "; ".join(map(str, failed)))
                return  # again
        if not self._listeners_seen:
            return
        self._newest = max((row["revision"] for row in rows), default=self._newest)
        self._sent = {key: revision for key, revision in self._sent.items() if revision > self._newest - _OVERLAP_US}
        self._sent |= {key: row["revision"] for key, row in new.items()}

    def _listeners(self) -> set[tuple[str, int, int]]:
        listeners = set()
        for path in self._folder.glob("*.alarms"):
            with suppress(FileNotFoundError):
                status = path.stat()
                listeners.add((path.name, status.st_ino, status.st_ctime_ns))
        return listeners


def _alarm(row: asyncpg.Record) -> Alarm:
    return Alarm(**{field.name: row[field.name] for field in fields(Alarm)})
