"""Passwords: argon2id hashes (RFC 9106), and rules (NIST SP 800-63B-4, 3.1.1)."""

from __future__ import annotations

import secrets
import unicodedata
from functools import cache
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError
from argon2.profiles import RFC_9106_LOW_MEMORY

from core.errors import OperationError
from core.files import file_errors

MIN_LENGTH = 12  # characters
_MAX_LENGTH = 256
_MIN_DISTINCT = 5  # of them
_MIN_NAME = 4  # characters of a name that must not be in it
LEGAL = f"{MIN_LENGTH} to {_MAX_LENGTH} characters of any kind, {_MIN_DISTINCT} of them different, not the user's name"

_hasher = PasswordHasher.from_parameters(RFC_9106_LOW_MEMORY)  # 64 MiB a hash


def hashed(name: str, password: str) -> str:
    """The hash of a new password of user ``name``. Raises OperationError, which does not reveal it."""
    text = _normal(password)
    if len(text) < MIN_LENGTH or max(len(text), len(password)) > _MAX_LENGTH:
        raise OperationError(f"password: found {len(text)} characters; legal: {LEGAL}")
    if len(set(text)) < _MIN_DISTINCT:
        raise OperationError(f"password: found {len(set(text))} different characters; legal: {LEGAL}")
    if len(name) >= _MIN_NAME and name.casefold() in text.casefold():
        raise OperationError(f"password: found the user's name in it; legal: {LEGAL}")
    return _hasher.hash(text)


def matches(stored: str | None, password: str) -> bool:
    """Return whether a password has this hash. None, for an unknown user, takes the same time, and is never right."""
    try:
        return _hasher.verify(stored or _nobody(), _normal(password[:_MAX_LENGTH])) and stored is not None
    except (VerificationError, ValueError):  # ValueError: the hash is damaged, or the password no text
        return False


def read(file: Path) -> str:
    """The password in a file, which is its first line. Raises OperationError."""
    with file_errors(file, "a file whose first line is the password"):
        return file.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")


@cache
def _nobody() -> str:
    return _hasher.hash(secrets.token_urlsafe())


def _normal(password: str) -> str:
    """Normal form of a text, which does not depend on how a keyboard composes characters."""
    return unicodedata.normalize("NFKC", password)
