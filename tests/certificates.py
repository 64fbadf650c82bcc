"""Certificates of OPC UA applications, right ones and wrong ones."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER_URI = "urn:plantlog:tests:server"


def make(
    folder: Path,
    days: tuple[float, float] = (-1, 365),
    bits: int = 2048,
    host: str = "127.0.0.1",
    uri: str = SERVER_URI,
    digest: hashes.HashAlgorithm | None = None,
    encipherment: bool = True,
    extended: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
    forged: bool = False,
) -> tuple[Path, Path]:
    """``cert.der`` and ``key.pem``, valid from and to so many days from now; ``forged``: signed by another key."""
    key = rsa.generate_private_key(65537, bits)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)]
    try:
        alternatives.append(x509.IPAddress(ipaddress.ip_address(host)))
    except ValueError:
        alternatives.append(x509.DNSName(host))
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(
            x509.KeyUsage(True, True, encipherment, encipherment, False, True, False, False, False), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([extended]), critical=False)
    )
    signer = rsa.generate_private_key(65537, bits) if forged else key
    made = builder.sign(signer, digest or hashes.SHA256())  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    certificate, private = folder / "cert.der", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(Encoding.DER))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, private
