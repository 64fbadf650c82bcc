"""The keys that seals are signed with: ``secrets/seal.key`` in the state folder; public ones in ``plant.seal_key``."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import asyncpg
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ingest.batch import now_us
from ingest.errors import OperationError
from ops.evidence.reading import microseconds, moment_of
from ops.evidence.standalone import Key, Unsound, read_keys
from ops.paths import State
from schema.queries import load

_FILE = "seal.key"
_NEXT = "seal.key.next"  # between the database's record of a new key and its taking effect
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


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


def path_of(state: State) -> Path:
    """Where the private key is."""
    return state.root / "secrets" / _FILE


def load_signer(state: State, name: str = _FILE) -> Signer | None:
    """The private key, None where there is none. Raises OperationError where it can't be used, with the way out."""
    path = path_of(state).with_name(name)
    try:
        mode = path.stat().st_mode
        if mode & _OTHERS:
            raise OperationError(f"{path} may be read by others ({mode & 0o777:o}): chmod 600 it, and consider "
                                 "`plantlog seal --rotate-key`")  # fmt: skip
        private = serialization.load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise OperationError(f"{path} can't be read by this user") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise OperationError(f"{path} is no private key in PEM form without a password: restore it") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise OperationError(f"{path} is not an Ed25519 key: restore it")
    return Signer(private)


def _make(state: State, name: str) -> Signer:
    private = Ed25519PrivateKey.generate()
    path = path_of(state).with_name(name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        file.write(private.private_bytes(encoding, form, serialization.NoEncryption()))
        file.flush()
        os.fsync(descriptor)
    return Signer(private)


async def stored_keys(connection: asyncpg.Connection[Any]) -> list[Key]:
    """All public keys that the database knows, in the order in which they were made."""
    rows = await connection.fetch(load("evidence")["keys"])
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
    known = {key.fingerprint: key for key in await stored_keys(connection)}
    coming = load_signer(state, _NEXT)
    if coming is not None and coming.fingerprint in known:  # a rotation that was interrupted
        path_of(state).with_name(_NEXT).replace(path_of(state))
    ours = load_signer(state)
    if known and not new and (ours is None or ours.fingerprint not in known):
        found = (
            "is missing" if ours is None else f"is the key {ours.fingerprint[:16]}, which this database does not know"
        )
        raise OperationError(
            f"{path_of(state)} {found}; its seals are signed by {', '.join(name[:16] for name in known)}: restore the "
            "file, or go on with `plantlog seal --new-key`, a key that the old one does not vouch for"
        )
    if ours is None:
        ours = _make(state, _FILE)
    if ours.fingerprint not in known:
        await _record(connection, ours, None)
    return ours


async def rotate(connection: asyncpg.Connection[Any], state: State) -> Signer:
    """A new key in place of the one in use, each vouching for the other. Raises OperationError."""
    former = await signer(connection, state)
    ours = _make(state, _NEXT)
    await _record(connection, ours, former)
    path_of(state).with_name(_NEXT).replace(path_of(state))
    return ours


async def _record(connection: asyncpg.Connection[Any], ours: Signer, former: Signer | None) -> None:
    made_at = now_us()
    key = Key(ours.public, made_at, former.fingerprint if former else "")
    await connection.execute(
        load("evidence")["add_key"],
        bytes.fromhex(ours.fingerprint),
        bytes.fromhex(ours.public),
        moment_of(made_at),
        bytes.fromhex(former.fingerprint) if former else None,
        bytes.fromhex(ours.sign(key.statement())),
        bytes.fromhex(former.sign(key.statement())) if former else None,
    )


def anchors(state: State, key: Path | None) -> list[str] | None:
    """The public keys to trust: a file's, or our own; None: there is none to hold on to. Raises OperationError."""
    if key is None:
        ours = load_signer(state)
        return None if ours is None else [ours.public]
    try:
        return read_keys(key.read_bytes())
    except (OSError, Unsound) as error:
        raise OperationError(f"{key}: {error}") from error
