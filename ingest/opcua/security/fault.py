"""Failed checks of certificates, and the checks that a server's certificate and those of its CAs have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from core.config.sources import AcceptedFault, SecurityPolicy

# Bits of an RSA key (OPC 10000-7, 6.6.161 ff.)
_KEY_BITS: dict[SecurityPolicy, tuple[int, int]] = {
    "Basic256Sha256": (2048, 4096),
    "Aes128Sha256RsaOaep": (2048, 4096),
    "Aes256Sha256RsaPss": (2048, 4096),
}
_TOLERABLE = get_args(AcceptedFault)


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed check of a certificate. The checks that ``accept`` has no name for are never tolerated."""

    check: AcceptedFault | Literal["critical-extension", "revoked", "wrong-issuer"]
    found: str
    expected: str

    @property
    def tolerable(self) -> bool:
        """Whether the option ``accept`` may list it."""
        return self.check in _TOLERABLE

    def __str__(self) -> str:
        return f"{self.check}: found {self.found}, expected {self.expected}"


def named(certificate: x509.Certificate) -> str:
    """The subject as text."""
    return certificate.subject.rfc4514_string() or "no subject"


def key_faults(certificate: x509.Certificate, policy: SecurityPolicy, who: str = "") -> Iterator[Fault]:
    """The key is an RSA key of a length that ``policy`` allows. ``who``: begins what was found, as in ``CA CN=x: ``."""
    key = certificate.public_key()
    least, most = _KEY_BITS[policy]
    expected = f"{least} to {most} bits for {policy}"
    if not isinstance(key, RSAPublicKey):
        yield Fault("key-size", f"{who}{type(key).__name__}", f"RSA, {expected}")
    elif not least <= key.key_size <= most:
        yield Fault("key-size", f"{who}{key.key_size} bits", expected)


def validity_faults(certificate: x509.Certificate, now: datetime, who: str = "") -> Iterator[Fault]:
    """``now`` is in the period of validity."""
    if now > certificate.not_valid_after_utc:
        until = f"{who}valid until {certificate.not_valid_after_utc:%Y-%m-%d %H:%M}Z"
        yield Fault("expired", until, f"after {now:%Y-%m-%d}")
    if now < certificate.not_valid_before_utc:
        since = f"{who}valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M}Z"
        yield Fault("not-yet-valid", since, f"before {now:%Y-%m-%d %H:%M}Z, if our clock is right")
