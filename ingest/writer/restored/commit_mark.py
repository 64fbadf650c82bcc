"""The writer's mark: which database it committed to, and the newest batches of it, in ``spool/committed.json``.

It has only batches that have left the spool, for what is still there is written again in any case.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from core import metrics
from core.batch import SampleBatch
from core.files import write_atomically
from core.timestamps import now_us
from ingest.spool.format import SpooledBatch

log = logging.getLogger(__name__)

FILE = "committed.json"
Key: TypeAlias = tuple[int, int]  # source id and sequence, as in plant.ingest_batch

_KEYS = 100  # newest batches: connections commit in any order, and a loss is one of the newest


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """State of a database, as the writer knows it. Times are µs."""

    server: str | None  # system identifier and timeline; None: none yet
    registered: str | None  # when the state folder was registered in the database
    since: int  # what was committed before this may be in another database
    keys: Sequence[tuple[int, int, int]]  # newest batches: source id, sequence, when it was committed
    newest: dict[int, int]  # source id → time of its newest sample
    noticed_at: int | None  # when a loss was noticed that is not recorded yet


class CommitMark:
    """The mark in the spool folder ``spool``. Not thread-safe."""

    def __init__(self, spool: Path) -> None:
        self._path = spool / FILE
        try:
            fields: dict[str, Any] = json.loads(self._path.read_text())
            self._server: str | None = fields["server"]
            self._registered: str | None = fields["registered"]
            self._since: int = fields["since"]
            self._keys = deque(((s, n, at) for s, n, at in fields["keys"]), _KEYS)
            self._newest = {int(source): int(time) for source, time in fields["newest"].items()}
            self._noticed_at: int | None = fields["noticed_at"]
            self._restored_at: int | None = fields["restored_at"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or damaged: compared from now on
            self._server = self._registered = self._noticed_at = self._restored_at = None
            self._since, self._keys, self._newest = 0, deque(maxlen=_KEYS), {}
        self._changed = False
        self._show()

    def state(self) -> DatabaseState:
        """State of the database, a copy."""
        return DatabaseState(
            self._server, self._registered, self._since, tuple(self._keys), dict(self._newest), self._noticed_at
        )

    def committed(self, batches: Iterable[tuple[Path, Sequence[SpooledBatch]]]) -> None:
        """Remember batches that are in the database, and leave the spool."""
        now = now_us()
        for spooled in (batch for _, of_file in batches for batch in of_file):
            source, sequence = spooled.key
            self._keys.append((source, sequence, now))
            if isinstance(spooled.batch, SampleBatch):
                time = min(spooled.last_time, spooled.batch.received_at)  # no time that is still to come
                self._newest[source] = max(time, self._newest.get(source, time))
            self._changed = True

    def begin(self, server: str, registered: str | None) -> None:
        """Begin with another database: nothing was committed to it."""
        self._registered, self._since, self._noticed_at = registered, now_us(), None
        self._forget()
        self.move(server)

    def move(self, server: str) -> None:
        """The database is on this server or timeline."""
        self._server, self._changed = server, True
        self.save()

    def begin_restored(self, server: str, at: int, compared: DatabaseState) -> None:
        """Begin with a database whose loss, noticed ``at``, is recorded. Raises OSError.

        What a connection to the former server committed after ``compared`` is kept, to be compared next.
        """
        self._server, self._noticed_at, self._restored_at = server, None, at
        later = [key for key in self._keys if key not in set(compared.keys)]
        self._forget()
        self._keys.extend(later)
        self._write()
        self._show()

    def _forget(self) -> None:
        self._keys.clear()
        self._newest.clear()

    def notice(self, at: int) -> None:
        """Remember, durably, that a loss is to be recorded. Raises OSError."""
        self._noticed_at = at
        self._write()

    def save(self) -> None:
        """Write the mark if it has changed. To be called once a second."""
        if self._changed:
            try:
                self._write()
            except OSError as error:
                log.debug("%s: %s", self._path, error)  # an older mark does; collectors report the disk

    def _write(self) -> None:
        content = {
            "server": self._server,
            "registered": self._registered,
            "since": self._since,
            "keys": list(self._keys),
            "newest": self._newest,
            "noticed_at": self._noticed_at,
            "restored_at": self._restored_at,
        }
        write_atomically(self._path, json.dumps(content))
        self._changed = False

    def _show(self) -> None:
        metrics.database_restored.set((self._restored_at or 0) / 1e6)
