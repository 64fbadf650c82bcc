"""Certificates of OPC UA applications and of TLS servers and clients, right ones and wrong ones."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
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
) -> tuple[Path, Path]:
    """``cert.der`` and ``key.pem``, valid from and to so many days from now.

    ``forged``: signed by another key; ``issuer``: certificate and key of who signs it; ``role``: in a Modbus client's.
    """
    key = rsa.generate_private_key(65537, bits)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    authority = None if issuer is None else x509.load_der_x509_certificate(issuer[0].read_bytes())
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
    signer = rsa.generate_private_key(65537, bits) if forged else key
    if issuer is not None:
        signer = load_pem_private_key(issuer[1].read_bytes(), None)  # type: ignore[assignment]
    made = builder.sign(signer, digest or hashes.SHA256())  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    certificate, private = folder / "cert.der", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(Encoding.DER))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, private


def pem(certificate: Path) -> Path:
    """A certificate's copy as PEM, beside it."""
    copy = certificate.with_suffix(".crt")
    copy.write_text(ssl.DER_cert_to_PEM_cert(certificate.read_bytes()))
    return copy
