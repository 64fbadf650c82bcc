"""The tokens of gateways: made, listed, removed. See ``core/config/token_file.py`` for the files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from core.accounts import account_name
from core.config.load import load_token_files
from core.config.token_file import (
    MAX_TOKENS,
    TOKEN_LEGAL,
    TokenHash,
    digest_of,
    hash_in,
    hash_of,
    is_token,
    lines,
    parse,
    read,
    token_fault,
)
from core.errors import OperationError
from core.files import atomic_path, file_errors, folder_lock
from core.paths import State
from ops import health
from ops.deployment import Running, chosen_config

_BYTES = 32  # of a token, before it is written in base64
_MIN_PREFIX = 4  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class ListedToken:
    """A valid token."""

    source: str
    short: str
    comment: str
    used_at: int | None  # µs; 0: not since the collector was started; None: it does not answer


def token_file_of(source: str, config: Path | None, state: State) -> Path:
    """The token file of a source, which may not exist yet. Raises ConfigError or OperationError."""
    files, path = _token_files(config, state)
    if source not in files:
        names = f"it has {', '.join(sorted(files))}" if files else "it has none"
        raise OperationError(f"{path} has no push source {source} with a token_file; {names}")
    return files[source]


def add(file: Path, source: str, state: State) -> str:
    """Make a token, and append its hash to the file. Raises OperationError."""
    token = secrets.token_urlsafe(_BYTES)

    def appended(content: list[str]) -> list[str]:
        hashes = _hashes(file, content, source) if any(content) else ()
        if len(hashes) == MAX_TOKENS:
            raise OperationError(
                f"{file} has {MAX_TOKENS} tokens: remove one first (plantlog source token list {source})"
            )
        return [*content, str(hash_of(token, _comment("created")))]

    _edit(file, appended, state)
    return token


def remove(file: Path, source: str, prefix: str, state: State) -> TokenHash:
    """Remove the token whose hash begins with ``prefix``. Raises OperationError."""
    digits = prefix.lower().removeprefix("sha256:")
    if len(digits) < _MIN_PREFIX:
        raise OperationError(
            f"{prefix!r} is too short: give {_MIN_PREFIX} or more digits (plantlog source token list {source})"
        )
    removed: list[TokenHash] = []

    def without(content: list[str]) -> list[str]:
        hashes = _hashes(file, content, source)
        removed[:] = [token for token in hashes if token.digest.hex().startswith(digits)]
        if len(removed) != 1:
            matches = f"{len(removed)} tokens" if removed else "no token"
            raise OperationError(f"source {source} has {matches} whose hash begins with {prefix}")
        if len(hashes) == 1:
            raise OperationError(
                f"{removed[0].short} is the only token of source {source}: add another one first "
                f"(plantlog source token add {source})"
            )
        return [line for line in content if hash_in(line) not in removed]

    _edit(file, without, state)
    return removed[0]


def hash_plain(file: Path, source: str, state: State) -> TokenHash | None:
    """Replace a token in the file by its hash; None: there is none. The gateway goes on using it.

    Raises OperationError, also where more lines than one are no hash: then it is another file.
    """
    replaced: list[TokenHash] = []

    def hashed(content: list[str]) -> list[str]:
        tokens = [number for number, line in enumerate(content) if is_token(line)]
        if len(tokens) != 1:
            _hashes(file, content, source)
            return content
        token = content[tokens[0]].encode(errors="surrogateescape")
        if (fault := token_fault(token)) is not None:
            raise OperationError(f"{file} has a token with {fault}; legal: {TOKEN_LEGAL}")
        replaced.append(TokenHash(digest_of(token), _comment("hashed")))
        lines = [*content[: tokens[0]], str(replaced[0]), *content[tokens[0] + 1 :]]
        _hashes(file, lines, source)
        return lines

    _edit(file, hashed, state)
    return replaced[0] if replaced else None


def list_tokens(source: str | None, config: Path | None, state: State) -> list[ListedToken]:
    """The tokens of a source, or of all. Raises ConfigError or OperationError."""
    files = _token_files(config, state)[0] if source is None else {source: token_file_of(source, config, state)}
    running = Running.load(state)
    report = None if running is None else health.fetch("collector-push", running.health, state.root)
    tokens = []
    for name, file in files.items():
        used = (report or {}).get("tokens", {}).get(name, {})
        with file_errors(file):
            hashes = _hashes(file, lines(read(file)), name)
        tokens += [ListedToken(name, token.short, token.comment, used.get(token.short)) for token in hashes]
    return tokens


def _token_files(config: Path | None, state: State) -> tuple[dict[str, Path], Path]:
    """Token files by source, and the configuration file, by default the last one that was used."""
    path = chosen_config(config, state)
    return load_token_files(path), path


def _hashes(file: Path, content: list[str], source: str) -> tuple[TokenHash, ...]:
    tokens = parse("\n".join(content).encode(errors="surrogateescape"), source)
    if tokens.fault is not None:
        raise OperationError("{}: found {}; legal: {}".format(file, *tokens.fault))
    return tokens.hashes


def _comment(what: str) -> str:
    """Comment for people: by whom, and when."""
    name = account_name(os.getuid()) or f"uid {os.getuid()}"
    return f"{what} {datetime.now(UTC):%Y-%m-%d} by {os.environ.get('SUDO_USER', name)}"


def _edit(file: Path, change: Callable[[list[str]], list[str]], state: State) -> None:
    """Replace the lines of a token file. It keeps its owner; a new file belongs to the owner of the state folder."""
    file = file.resolve()  # a link stays one
    with file_errors(file), folder_lock(file.parent):
        content = lines(read(file)) if file.exists() else []
        if content and not content[-1]:
            content.pop()
        owner = next((path.stat() for path in (file, state.root) if path.exists()), None)
        changed = change(content)
        with atomic_path(file, 0o600) as partial:
            partial.write_bytes(("\n".join(changed) + "\n").encode(errors="surrogateescape"))
            if owner is not None and owner.st_uid != os.geteuid():
                os.chown(partial, owner.st_uid, owner.st_gid)
