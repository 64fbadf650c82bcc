"""Certificates of OPC UA applications and of TLS servers and clients, right ones and wrong ones."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER_URI = "urn:plantlog:tests:server"
ROLE = x509.ObjectIdentifier("1.3.6.1.4.1.50316.802.1")  # MB-TCP-Security-v36, 8.4


@dataclass(frozen=True)
class Authority:
    """A CA, and what is wrong with it. ``above``: who issued its certificate; None: a root."""

    name: str
    above: Authority | None = None
    days: tuple[float, float] = (-1, 365)
    bits: int = 2048
    ca: bool | None = True  # None: no basic constraints
    path_length: int | None = None
    cert_sign: bool = True
    crl_sign: bool = True
    critical: x509.ExtensionType | None = None
    uri: str | None = None
    key_of: str = ""  # another name: authorities with the same one have the same key

    @property
    def key(self) -> rsa.RSAPrivateKey:
        return _key(self.key_of or self.name, self.bits)

    @property
    def certificate(self) -> x509.Certificate:
        return _certificate(self)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def crl(
        self,
        revoked: Sequence[x509.Certificate] = (),
        days: tuple[float, float | None] = (-1, 30),
        critical: x509.ExtensionType | None = None,
        signer: Authority | None = None,
    ) -> bytes:
        """A revocation list (DER), in force from and to so many days from now."""
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now + timedelta(days=days[0]))
            .next_update(now + timedelta(days=days[1] or 0))
        )
        if critical is not None:
            builder = builder.add_extension(critical, critical=True)
        for revoked_certificate in revoked:
            entry = (
                x509.RevokedCertificateBuilder().serial_number(revoked_certificate.serial_number).revocation_date(now)
            )
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign((signer or self).key, hashes.SHA256()).public_bytes(Encoding.DER)


@cache
def _key(_: str, bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def _certificate(of: Authority) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, of.name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if of.above is None else of.above.certificate.subject)
        .public_key(of.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=of.days[0]))
        .not_valid_after(now + timedelta(days=of.days[1]))
        .add_extension(
            x509.KeyUsage(True, False, False, False, False, of.cert_sign, of.crl_sign, False, False), critical=True
        )
    )
    if of.ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(of.ca, of.path_length), critical=True)
    if of.critical is not None:
        builder = builder.add_extension(of.critical, critical=True)
    if of.uri is not None:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(of.uri)])
        builder = builder.add_extension(names, critical=False)
    return builder.sign((of.above or of).key, hashes.SHA256())


def make(
    folder: Path,
    days: tuple[float, float] = (-1, 365),
    bits: int = 2048,
    host: str = "127.0.0.1",
    uri: str = SERVER_URI,
    digest: hashes.HashAlgorithm | None = None,
    encipherment: bool = True,
    extended: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.SERVER_AUTH,
    forged: bool = False,
    name: str = "test",
    issuer: tuple[Path, Path] | None = None,
    role: str = "",
    by: Authority | None = None,
    sent: Sequence[Authority] = (),
) -> tuple[Path, Path]:
    """``cert.der`` and ``key.pem``, valid from and to so many days from now.

    ``forged``: signed by another key; ``issuer``: certificate and key of who signs it; ``role``: in a Modbus client's;
    ``by``: a CA that issues it; ``sent``: whose certificates the file has, too.
    """
    key = rsa.generate_private_key(65537, bits)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    authority = None if by is None else by.certificate
    if issuer is not None:
        authority = x509.load_der_x509_certificate(issuer[0].read_bytes())
    alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)]
    try:
        alternatives.append(x509.IPAddress(ipaddress.ip_address(host)))
    except ValueError:
        alternatives.append(x509.DNSName(host))
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(
            x509.KeyUsage(True, True, encipherment, encipherment, False, True, False, False, False), critical=False
        )
    )
    if extended is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([extended]), critical=False)
    if role:
        text = role.encode()
        builder = builder.add_extension(
            x509.UnrecognizedExtension(ROLE, bytes((0x0C, len(text))) + text), critical=False
        )
    signer = rsa.generate_private_key(65537, bits) if forged else key if by is None else by.key
    if issuer is not None:
        signer = load_pem_private_key(issuer[1].read_bytes(), None)  # type: ignore[assignment]
    made = builder.sign(signer, digest or hashes.SHA256())  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    certificate, private = folder / "cert.der", folder / "key.pem"
    chain = (made, *(one.certificate for one in sent))
    certificate.write_bytes(b"".join(link.public_bytes(Encoding.DER) for link in chain))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, private


def pem(certificate: Path) -> Path:
    """A certificate's copy as PEM, beside it."""
    copy = certificate.with_suffix(".crt")
    copy.write_text(ssl.DER_cert_to_PEM_cert(certificate.read_bytes()))
    return copy
