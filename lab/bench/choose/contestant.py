"""The interface of a contestant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from lab.bench.data import Columns, Minutes, Raw


class Contestant(Protocol):
    """A database that is started for the measurement, filled, asked and thrown away.

    Whatever it refuses is an exception of any kind; the bench puts it on record. A contestant that was stopped can be
    started again, in another folder.
    """

    name: str
    installation: str  # how its own documentation installs it
    settings: str  # its bulk path, and what an acknowledged write has survived

    def available(self) -> str | None:
        """Reason why it can't take part here; None: it can."""

    async def start(self, folder: Path) -> None:
        """Start it with its data in ``folder``, on loopback only."""

    async def create(self, names: Sequence[str], units: Sequence[str]) -> None:
        """Make an empty table, and the metadata of channels 1 to len(names)."""

    async def write(self, columns: Columns, client: int) -> None:
        """Return when it acknowledges them. Clients, from 0, write at the same time."""

    async def wait_until_visible(self) -> None:
        """Return when queries see all that was acknowledged."""

    async def settle(self, before: int) -> None:
        """Bring what is older than ``before`` (µs, a midnight) into the form that it has for good."""

    async def raw(self, channel: int, first: int, last: int) -> Raw:
        """The samples of ``channel`` from ``first`` to before ``last``, in µs, by time."""

    async def by_minute(self, channel: int, first: int, last: int) -> Minutes:
        """Means of them by the minute, without those that are Bad."""

    async def size(self) -> int:
        """Bytes on disk of samples and metadata with their indexes, without logs that are used again."""

    async def stop(self) -> None:
        """End it, whatever state it is in."""
