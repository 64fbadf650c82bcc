"""plantlog's own application instance certificate (OPC 10000-6, 6.2.2): created once, renewed only on request.

Servers trust exactly this certificate, so an automatic renewal would lock plantlog out. The application URI is the one
in the certificate: unique per installation, and unchanged by a renewal.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from core.errors import SourceError
from core.files import folder_lock, write_atomically

DAYS = 5 * 365  # validity of a new certificate
_RENEW_HINT = f"create a new one with `plantlog source certificate renew` ({DAYS} days); each server must then trust it"


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity shown to servers: certificate, key, and the application URI in the certificate."""

    certificate: x509.Certificate
    key: RSAPrivateKey
    path: Path  # of the certificate

    @property
    def uri(self) -> str:
        """The application URI."""
        return application_uris(self.certificate)[0]

    def __str__(self) -> str:
        mark, end = thumbprint(self.certificate), expires_at(self.certificate)
        return f"{self.path} (application URI {self.uri}, thumbprint {mark}, ends {end:%Y-%m-%d})"


def identity(pki: Path) -> Identity:
    """Load the identity from ``pki``; create it if missing. Raises SourceError if it is incomplete or unreadable."""
    key_path, path = paths(pki)
    existing = [p for p in (key_path, path) if p.exists()]
    if not existing:
        with folder_lock(pki):
            if not path.exists():  # another process may have created one meanwhile
                return make(pki, f"urn:plantlog:{uuid.uuid4()}")
    try:
        return load_identity(path.read_bytes(), key_path.read_bytes(), path)
    except FileNotFoundError as error:
        raise SourceError(f"{error.filename} is missing beside {existing[0]}: restore it, or {_RENEW_HINT}") from error
    except OSError as error:
        raise SourceError(f"cannot read plantlog's certificate: {error}") from error


def make(pki: Path, uri: str, days: int = DAYS) -> Identity:
    """Create a new key and certificate. Previous ones are kept in ``replaced``."""
    # Importing asyncua takes time, and is not needed to read certificates.
    from asyncua.crypto.cert_gen import generate_self_signed_app_certificate  # noqa: PLC0415

    key = generate_private_key(public_exponent=65537, key_size=2048)
    names = [x509.UniformResourceIdentifier(uri), x509.DNSName(socket.gethostname())]
    usage = [ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = generate_self_signed_app_certificate(key, "plantlog", {}, names, usage, days)
    return store(pki, certificate, key)


def renew(pki: Path, days: int = DAYS) -> Identity:
    """Create a new key and certificate for the same application URI. Raises SourceError if the old is unreadable."""
    _, path = paths(pki)
    if not path.exists():
        return make(pki, f"urn:plantlog:{uuid.uuid4()}", days)
    uris = application_uris(read(path.read_bytes(), path))
    return make(pki, uris[0] if uris else f"urn:plantlog:{uuid.uuid4()}", days)


def store(pki: Path, certificate: x509.Certificate, key: RSAPrivateKey) -> Identity:
    """Store both, the key readable only by its owner; previous ones go to ``replaced``."""
    key_path, path = paths(pki)
    folder = pki / "replaced" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for old in (key_path, path):
        if old.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            old.replace(folder / old.name)
    pki.mkdir(parents=True, exist_ok=True)
    write_private(key_path, key_pem(key))
    write_atomically(path, certificate.public_bytes(Encoding.DER))
    return Identity(certificate, key, path)


def paths(pki: Path) -> tuple[Path, Path]:
    """Paths of key (PEM) and certificate (DER)."""
    return pki / "own.pem", pki / "own.der"


def load_identity(certificate: bytes, key: bytes, path: Path) -> Identity:
    """Certificate and key, each DER or PEM, checked to match. Raises SourceError."""
    parsed, private = load_pair(certificate, key, path, f": restore the matching one, or {_RENEW_HINT}")
    if not application_uris(parsed):
        raise SourceError(f"{path} has no application URI (OPC 10000-6, 6.2.2), which servers require: {_RENEW_HINT}")
    return Identity(parsed, private, path)


def load_pair(certificate: bytes, key: bytes, path: Path, remedy: str = "") -> tuple[x509.Certificate, RSAPrivateKey]:
    """A certificate and its key, each DER or PEM. Raises SourceError; ``remedy`` is for keys that don't match."""
    parsed = read(certificate, path)
    try:
        private = load_pem_private_key(key, None) if b"-----BEGIN" in key else load_der_private_key(key, None)
    except (ValueError, TypeError) as error:  # TypeError: encrypted
        raise SourceError(f"cannot read the key of {path}: {error}; legal: an RSA key without a password") from error
    if not isinstance(private, RSAPrivateKey) or private.public_key() != parsed.public_key():
        raise SourceError(f"the key does not match the certificate {path}{remedy}")
    return parsed, private


def read(content: bytes, path: Path | str) -> x509.Certificate:
    """A certificate, DER or PEM; the first one of a PEM chain. Raises SourceError."""
    try:
        load = x509.load_pem_x509_certificate if b"-----BEGIN" in content else x509.load_der_x509_certificate
        certificate = load(content)
        tuple(certificate.extensions)  # parsed on access
        return certificate
    except ValueError as error:
        raise SourceError(f"{path} is not a certificate (DER or PEM): {error}") from error


def application_uris(certificate: x509.Certificate) -> list[str]:
    """The URIs of the subject alternative names. Raises ValueError if the extensions are unreadable."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def thumbprint(certificate: x509.Certificate) -> str:
    """SHA-1 in hexadecimal: the thumbprint that OPC UA servers show (OPC 10000-6, 6.2.2)."""
    return certificate.fingerprint(hashes.SHA1()).hex()


def expires_at(certificate: x509.Certificate) -> datetime:
    """The end of a certificate's validity."""
    return certificate.not_valid_after_utc.astimezone(UTC)


def key_pem(key: RSAPrivateKey) -> bytes:
    """The key as stored (PKCS #8)."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_private(path: Path, content: bytes) -> None:
    """Write a new file readable only by its owner from the start. Raises FileExistsError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
