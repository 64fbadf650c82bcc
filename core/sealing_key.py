"""The signing key of the installation, ``secrets/seal.key`` in the state folder, and statements of receipts."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def receipt_statement(kind: str, content: bytes, number: int | None = None) -> bytes:
    """Bytes that the signature of a receipt covers. ``number``: the id of a receipt that is valid only once."""
    bound = kind if number is None else f"{kind} {number}"
    return b"plantlog receipt 1 " + bound.encode() + b"\0" + content


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """A key that signs, from its file. Raises OSError, and ValueError with what is wrong with the file."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"{path} is not an unencrypted private key in PEM format") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path} is not an Ed25519 key")
    return key


def load_sealing_key(state: Path) -> Ed25519PrivateKey | None:
    """The key of seals; None: nothing was sealed yet. Raises as :func:`load_private_key`."""
    try:
        return load_private_key(state / "secrets" / "seal.key")
    except FileNotFoundError:
        return None
