"""The signing key of the installation, ``secrets/seal.key`` in the state folder, and statements of receipts."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def receipt_statement(kind: str, content: bytes, number: int | None = None) -> bytes:
    """Bytes that the signature of a receipt covers. ``number``: the id of a receipt that is valid only once."""
    bound = kind if number is None else f"{kind} {number}"
    return b"plantlog receipt 1 " + bound.encode() + b"\0" + content


def load_sealing_key(state: Path) -> Ed25519PrivateKey | None:
    """The key of seals; None: nothing was sealed yet. Raises OSError, and ValueError where it is no such key."""
    try:
        key = serialization.load_pem_private_key((state / "secrets" / "seal.key").read_bytes(), None)
    except FileNotFoundError:
        return None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{state / 'secrets' / 'seal.key'} is not an Ed25519 key")
    return key
