"""Channels that push sources create: made in the database, remembered on disk for when it is away.

``registry.json`` has those that the last registration found; ``push.json`` beside it has those that were created
since. A new registration voids ``push.json``: it knows them all, or is one of another database.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from ingest.errors import DatabaseError
from ingest.registry import Registry, write_whole
from schema.queries import load

log = logging.getLogger(__name__)

_SECONDS = 5.0  # for all of one creation
AGAIN_SECONDS = 5.0  # after a failure the database is left alone this long
_FAILURES = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


@dataclass(frozen=True, slots=True)
class Created:
    """The channels that push sources created, as the state folder knows them."""

    registration: str  # which one that is of
    ids: dict[str, dict[str, int]]  # source → channel's name → id
    texts: set[int]  # those of kind text


def created(folder: Path) -> Created:
    """What the state folder knows. Raises OperationError where nothing was registered."""
    path = folder / "registry.json"
    registry = Registry.load(path, ())
    with path.open("rb") as file:
        registration = hashlib.file_digest(file, "sha256").hexdigest()
    ids = {source: dict(channels) for source, channels in registry.created.items()}
    known = Created(registration, ids, set(registry.created_texts))
    try:
        since = json.loads((folder / "push.json").read_text())
    except FileNotFoundError:
        return known
    if since["registration"] == known.registration:
        for source, channels in since["created"].items():
            ids.setdefault(source, {}).update(channels)
        known.texts.update(since.get("texts", ()))
    return known


class Channels:
    """The created channels of all push sources of this process."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._folder = folder
        self._dsn = dsn
        self._lock = asyncio.Lock()
        self._failed: tuple[float, str] | None = None  # time.monotonic(), and how
        self._stamp = self._registered()
        self._known = created(folder)

    def of(self, source: str) -> Mapping[str, int]:
        """Names → ids of one source. Follows a new registration."""
        stamp = self._registered()
        if stamp != self._stamp:
            self._known = created(self._folder)
            self._stamp = stamp
        return self._known.ids.setdefault(source, {})

    @property
    def texts(self) -> Set[int]:
        """Those of all sources whose kind is text."""
        return self._known.texts

    def _registered(self) -> tuple[int, int]:
        stat = (self._folder / "registry.json").stat()
        return stat.st_ino, stat.st_mtime_ns

    async def create(self, source: str, source_id: int, wanted: Mapping[str, str]) -> dict[str, int | str]:
        """Ids of new channels (name → kind), or why one cannot be created.

        Raises DatabaseError where the database can't be asked now.
        """
        async with self._lock:
            known = self.of(source)
            missing = {name: kind for name, kind in wanted.items() if name not in known}
            if missing:
                rows = await self._asked(source_id, missing)
                self._keep(source, [row for row in rows if _is_ours(row, source_id)])
                refused = {r["name"]: _taken(r, source_id) for r in rows if not _is_ours(r, source_id)}
            else:
                refused = {}
            known = self.of(source)
            # A registration between the database's answer and now may not have them yet: asked again next time.
            if not (wanted.keys() - refused.keys()) <= known.keys():
                raise DatabaseError("the plant was registered anew in this moment")
            return {name: refused.get(name) or known[name] for name in wanted}

    async def _asked(self, source_id: int, wanted: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        if self._failed is not None and time.monotonic() < self._failed[0] + AGAIN_SECONDS:
            raise DatabaseError(self._failed[1])
        queries = load("push")
        try:
            async with asyncio.timeout(_SECONDS):
                connection = await asyncpg.connect(self._dsn, server_settings={"application_name": "plantlog push"})
                try:
                    await connection.execute(queries["create"], source_id, list(wanted), list(wanted.values()))
                    rows = await connection.fetch(queries["channels"], list(wanted))
                finally:
                    connection.terminate()
        except _FAILURES as error:
            reason = f"the database can't create channels now: {type(error).__name__} {error}".rstrip()
            log.warning("%s", reason)
            self._failed = time.monotonic(), reason
            raise DatabaseError(reason) from error
        self._failed = None
        return [dict(row) for row in rows]

    def _keep(self, source: str, fresh: Sequence[Mapping[str, Any]]) -> None:
        known = self._known
        known.ids.setdefault(source, {}).update({row["name"]: row["id"] for row in fresh})
        known.texts.update(row["id"] for row in fresh if row["kind"] == "text")
        content = {"registration": known.registration, "created": known.ids, "texts": sorted(known.texts)}
        write_whole(self._folder / "push.json", json.dumps(content))
        log.info("source %s: %d new channels", source, len(fresh))


def _is_ours(row: Mapping[str, Any], source_id: int) -> bool:
    """Whether a channel was created by this source, or would be as it is."""
    return bool(row["source_id"] == source_id and row["address"] == row["name"])


def _taken(row: Mapping[str, Any], source_id: int) -> str:
    owner = f"a tag with the address {row['address']!r}" if row["source_id"] == source_id else f"source {row['source']}"
    return f"the channel's name {row['name']!r} belongs to {owner}"
