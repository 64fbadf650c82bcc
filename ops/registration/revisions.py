"""The configurations that were applied, kept in the database: who applied which files, and when."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from core.accounts import account_name
from core.database import connected, database_errors
from core.errors import OperationError
from core.installation import installation_of
from core.paths import State
from ops.registration.difference import Difference
from schema.queries import load


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a configuration as they were read: ``plant.toml``, tag lists, instance lists."""

    config: Path  # plant.toml
    digests: Mapping[str, str]  # path → SHA-256

    @property
    def names(self) -> dict[str, str]:
        """Name in a revision → SHA-256: the path from the folder of ``plant.toml``, or an absolute one elsewhere."""
        folder = self.config.parent
        paths = ((Path(path), sha256) for path, sha256 in self.digests.items())
        return {str(path.relative_to(folder) if path.is_relative_to(folder) else path): sha for path, sha in paths}


@dataclass(frozen=True, slots=True)
class Revision:
    """A configuration that was applied, the columns of ``plant.config_revision``."""

    number: int
    applied_at: datetime
    account: str  # the operating system's
    sudo_user: str | None
    host: str
    command: str
    member: int | None  # of a redundant pair
    added: int  # channels
    moved: int
    changed: int
    retired: int
    file: str  # name of plant.toml
    files: Mapping[str, str]  # name → SHA-256

    @property
    def who(self) -> str:
        """The account, and who became it by sudo."""
        return f"{self.sudo_user} as {self.account}" if self.sudo_user else self.account

    def to_json(self) -> dict[str, Any]:
        """Revision as JSON."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "applied_at": self.applied_at.isoformat(), "files": dict(self.files)}


async def record(
    connection: asyncpg.Connection[Any], installation: UUID, files: Files, difference: Difference, member: int | None
) -> int | None:
    """Keep a configuration in the caller's transaction, unless its files are those of the newest revision.

    Returns the number of the new revision. Raises OperationError if a file was changed since it was read.
    """
    queries, names = load("revisions"), files.names
    newest = await connection.fetchrow(queries["select_newest"], installation, member)
    if newest is not None and (newest["file"], json.loads(newest["files"])) == (files.config.name, names):
        return None
    missing = {row["sha256"] for row in await connection.fetch(queries["select_missing"], list(names.values()))}
    for path, sha256 in files.digests.items():
        if sha256 in missing:
            await connection.execute(queries["insert_file"], sha256, _content(path, sha256))
            missing.remove(sha256)
    counts = difference.counts()
    number: int = await connection.fetchval(
        queries["insert_revision"],
        installation,
        account_name(os.geteuid()) or str(os.geteuid()),
        _text(os.environ.get("SUDO_USER") or None),
        socket.gethostname(),
        _text(shlex.join(("plantlog", *sys.argv[1:]))),
        member,
        *(counts[change] for change in ("added", "moved", "changed", "retired")),
        files.config.name,
        json.dumps(names),
    )
    return number


def _text(value: str | None) -> str | None:
    """Text of the environment or arguments, which need not be UTF-8."""
    return value and value.encode(errors="backslashreplace").decode()


def _content(path: str, sha256: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError:
        content = b""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise OperationError(f"{path} was changed since it was read. Nothing was applied: repeat the command")
    return content


def revisions(state: State, limit: int | None = None) -> list[Revision]:
    """The revisions of this installation, newest first. Raises OperationError if there are none, DatabaseError."""
    rows = asyncio.run(_fetch(state, "select_revisions", installation_of(state.root), limit))
    if not rows:
        raise OperationError("no configuration is kept yet: run `plantlog up`")
    return [Revision(**{**row, "files": json.loads(row["files"])}) for row in rows]


def find(number: int, applied: Sequence[Revision]) -> Revision:
    """The revision of this number. Raises OperationError."""
    for revision in applied:
        if revision.number == number:
            return revision
    raise OperationError(f"there is no revision {number}; legal: 1 to {applied[0].number}, see `plantlog config log`")


def contents(state: State, revision: Revision) -> dict[str, bytes]:
    """The files of a revision by name. Raises OperationError if they are not those that were applied, DatabaseError."""
    rows = asyncio.run(_fetch(state, "select_files", list(revision.files.values())))
    kept = {row["sha256"]: row["content"] for row in rows}
    for name, sha256 in revision.files.items():
        if hashlib.sha256(kept.get(sha256, b"")).hexdigest() != sha256:
            raise OperationError(
                f"{name} of revision {revision.number} is not what was applied: plant.config_file has another content "
                f"than that with the SHA-256 {sha256}"
            )
    return {name: kept[sha256] for name, sha256 in revision.files.items()}


async def _fetch(state: State, query: str, *arguments: Any) -> list[asyncpg.Record]:
    """Fetch rows as the owner: only the owner can read contents."""
    with database_errors():
        async with connected(state.dsn("owner"), "plantlog config") as connection:
            return await connection.fetch(load("revisions")[query], *arguments)


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of a revision, or the present ones."""

    label: str
    files: Mapping[str, bytes]  # name → content


def differences(old: FileSet, new: FileSet) -> dict[str, str]:
    """Name → diff, of each file that differs. A missing file is ``/dev/null``."""
    names = sorted(old.files.keys() | new.files.keys())
    differing = (name for name in names if old.files.get(name) != new.files.get(name))
    return {name: "".join(_lines(name, old, new)) for name in differing}


def _lines(name: str, old: FileSet, new: FileSet) -> Iterator[str]:
    (before, former), (after, latter) = (
        (_content_lines(side.files.get(name, b"")), name if name in side.files else "/dev/null") for side in (old, new)
    )
    for line in unified_diff(before, after, former, latter, old.label, new.label):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _content_lines(content: bytes) -> list[str]:
    """Lines with their ends, which are line feeds alone; what is not UTF-8 as escapes."""
    return list(StringIO(content.decode(errors="backslashreplace"), newline="\n"))
