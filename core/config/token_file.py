"""Token files: the SHA-256 of each token that a gateway may show, a line each. All of them are valid.

::

    sha256:<64 hexadecimal digits>  # created 2026-11-25 by anna

Tokens are 256 random bits, so a plain SHA-256 is enough: a salt and a slow hash, as passwords need them, are against
dictionaries, and no dictionary has these.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from core.files import write_atomically

MAX_TOKENS = 8
_MIN_LENGTH = 16  # characters of a token
_MIN_DISTINCT = 8  # of them
TOKEN_LEGAL = (
    f"one line of {_MIN_LENGTH} or more characters, {_MIN_DISTINCT} of them different, as `openssl rand -hex 24` gives"
)
_MAX_BYTES = 65_536
_LINE = re.compile(r"sha256:([0-9a-f]{64})\s*(?:#\s*(.*))?")


@dataclass(frozen=True, slots=True)
class TokenHash:
    """The hash of a token."""

    digest: bytes
    comment: str = ""

    @property
    def short(self) -> str:
        """The first hexadecimal digits, for people."""
        return self.digest.hex()[:8]

    def __str__(self) -> str:
        """The line of a token file."""
        return f"sha256:{self.digest.hex()}" + (f"  # {self.comment}" if self.comment else "")


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Content of a token file. With a fault, no hash of it is valid."""

    hashes: tuple[TokenHash, ...] = ()
    fault: tuple[str, str] | None = None  # found, which does not reveal a token, and legal


def digest_of(token: bytes) -> bytes:
    """SHA-256 of a token."""
    return hashlib.sha256(token).digest()


def hash_of(token: str, comment: str = "") -> TokenHash:
    """The hash of a token, for a token file."""
    return TokenHash(digest_of(token.encode(errors="surrogateescape")), comment)


def read(file: Path) -> bytes:
    """The content of a file, at most 64 KiB. Raises OSError."""
    with file.open("rb") as content:
        return content.read(_MAX_BYTES)


def write(file: Path, token: str) -> None:
    """Write a token file with the hash of one token. Raises OSError."""
    write_atomically(file, f"{hash_of(token)}\n", 0o600)


def lines(content: bytes) -> list[str]:
    """The lines, without spaces at their ends."""
    return [line.strip() for line in content.decode(errors="surrogateescape").split("\n")]


def hash_in(line: str) -> TokenHash | None:
    """The hash in a line; None: it has none."""
    match = _LINE.fullmatch(line)
    return match and TokenHash(bytes.fromhex(match[1]), match[2] or "")


def is_token(line: str) -> bool:
    """Return whether a line is a token itself, in one word."""
    return len(line.split()) == 1 and not line.startswith(("#", "sha256:"))


def parse(content: bytes, source: str, config: Path | None = None) -> TokenFile:
    """The hashes in the token file of ``source``. Empty lines and comments are skipped.

    ``config``: the plant.toml that commands in messages name; None: that of the last ``up``.
    """
    by_digest: dict[bytes, TokenHash] = {}
    others: list[int] = []  # numbers of lines without a hash
    all_lines = lines(content)
    for number, line in enumerate(all_lines, 1):
        if not line or line.startswith("#"):
            continue
        token = hash_in(line)
        if token is None:
            others.append(number)
        elif token.digest in by_digest:
            return TokenFile(fault=(f"a hash again in line {number}", "each hash once"))
        else:
            by_digest[token.digest] = token
    if len(others) == 1 and is_token(all_lines[others[0] - 1]):
        return TokenFile(fault=(f"a token in line {others[0]}", f"its hash: run {command('hash', source, config)}"))
    if others:
        legal = f"sha256: and 64 hexadecimal digits, as {command('add', source, config)} writes them"
        return TokenFile(fault=(f"no hash in line {others[0]}", legal))
    if not by_digest:
        return TokenFile(fault=("no hash", f"one or more: run {command('add', source, config)}"))
    if len(by_digest) > MAX_TOKENS:
        legal = f"at most {MAX_TOKENS}: run {command('remove', source, config)}"
        return TokenFile(fault=(f"{len(by_digest)} hashes", legal))
    return TokenFile(tuple(by_digest.values()))


def command(name: str, source: str, config: Path | None) -> str:
    """``plantlog source token NAME`` for a source of the file ``config``."""
    option = "" if config is None else f" --config {shlex.quote(str(config))}"
    return f"plantlog source token {name} {source}{option}"


def token_fault(token: bytes) -> str | None:
    """Fault of a token, which the text does not reveal; None: there is none."""
    if len(token.split()) != 1:
        return "nothing" if not token.split() else "spaces or line breaks in it"
    if len(token) < _MIN_LENGTH:
        return f"{len(token)} characters"
    if len(set(token)) < _MIN_DISTINCT:
        return f"{len(set(token))} different characters"
    return None
