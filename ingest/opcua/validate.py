"""Validates server certificates beyond trust (OPC 10000-4, 6.1.3), by named checks.

Certificates are trusted directly, without authorities: a signature is verified with the certificate's own key, or
with that of its issuer if the server sends the chain.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from ingest.config.sources import AcceptedFault, OpcuaSource, SecurityPolicy
from ingest.errors import SourceError
from ingest.opcua.certificate import application_uris

# Bits of an RSA key (OPC 10000-7, 6.6.161 ff.)
_KEY_BITS: dict[SecurityPolicy, tuple[int, int]] = {
    "Basic256Sha256": (2048, 4096),
    "Aes128Sha256RsaOaep": (2048, 4096),
    "Aes256Sha256RsaPss": (2048, 4096),
}
_WEAK = ("md5", "sha1")


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed check of a certificate."""

    check: AcceptedFault
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.check}: found {self.found}, expected {self.expected}"


def chain(content: bytes | None) -> list[x509.Certificate]:
    """The certificates of an EndpointDescription, the server's first. Raises SourceError if they are invalid."""
    certificates, rest = [], content or b""
    try:
        while rest:
            size = _der_size(rest)
            certificates.append(x509.load_der_x509_certificate(rest[:size]))
            rest = rest[size:]
        first = certificates[0]
        tuple(first.extensions)  # extensions are parsed on access
        key = first.public_key()
    except (ValueError, IndexError) as error:
        what = str(error) if content else "nothing"
        raise SourceError(f"the server's certificate can't be read: found {what}, expected X.509 v3 in DER") from error
    if not isinstance(key, RSAPublicKey):
        raise SourceError(f"the server's certificate has the wrong key: found {type(key).__name__}, expected RSA")
    return certificates


def faults(certificates: list[x509.Certificate], source: OpcuaSource, application_uri: str | None) -> Iterator[Fault]:
    """All failed checks of the server's certificate, except those accepted for the source."""
    server = certificates[0]
    for fault in (
        *_signature(certificates),
        *_policy(server, source.security),
        *_validity(server, datetime.now(UTC)),
        *_host(server, urlsplit(source.address).hostname or ""),
        *_application(server, application_uri),
        *_usage(server),
    ):
        if fault.check not in source.accept:
            yield fault


def _signature(certificates: list[x509.Certificate]) -> Iterator[Fault]:
    server = certificates[0]
    issuer = next((other for other in certificates if other.subject == server.issuer), None)
    if issuer is None:
        return  # signed by an unknown authority; that somebody trusted exactly these bytes must be enough
    try:
        server.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError) as error:
        who = "itself" if issuer is server else issuer.subject.rfc4514_string()
        yield Fault("bad-signature", str(error) or "an invalid signature", f"one by {who}")


def _policy(server: x509.Certificate, policy: SecurityPolicy) -> Iterator[Fault]:
    key = server.public_key()
    least, most = _KEY_BITS[policy]
    if isinstance(key, RSAPublicKey) and not least <= key.key_size <= most:
        yield Fault("key-size", f"{key.key_size} bits", f"{least} to {most} bits for {policy}")
    algorithm = server.signature_hash_algorithm
    if algorithm is None or algorithm.name in _WEAK:
        yield Fault("weak-hash", "none" if algorithm is None else algorithm.name.upper(), f"SHA-256 for {policy}")


def _validity(server: x509.Certificate, now: datetime) -> Iterator[Fault]:
    if now > server.not_valid_after_utc:
        yield Fault("expired", f"valid until {server.not_valid_after_utc:%Y-%m-%d %H:%M}Z", f"after {now:%Y-%m-%d}")
    if now < server.not_valid_before_utc:
        since = f"valid from {server.not_valid_before_utc:%Y-%m-%d %H:%M}Z"
        yield Fault("not-yet-valid", since, f"before {now:%Y-%m-%d %H:%M}Z, if our clock is right")


def _host(server: x509.Certificate, host: str) -> Iterator[Fault]:
    names = [*_names(server, x509.DNSName), *(str(address) for address in _names(server, x509.IPAddress))]
    if _plain(host) not in {_plain(str(name)) for name in names}:
        yield Fault("wrong-host", ", ".join(map(str, names)) or "no host", f"{host}, as in the source's address")


def _application(server: x509.Certificate, uri: str | None) -> Iterator[Fault]:
    uris = application_uris(server)
    if uri not in uris:
        expected = f"{uri}, which the server's endpoint names" if uri else "the same as at the server's endpoint"
        yield Fault("wrong-uri", ", ".join(uris) or "no application URI", expected)


def _usage(server: x509.Certificate) -> Iterator[Fault]:
    """OPC 10000-6, 6.2.2; a certificate without key usage may be used for everything (RFC 5280, 4.2.1.3)."""
    with suppress(x509.ExtensionNotFound):
        usage = server.extensions.get_extension_for_class(x509.KeyUsage).value
        wanted = {name: getattr(usage, name) for name in ("digital_signature", "key_encipherment", "data_encipherment")}
        if not all(wanted.values()):
            has = ", ".join(name for name, allowed in wanted.items() if allowed) or "none of them"
            yield Fault("wrong-usage", f"key usage {has}", ", ".join(wanted))
    with suppress(x509.ExtensionNotFound):
        extended = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(extended):
            has = ", ".join(oid._name for oid in extended)
            yield Fault("wrong-usage", f"extended key usage {has}", "serverAuth")


def _names(server: x509.Certificate, kind: type[x509.DNSName] | type[x509.IPAddress]) -> list[object]:
    try:
        names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return list(names.get_values_for_type(kind))


def _plain(host: str) -> str:
    """A normalised name or address."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.rstrip(".").lower()


def _der_size(content: bytes) -> int:
    """Length of the DER value at the start of ``content`` (X.690, 8.1.3). Raises ValueError, IndexError."""
    length, start = content[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(content[2:start])
    if content[0] != 0x30 or start + length > len(content):
        raise ValueError("not a DER certificate")
    return start + length
