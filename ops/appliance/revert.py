"""``plantlog config revert``: the files of an earlier configuration replace the present ones."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import typer

from core.config.snapshot import in_force
from core.errors import OperationError
from core.files import atomic_path, write_atomically
from core.paths import State
from core.terminal import confirm
from ops.registration.revisions import FileSet, Revision, differences


@dataclass(frozen=True, slots=True)
class Replaced:
    """Files that were replaced, and how to undo that."""

    before: Mapping[Path, bytes | None] = field(default_factory=dict)  # None: there was no such file
    copies: list[Path] = field(default_factory=list)  # of those that no revision has

    def put_back(self) -> None:
        """Bring back the files as they were. Raises OperationError."""
        _write({path: content for path, content in self.before.items() if content is not None})
        for path in (*(path for path, content in self.before.items() if content is None), *self.copies):
            path.unlink(missing_ok=True)


def revert(
    state: State,
    config: Path,
    revision: Revision,
    contents: Mapping[str, bytes],
    kept: Collection[str],
    yes: bool,
) -> Replaced:
    """Show what would differ, ask, and write the files of ``revision``; ``config`` is where its ``plant.toml`` goes.

    ``contents``: of its files, by name; ``kept``: the SHA-256 of each file that any revision has: others are copied
    before they are replaced. Applies nothing. Raises NotConfirmed or OperationError, with nothing written.
    """
    paths = _paths(state, config, revision)
    before = _read(paths)
    shown = differences(FileSet("now", before), FileSet(f"revision {revision.number}", contents))
    if not shown:
        typer.echo(f"the files are those of revision {revision.number}")
        return Replaced()
    for text in shown.values():
        typer.echo(text, nl=False)
    if not yes:
        confirm(sys.stdin.isatty, lambda: typer.confirm(f"Write {', '.join(shown)}?", err=True), "written")
    now = _read(paths)
    if stale := [paths[name] for name in paths if now.get(name) != before.get(name)]:
        raise OperationError(f"{stale[0]} was changed since it was shown. Nothing was written: repeat the command")
    replaced = Replaced({path: before.get(name) for name, path in paths.items() if name in shown})
    for name in shown:
        if name in before and hashlib.sha256(before[name]).hexdigest() not in kept:
            replaced.copies.append(_copy(paths[name]))
            typer.echo(f"never applied, and kept as {replaced.copies[-1]}")
    _write({path: contents[name] for name, path in paths.items() if name in shown})
    return replaced


def _paths(state: State, config: Path, revision: Revision) -> dict[str, Path]:
    """Name of a file → where it goes. ``plant.toml`` is the first one. Raises OperationError."""
    current = in_force(state.root, ())
    member = None if current is None else current.plant.redundancy.member
    if revision.member not in (None, member):
        raise OperationError(
            f"revision {revision.number} is of member {revision.member} of the pair"
            + ("" if member is None else f", and {state.root} is member {member}")
        )
    read_now = set() if current is None else {Path(path) for path in current.digests}
    paths = {name: config.parent / name for name in sorted(revision.files, key=lambda name: name != revision.file)}
    paths[revision.file] = config
    for name, path in paths.items():
        # The database says where files go. Other folders are only ours if this appliance reads a file there.
        if (".." in Path(name).parts or Path(name).is_absolute()) and path not in read_now:
            raise OperationError(
                f"revision {revision.number} has the file {name} outside of {config.parent}, which the configuration "
                f"in force does not read: write it yourself, see `plantlog config show {revision.number} {name}`"
            )
    return paths


def _read(paths: Mapping[str, Path]) -> dict[str, bytes]:
    """Name → content of the existing files. Raises OperationError."""
    try:
        return {name: path.read_bytes() for name, path in paths.items() if path.exists()}
    except OSError as error:
        raise OperationError(f"the files can't be read: {error}. Nothing was written") from error


def _copy(path: Path) -> Path:
    copy = path.with_name(f"{path.name}.until-{datetime.now(UTC):%Y%m%dT%H%M%S}")
    try:
        write_atomically(copy, path.read_bytes())
        _copy_owner_and_mode(copy, path)
    except OSError as error:
        raise OperationError(f"{path} can't be copied: {error}. Nothing was written") from error
    return copy


def _write(contents: Mapping[Path, bytes]) -> None:
    """Replace files, the first one last; none if one can't be written. Raises OperationError."""
    try:
        with ExitStack() as replaced:
            for link, content in contents.items():
                path = link.resolve()
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = replaced.enter_context(atomic_path(path))
                partial.write_bytes(content)
                _copy_owner_and_mode(partial, path if path.exists() else path.parent)
    except OSError as error:
        raise OperationError(f"the files can't be replaced: {error}") from error


def _copy_owner_and_mode(path: Path, like: Path) -> None:
    """Owner and permissions of ``like``, a file or a folder."""
    status = like.stat()
    path.chmod(stat.S_IMODE(status.st_mode) & 0o666)
    with suppress(PermissionError):  # not root: our own
        os.chown(path, status.st_uid, status.st_gid)
