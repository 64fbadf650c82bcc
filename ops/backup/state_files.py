"""Files of a backup beside the database: keys, identity, configuration, certificates, and the notes of the spools.

One archive in the data directory, so that it is encrypted, checked, kept and restored together with its backup.
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from core.config import snapshot
from core.errors import OperationError, SpoolError
from core.files import atomic_path, write_atomically
from core.paths import State
from ingest.spool.file import connect, read_notes, write_notes

NAME = "plantlog-state.tar.gz"
_BACKED_UP = ("config", "installation", "pki", "registry.json", "secrets", "push.json", "users.json")
_DEPLOYMENT = "run/deployment.json"
_UNFINISHED = "installation.restored"


def pack(state: State, to: Path) -> None:
    """Write the archive. Raises OperationError."""
    try:
        with atomic_path(to, 0o600) as partial, tarfile.open(partial, "w:gz", compresslevel=1) as archive:
            for name in (*_BACKED_UP, _DEPLOYMENT):
                if (state.root / name).exists():
                    archive.add(state.root / name, f"state/{name}", filter=_unless_link)
            for file in _configuration_files(state):
                archive.add(file, f"files{file}")
            for spool in sorted(state.spool.glob("*.sqlite")):
                with closing(connect(spool, "FULL", create=False)) as connection:
                    content = json.dumps(read_notes(connection)).encode()
                member = tarfile.TarInfo(f"notes/{spool.name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    except (OSError, SpoolError) as error:
        raise OperationError(f"{to}: {error}") from error


def _unless_link(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Member of the archive, but for a link: in containers, the CA's key is one to a secret."""
    return None if member.issym() else member


def _configuration_files(state: State) -> list[Path]:
    """plant.toml, its tag lists, and the files that it names."""
    current = snapshot.in_force(state.root, ())
    if current is None:
        return []
    paths = [Path(path) for path in current.digests] + list(current.named_files())
    return [path for path in dict.fromkeys(paths) if path.is_file() and not path.is_relative_to(state.root)]


def changed_at(state: State) -> float:
    """Time when any of it but the notes was last changed, s since 1970."""
    kept = [path for name in _BACKED_UP for path in ((state.root / name), *(state.root / name).rglob("*"))]
    return max((path.stat().st_mtime for path in kept if path.is_file()), default=0.0)


def check(packed: Path, state: State) -> None:
    """Raises OperationError if the backup is not of the state folder's installation."""
    with _opened(packed) as archive:
        content = archive.extractfile(f"state/{state.installation.name}")
        if content is None or content.read() != state.installation.read_bytes():
            raise OperationError(
                f"the backup is of another installation than {state.root}: name a new folder with --into"
            )


def unpack(packed: Path, state: State, configuration: bool) -> list[Path]:
    """Put it all into a new state folder, but for its identity: see :func:`finish`.

    Configuration files go where they were; those that exist there are kept. Returns these. Raises OperationError.
    """
    kept: list[Path] = []
    with _opened(packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 of Debian 12 has none
        for member in archive:
            kind, _, name = member.name.partition("/")
            if kind == "state":
                member.name = _UNFINISHED if name == state.installation.name else name
                path = state.root / member.name
                if os.access(path, os.W_OK) or not path.exists():  # a secret that is mounted read-only counts
                    archive.extract(member, state.root)
            elif kind == "files" and not configuration:
                continue
            elif kind == "files" and (path := Path("/", name)).exists():
                kept.append(path)
            elif kind == "files" and (content := archive.extractfile(member)) is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content.read(), member.mode & 0o777)
            elif kind == "notes" and (content := archive.extractfile(member)) is not None:
                # The sequences of a new spool file begin after all that were ever used.
                with closing(connect(state.spool / Path(name).name, "FULL", create=True)) as spool:
                    write_notes(spool, json.loads(content.read()))
    return kept


def finish(state: State) -> None:
    """The state folder has all of the backup: give it its identity, without which it counts as new."""
    with suppress(FileNotFoundError):
        (state.root / _UNFINISHED).rename(state.installation)


@contextmanager
def _opened(packed: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(packed) as archive:
            yield archive
    except (OSError, KeyError, tarfile.TarError, ValueError, sqlite3.Error, SpoolError) as error:
        raise OperationError(f"{packed.name} of the backup can't be unpacked: {error}") from error
