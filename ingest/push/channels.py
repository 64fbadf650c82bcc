"""Channels created by push sources: created in the database, cached on disk for when it is unavailable.

``registry.json`` has the channels that existed at the last registration; ``push.json`` beside it has those created
since. A new registration invalidates ``push.json``: it has all of them, or belongs to another database.
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

from core.database import FAILURES, connect
from core.errors import DatabaseError
from core.files import write_atomically
from core.registry import Registry
from schema.queries import load

log = logging.getLogger(__name__)

_SECONDS = 5.0  # for the creation of channels
RETRY_SECONDS = 5.0  # before another attempt after a failure of the database


@dataclass(frozen=True, slots=True)
class CreatedChannels:
    """Channels created by push sources, from the state folder."""

    registration: str  # SHA-256 of ``registry.json``
    ids: dict[str, dict[str, int]]  # source → channel's name → id
    texts: set[int]  # ids of channels of kind text
    registered: Sequence[int]  # highest ids at the registration: of sources, of channels

    @property
    def last_ids(self) -> tuple[int, int]:
        """The highest ids: of sources, of channels."""
        source, channel = self.registered
        return source, max((channel, *(number for ids in self.ids.values() for number in ids.values())))


def load_created(folder: Path) -> CreatedChannels:
    """Load the created channels. Raises OperationError if nothing is registered."""
    path = folder / "registry.json"
    registry = Registry.load(path, ())
    with path.open("rb") as file:
        registration = hashlib.file_digest(file, "sha256").hexdigest()
    ids = {source: dict(channels) for source, channels in registry.created.items()}
    created = CreatedChannels(registration, ids, set(registry.created_texts), registry.last_ids)
    try:
        since = json.loads((folder / "push.json").read_text())
    except FileNotFoundError:
        return created
    if since["registration"] == created.registration:
        for source, channels in since["created"].items():
            ids.setdefault(source, {}).update(channels)
        created.texts.update(since.get("texts", ()))
    return created


class Channels:
    """The created channels of all push sources of this process."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._folder = folder
        self._dsn = dsn
        self._lock = asyncio.Lock()
        self._failed: tuple[float, str] | None = None  # time.monotonic() of the last failure, and its reason
        self._stamp = self._registered()
        self._created = load_created(folder)

    def ids_of(self, source: str) -> Mapping[str, int]:
        """Names → ids of one source. Follows a new registration."""
        stamp = self._registered()
        if stamp != self._stamp:
            self._created = load_created(self._folder)
            self._stamp = stamp
        return self._created.ids.setdefault(source, {})

    @property
    def texts(self) -> Set[int]:
        """Channels of all sources whose kind is text."""
        return self._created.texts

    def _registered(self) -> tuple[int, int]:
        stat = (self._folder / "registry.json").stat()
        return stat.st_ino, stat.st_mtime_ns

    async def create(self, source: str, source_id: int, kinds: Mapping[str, str]) -> dict[str, int | str]:
        """Create channels (name → kind); return their ids, or for one that cannot be created the reason.

        Raises DatabaseError if the database is not available.
        """
        async with self._lock:
            ids = self.ids_of(source)
            missing = {name: kind for name, kind in kinds.items() if name not in ids}
            if missing:
                rows = await self._create_in_database(source_id, missing)
                self._save(source, [row for row in rows if _is_own(row, source_id)])
                refused = {r["name"]: _conflict(r, source_id) for r in rows if not _is_own(r, source_id)}
            else:
                refused = {}
            ids = self.ids_of(source)
            # A registration between the database's answer and now may not have them yet: the gateway sends again.
            if not (kinds.keys() - refused.keys()) <= ids.keys():
                raise DatabaseError("the plant is being registered; try again")
            return {name: refused.get(name) or ids[name] for name in kinds}

    async def _create_in_database(self, source_id: int, kinds: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        if self._failed is not None and time.monotonic() < self._failed[0] + RETRY_SECONDS:
            raise DatabaseError(self._failed[1])
        queries = load("push")
        try:
            async with asyncio.timeout(_SECONDS):
                connection = await connect(self._dsn, "plantlog push", seconds=_SECONDS / 2)
                try:
                    await connection.execute(queries["advance_ids"], *self._created.last_ids)
                    await connection.execute(queries["insert_channels"], source_id, list(kinds), list(kinds.values()))
                    rows = await connection.fetch(queries["select_channels"], list(kinds))
                finally:
                    connection.terminate()
        except FAILURES as error:
            reason = f"cannot create channels in the database: {type(error).__name__} {error}".rstrip()
            log.warning("%s", reason)
            self._failed = time.monotonic(), reason
            raise DatabaseError(reason) from error
        self._failed = None
        return [dict(row) for row in rows]

    def _save(self, source: str, new: Sequence[Mapping[str, Any]]) -> None:
        created = self._created
        created.ids.setdefault(source, {}).update({row["name"]: row["id"] for row in new})
        created.texts.update(row["id"] for row in new if row["kind"] == "text")
        content = {"registration": created.registration, "created": created.ids, "texts": sorted(created.texts)}
        write_atomically(self._folder / "push.json", json.dumps(content))
        log.info("source %s: created %d %s", source, len(new), "channel" if len(new) == 1 else "channels")


def _is_own(row: Mapping[str, Any], source_id: int) -> bool:
    """Return whether a channel was created by this source, or is identical to one that it would create."""
    return bool(row["source_id"] == source_id and row["address"] == row["name"])


def _conflict(row: Mapping[str, Any], source_id: int) -> str:
    owner = f"a tag with the address {row['address']!r}" if row["source_id"] == source_id else f"source {row['source']}"
    return f"the channel name {row['name']!r} is used by {owner}"
