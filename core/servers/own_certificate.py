"""The certificate of plantlog's own servers, issued by a CA of its own.

Clients trust the CA, once; so certificates that it issues can be short-lived, and are replaced without their doing.
In ``pki/tls`` of the state folder: ``ca.crt`` and ``ca.key``, and in one file, so that it is replaced as one,
``server.pem``: key and certificate.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.addresses import WILDCARDS, machine_addresses
from core.errors import SourceError
from core.files import folder_lock, write_atomically
from core.servers.server_tls import ca_file, server_file

CA_DAYS = 20 * 365
_DAYS = 397  # some clients accept no more
_SEED_BYTES = 40  # 64 bits more than a key has
_RENEW_DAYS = 45.0  # before its end; earlier than the warning of it
_SKEW = timedelta(days=1)  # a client's clock may be behind
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")


def _ca_key_file(pki: Path) -> Path:
    return pki / "tls" / "ca.key"


def machine_names() -> set[str]:
    """Names of this machine: its host name and its addresses."""
    name = socket.gethostname()
    return {"localhost", *machine_addresses(), *([name] if _HOST_NAME.fullmatch(name) else ())}


def ensure(
    pki: Path,
    required: Collection[str],
    more: Collection[str] = (),
    file: Path | None = None,
    days: int | None = None,
    *,
    of_client: bool = False,
) -> None:
    """Make CA and certificate if there are none, or if the certificate ends soon or lacks a ``required`` name.

    ``more``: names that a new one has besides; ``file``: another one than :func:`server_file`; ``days``: another
    validity; ``of_client``: a new one is a client's, too. Raises SourceError, and OSError.
    """
    file = file or server_file(pki)
    required = {_canonical(name) for name in required} - {*WILDCARDS}
    if _is_valid(file, pki, required):
        return
    with folder_lock(pki / "tls"):
        if not _is_valid(file, pki, required):  # another process may have made one meanwhile
            _issue(file, pki, required | {_canonical(name) for name in more}, days or _DAYS, of_client=of_client)


def adopt(pki: Path, certificate: Path, key: Path) -> None:
    """Issue certificates by a CA that was made elsewhere, as :func:`make_authority` does.

    The key stays where it is: of those who share the folder, only those who can read it there issue certificates.
    """
    with folder_lock(pki / "tls"):
        link = _ca_key_file(pki)
        if not link.is_symlink() or link.readlink() != key:
            new = link.with_suffix(".new")
            new.unlink(missing_ok=True)
            new.symlink_to(key)
            new.replace(link)
        if _content(ca_file(pki)) != (content := certificate.read_bytes()):
            write_atomically(ca_file(pki), content, 0o600)


def derive(pki: Path, secret: str) -> None:
    """Make the CA, if there is another one or none, that all machines with this secret have: it gives key and name.

    RFC 5869, and FIPS 186-5, A.2.1. ``secret``: at least as hard to guess as a key.
    """
    curve = ec.SECP256R1()
    seed = int.from_bytes(HKDF(hashes.SHA256(), _SEED_BYTES, None, b"plantlog CA").derive(secret.encode()))
    key = ec.derive_private_key(seed % (curve.group_order - 1) + 1, curve)
    name = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest.hex()
    with folder_lock(pki / "tls"):
        with suppress(SourceError):
            if ca_file(pki).exists() and _authority(pki)[1].public_key() == key.public_key():
                return
        make_authority(ca_file(pki), _ca_key_file(pki), key, f"plantlog CA {name}")


def names_of(certificate: x509.Certificate) -> list[str]:
    """Host names and addresses in a certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = (str(address) for address in names.get_values_for_type(x509.IPAddress))
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _is_valid(file: Path, pki: Path, required: Collection[str]) -> bool:
    try:
        ca = x509.load_pem_x509_certificate(ca_file(pki).read_bytes())
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        certificate.verify_directly_issued_by(ca)
        names = {_canonical(name) for name in names_of(certificate)}
    except (OSError, ValueError, TypeError, InvalidSignature):
        return False
    return certificate.not_valid_after_utc - datetime.now(UTC) > timedelta(days=_RENEW_DAYS) and names.issuperset(
        required
    )


def _issue(file: Path, pki: Path, names: Collection[str], days: int, *, of_client: bool) -> None:
    ca, ca_key = _authority(pki)
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if of_client else ())]
    certificate = (
        _builder("plantlog", ca.subject, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName(list(_alternatives(names))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(of_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    write_atomically(file, _pem(key) + certificate.public_bytes(Encoding.PEM), 0o600)


def _authority(pki: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The CA; a new one if there is none."""
    path, key_path = ca_file(pki), _ca_key_file(pki)
    if not path.exists():
        return make_authority(path, key_path)
    remedy = f"restore it, or remove {path.parent} and let clients trust the new CA that `plantlog up` makes"
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        key = load_pem_private_key(key_path.read_bytes(), None)
    except OSError as error:
        if key_path.is_symlink():
            remedy = "certificates are issued by the containers that have this secret, such as `maintenance`"
        raise SourceError(f"{error.filename} can't be read ({error.strerror}): {remedy}") from error
    except (ValueError, TypeError) as error:
        raise SourceError(f"{path} or {key_path} is damaged ({error}): {remedy}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise SourceError(f"{key_path} is not the key of {path}: {remedy}")
    return certificate, key


def make_authority(
    path: Path, key_path: Path, key: ec.EllipticCurvePrivateKey | None = None, name: str | None = None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A CA, in these files; without ``key`` and ``name``, a new one."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    # Several appliances may be trusted by one client: each CA has a name of its own.
    name = name or f"plantlog CA {socket.gethostname()[:32]} {secrets.token_hex(4)}"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(name, subject, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(of_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_atomically(key_path, _pem(key), 0o600)
    write_atomically(path, certificate.public_bytes(Encoding.PEM), 0o600)
    return certificate, key


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days) - _SKEW)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, of_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not of_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=of_authority,
        crl_sign=of_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(names: Iterable[str]) -> Iterable[x509.GeneralName]:
    for name in sorted(names):
        try:
            yield x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            yield x509.DNSName(name)


def _canonical(name: str) -> str:
    """Canonical form: host names in lower case, addresses in the short form."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(name))
    return name.lower()


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
