"""Chains from a server's certificate to a root CA (RFC 5280, 6.1; OPC 10000-4, 6.1.3).

``cryptography.x509.verification`` is made for the web: it reports the first failed check as a text, so that none could
be tolerated or explained by name, and it knows no CRLs. ``cryptography`` verifies the signatures. To it, none with
SHA-1 or MD5 is valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509.oid import ExtensionOID

from core.certificates.identity import application_uris
from core.config.sources import AcceptedFault, SecurityPolicy

Chain = tuple[x509.Certificate, ...]  # a certificate, its issuer, the issuer's issuer …

_MAX_CHAIN = 6  # certificates in a chain
# Critical extensions that are checked here or in `validate`; with any other one, a certificate must be refused.
_UNDERSTOOD = (
    ExtensionOID.BASIC_CONSTRAINTS,
    ExtensionOID.KEY_USAGE,
    ExtensionOID.EXTENDED_KEY_USAGE,
    ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
)


def chains(server: x509.Certificate, others: Sequence[x509.Certificate]) -> Iterator[Chain]:
    """All chains from ``server`` through ``others``, as far up as they go. Each signature in them is valid."""
    issuers: dict[x509.Certificate, list[x509.Certificate]] = {}
    pool = tuple(dict.fromkeys(others))

    def up(chain: Chain) -> Iterator[Chain]:
        last = chain[-1]
        if last not in issuers:
            issuers[last] = [] if is_root(last) else [other for other in pool if issued(last, other)]
        above = [issuer for issuer in issuers[last] if issuer not in chain]
        if not above or len(chain) == _MAX_CHAIN:
            yield chain
            return
        for issuer in above:
            yield from up((*chain, issuer))

    yield from up((server,))


def issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Return whether ``certificate`` has a valid signature by ``issuer``."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def is_root(certificate: x509.Certificate) -> bool:
    """Return whether a certificate is signed by itself: a chain ends there."""
    return certificate.issuer == certificate.subject and issued(certificate, certificate)


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether a certificate is a CA. Servers' own certificates are often made as CAs: a CA is no application."""
    return not application_uris(certificate) and _constraints(certificate) is not None


def authority_faults(chain: Chain, policy: SecurityPolicy, now: datetime) -> Iterator[ChainFault]:
    """Failed checks of all CAs in a chain, and of the certificates that they restrict."""
    for certificate in chain if len(chain) > 1 else ():
        unknown = [e.oid._name for e in certificate.extensions if e.critical and e.oid not in _UNDERSTOOD]
        if unknown:
            understood = ", ".join(oid._name for oid in _UNDERSTOOD)
            yield ChainFault(
                "critical-extension", f"{named(certificate)} with {', '.join(unknown)}", f"only {understood}"
            )
    below = 0  # CAs below the current one
    for authority in chain[1:]:
        yield from _authority_faults(authority, below)
        below += authority.subject != authority.issuer  # a CA that issued itself a new certificate does not count
        prefix = f"CA {named(authority)}: "
        yield from key_faults(authority, policy, prefix)
        yield from validity_faults(authority, now, prefix)


def _authority_faults(authority: x509.Certificate, below: int) -> Iterator[ChainFault]:
    """Failed checks of a CA with a number of CAs ``below`` it (RFC 5280, 4.2.1.3 and 4.2.1.9)."""
    constraints = _constraints(authority)
    if not is_authority(authority):
        actual = "has an application URI" if application_uris(authority) else "is none by its basic constraints"
        yield ChainFault("wrong-issuer", f"{named(authority)}, which {actual}", "a CA")
    if constraints is not None and constraints.path_length is not None and below > constraints.path_length:
        expected = f"at most {constraints.path_length} (path length)"
        yield ChainFault("wrong-issuer", f"{below} CAs below {named(authority)}", expected)
    with suppress(x509.ExtensionNotFound):
        if not authority.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign:
            yield ChainFault("wrong-issuer", f"{named(authority)} without key_cert_sign", "a CA whose key usage has it")


def _constraints(certificate: x509.Certificate) -> x509.BasicConstraints | None:
    """The basic constraints of a CA."""
    with suppress(x509.ExtensionNotFound):
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        return constraints if constraints.ca else None
    return None


# Bits of an RSA key (OPC 10000-7, 6.6.161 ff.)
_KEY_BITS: dict[SecurityPolicy, tuple[int, int]] = {
    "Basic256Sha256": (2048, 4096),
    "Aes128Sha256RsaOaep": (2048, 4096),
    "Aes256Sha256RsaPss": (2048, 4096),
}
_TOLERABLE = get_args(AcceptedFault)


@dataclass(frozen=True, slots=True)
class ChainFault:
    """A failed check of a certificate. The checks that ``accept`` has no name for are never tolerated."""

    check: AcceptedFault | Literal["critical-extension", "revoked", "wrong-issuer"]
    found: str
    expected: str

    @property
    def tolerable(self) -> bool:
        """Return whether the option ``accept`` may list it."""
        return self.check in _TOLERABLE

    def __str__(self) -> str:
        return f"{self.check}: found {self.found}, expected {self.expected}"


def named(certificate: x509.Certificate) -> str:
    """The subject as text."""
    return certificate.subject.rfc4514_string() or "no subject"


def key_faults(certificate: x509.Certificate, policy: SecurityPolicy, prefix: str = "") -> Iterator[ChainFault]:
    """Failed check for an RSA key of a length that ``policy`` allows. ``who``: prefix, as in ``CA CN=x: ``."""
    key = certificate.public_key()
    low, high = _KEY_BITS[policy]
    expected = f"{low} to {high} bits for {policy}"
    if not isinstance(key, RSAPublicKey):
        yield ChainFault("key-size", f"{prefix}{type(key).__name__}", f"RSA, {expected}")
    elif not low <= key.key_size <= high:
        yield ChainFault("key-size", f"{prefix}{key.key_size} bits", expected)


def validity_faults(certificate: x509.Certificate, now: datetime, prefix: str = "") -> Iterator[ChainFault]:
    """Failed check that ``now`` is in the period of validity."""
    if now > certificate.not_valid_after_utc:
        until = f"{prefix}valid until {certificate.not_valid_after_utc:%Y-%m-%d %H:%M}Z"
        yield ChainFault("expired", until, f"after {now:%Y-%m-%d}")
    if now < certificate.not_valid_before_utc:
        since = f"{prefix}valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M}Z"
        yield ChainFault("not-yet-valid", since, f"before {now:%Y-%m-%d %H:%M}Z, if our clock is right")
