"""The keys that seals are signed with: ``secrets/seal.key`` in the state folder; public ones in ``plant.seal_key``."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import asyncpg
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from core.errors import OperationError
from core.files import file_errors, write_atomically
from core.paths import State
from core.sealing_key import load_private_key
from core.timestamps import microseconds, now_us, utc
from history.reading.scope import own_scope_number
from history.standalone import Key, UnverifiableError, read_keys
from schema.queries import load

_FILE = "seal.key"
_NEXT_FILE = "seal.key.next"  # between the database's record of a new key and its taking effect
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Signer:
    """The private key in use."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw().hex()
        self.fingerprint = Key(self.public, 0).fingerprint

    def sign(self, statement: bytes) -> str:
        """Signature in hex."""
        return self._private.sign(statement).hex()

    def pem(self) -> str:
        """The public key."""
        return public_pem(self.public)


def public_pem(public: str) -> str:
    """A public key, given in hex, in PEM form."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(encoding, form).decode()


def key_path(state: State) -> Path:
    """Path of the private key."""
    return state.root / "secrets" / _FILE


def load_signer(state: State, name: str = _FILE) -> Signer | None:
    """The private key, None where there is none. Raises OperationError where it can't be used, with the way out."""
    path = key_path(state).with_name(name)
    try:
        mode = path.stat().st_mode
        if mode & _GROUP_AND_OTHERS:
            raise OperationError(f"{path} is readable by others ({mode & 0o777:o}): run chmod 600, and consider "
                                 "`plantlog evidence seal --rotate-key`")  # fmt: skip
        return Signer(load_private_key(path))
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise OperationError(f"{path}: permission denied") from error
    except ValueError as error:
        raise OperationError(f"{error}: restore the file") from error


def _generate(state: State, name: str) -> Signer:
    private = Ed25519PrivateKey.generate()
    path = key_path(state).with_name(name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    write_atomically(path, private.private_bytes(encoding, form, serialization.NoEncryption()), 0o600)
    return Signer(private)


async def stored_keys(connection: asyncpg.Connection[Any], chain: int) -> list[Key]:
    """The public keys of an installation that the database knows, in the order in which they were made."""
    rows = await connection.fetch(load("evidence")["select_keys"], chain)
    return [
        Key(
            row["public"].hex(),
            microseconds(row["made_at"]),
            (row["succeeds"] or b"").hex(),
            row["own_signature"].hex(),
            (row["former_signature"] or b"").hex(),
        )
        for row in rows
    ]


async def signer(connection: asyncpg.Connection[Any], state: State, new: bool = False) -> Signer:
    """The key to sign with, made on first use and known to the database.

    ``new``: make one that no other vouches for, where the old one is lost. Raises OperationError.
    """
    chain = max(await own_scope_number(connection, state), 1)
    stored = {key.fingerprint: key for key in await stored_keys(connection, chain)}
    next_key = load_signer(state, _NEXT_FILE)
    if next_key is not None and next_key.fingerprint in stored:  # a rotation that was interrupted
        key_path(state).with_name(_NEXT_FILE).replace(key_path(state))
    own_key = load_signer(state)
    if stored and not new and (own_key is None or own_key.fingerprint not in stored):
        raise OperationError(
            f"{_unusable(state, own_key, stored)}: restore the file, or use `plantlog evidence seal --new-key` to "
            "create a key that the old one has not signed"
        )
    if own_key is None:
        own_key = _generate(state, _FILE)
    if own_key.fingerprint not in stored:
        await _record(connection, chain, own_key, None)
    return own_key


async def check_member(connection: asyncpg.Connection[Any], state: State) -> None:
    """Raise OperationError if a member of a redundant pair has not the key that the pair seals with."""
    stored = {
        key.fingerprint for key in await stored_keys(connection, max(await own_scope_number(connection, state), 1))
    }
    own_keys = [load_signer(state), load_signer(state, _NEXT_FILE)]
    if stored and not any(key is not None and key.fingerprint in stored for key in own_keys):
        raise OperationError(
            f"{_unusable(state, own_keys[0], stored)}: copy the folder `secrets` from the state folder of the other "
            "member, as both sign with one key"
        )


def _unusable(state: State, own_key: Signer | None, stored: Iterable[str]) -> str:
    fault = "is missing" if own_key is None else f"is key {own_key.fingerprint[:16]}, which is unknown to this database"
    return f"{key_path(state)} {fault}; seals are signed by {', '.join(name[:16] for name in stored)}"


async def rotate(connection: asyncpg.Connection[Any], state: State) -> Signer:
    """A new key in place of the one in use, each vouching for the other. Raises OperationError."""
    previous_key = await signer(connection, state)
    own_key = _generate(state, _NEXT_FILE)
    await _record(connection, max(await own_scope_number(connection, state), 1), own_key, previous_key)
    key_path(state).with_name(_NEXT_FILE).replace(key_path(state))
    return own_key


async def _record(
    connection: asyncpg.Connection[Any], chain: int, own_key: Signer, previous_key: Signer | None
) -> None:
    made_at = now_us()
    key = Key(own_key.public, made_at, previous_key.fingerprint if previous_key else "")
    await connection.execute(
        load("evidence")["insert_key"],
        bytes.fromhex(own_key.fingerprint),
        bytes.fromhex(own_key.public),
        utc(made_at),
        bytes.fromhex(previous_key.fingerprint) if previous_key else None,
        bytes.fromhex(own_key.sign(key.statement())),
        bytes.fromhex(previous_key.sign(key.statement())) if previous_key else None,
        chain,
    )


def trust_anchors(state: State, key: Path | None) -> list[str] | None:
    """The public keys to trust: a file's, or our own; None: there is none. Raises OperationError."""
    if key is None:
        own_key = load_signer(state)
        return None if own_key is None else [own_key.public]
    with file_errors(key, "a public key in PEM format"):
        content = key.read_bytes()
    try:
        return read_keys(content)
    except UnverifiableError as error:
        raise OperationError(f"{key}: {error}") from error
