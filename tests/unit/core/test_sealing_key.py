"""Files of private keys that can't be used. The writer logs what it is told about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from core.sealing_key import load_sealing_key


def pem(key: Ed25519PrivateKey | X25519PrivateKey, encryption: KeySerializationEncryption) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


ED25519, X25519 = Ed25519PrivateKey.generate(), X25519PrivateKey.generate()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"rubbish", "is not an unencrypted private key in PEM format"),
        (pem(ED25519, BestAvailableEncryption(b"password")), "is not an unencrypted private key in PEM format"),
        (pem(X25519, NoEncryption()), "is not an Ed25519 key"),
    ],
    ids=["rubbish", "with a password", "of another kind"],
)
def test_key_that_cannot_sign_is_named(tmp_path: Path, content: bytes, fault: str) -> None:
    assert load_sealing_key(tmp_path) is None
    (path := tmp_path / "secrets" / "seal.key").parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{path} {fault}$"):
        load_sealing_key(tmp_path)


def test_key_that_signs_is_read(tmp_path: Path) -> None:
    (path := tmp_path / "secrets" / "seal.key").parent.mkdir()
    path.write_bytes(pem(ED25519, NoEncryption()))
    key = load_sealing_key(tmp_path)
    assert key is not None
    assert key.public_key() == ED25519.public_key()
