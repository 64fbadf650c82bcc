"""The trust list as files in the state folder's ``pki`` (OPC 10000-12, 7.8.2): ``trusted/certs`` and ``trusted/crl``,
``issuers/certs`` and ``issuers/crl``; and the certificates that wait to be accepted, in ``rejected``.

Collectors read it on each connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from core.errors import OperationError, SourceError
from core.files import CERTIFICATE_SUFFIXES, make_trust_folders, write_atomically
from ingest.opcua.security import revocation
from ingest.opcua.security.certificate import read
from ingest.opcua.security.revocation import Crl

_MAX_REJECTED = 10  # rejected certificates kept per source: some servers present a new one each time
_MIN_DIGITS = 8  # minimum number of hexadecimal digits to identify a certificate
SUFFIXES_LEGAL = ", ".join(f"*{suffix}" for suffix in CERTIFICATE_SUFFIXES)


@dataclass(frozen=True, slots=True)
class TrustList:
    """``trusted``: certificates of servers, and of CAs whose servers are trusted. ``issuers``: CAs that only complete
    chains. ``crls``: of both."""

    trusted: tuple[x509.Certificate, ...]
    issuers: tuple[x509.Certificate, ...]
    crls: tuple[Crl, ...]


def read_list(pki: Path) -> TrustList:
    """The trust list as it is now. Its folders exist."""
    trusted, issuers = (
        tuple(found for _, found in certificates_in(pki / name / "certs")) for name in ("trusted", "issuers")
    )
    return TrustList(trusted, issuers, tuple(crls_in(pki)))


def crls_in(pki: Path) -> Iterator[Crl]:
    """The revocation lists of the trust list, also those that can't be used."""
    for name in ("trusted", "issuers"):
        yield from crls_of(pki / name / "crl")


def crls_of(folder: Path) -> Iterator[Crl]:
    """The revocation lists of one folder."""
    for path in _files(folder, (*CERTIFICATE_SUFFIXES, ".crl")) if folder.is_dir() else ():
        yield revocation.read(path)


def certificates_in(place: Path) -> Iterator[tuple[Path, x509.Certificate]]:
    """The certificates in a folder (other files are ignored), or of one file. Raises SourceError."""
    if not place.is_dir():
        try:
            yield place, read(place.read_bytes(), place)
        except OSError as error:
            raise SourceError(f"{place}: {error.strerror}") from error
        return
    for path in _files(place):
        try:
            yield path, read(path.read_bytes(), path)
        except (SourceError, OSError):
            continue


def reject(pki: Path, source: str, server: x509.Certificate) -> Path:
    """Save the rejected certificate of ``source`` for review; delete the oldest if there are too many."""
    folder = pki / "rejected"
    path = folder / f"{source}.{fingerprint(server)[:16]}.der"
    write_atomically(path, server.public_bytes(Encoding.DER))
    others = sorted(folder.glob(f"{source}.*.der"), key=lambda p: p.stat().st_mtime)
    for old in others[:-_MAX_REJECTED]:
        old.unlink(missing_ok=True)
    return path


def trust(pki: Path, what: str) -> tuple[Path, x509.Certificate]:
    """Accept a rejected certificate: of the source ``what``, or with a fingerprint that starts with it.

    Raises OperationError if none or several match.
    """
    make_trust_folders(pki)
    digits = what.replace(":", "").lower()
    rejected = list(certificates_in(pki / "rejected"))
    found = [(path, server) for path, server in rejected if path.name == what or path.name.rsplit(".", 2)[0] == what]
    if not found and len(digits) >= _MIN_DIGITS:
        found = [(path, server) for path, server in rejected if fingerprint(server).startswith(digits)]
    if len(found) != 1:
        meant = found or rejected
        these = "; ".join(f"{path.name}: {fingerprint(server)}" for path, server in meant) or "none"
        problem = (
            f"{len(found)} rejected certificates match {what}" if found else f"no rejected certificate matches {what}"
        )
        raise OperationError(f"{problem}; give at least {_MIN_DIGITS} digits of a fingerprint (SHA-256): {these}")
    ((path, server),) = found
    return path.rename(pki / "trusted" / "certs" / path.name), server


def add_certificate(pki: Path, folder: str, name: str, certificate: x509.Certificate) -> Path:
    """Add it to ``trusted`` or ``issuers``."""
    make_trust_folders(pki)
    path = pki / folder / "certs" / f"{name}.{fingerprint(certificate)[:16]}.der"
    write_atomically(path, certificate.public_bytes(Encoding.DER))
    return path


def add_crl(pki: Path, crl: Crl, now: datetime) -> Path:
    """Add it, in the place of an earlier one of the same CA. Raises OperationError if it is of no use."""
    make_trust_folders(pki)
    content = crl.content
    if content is None:
        raise OperationError(f"{crl.path}: {crl.problem}")
    if crl.expires is not None and crl.expires < now:
        raise OperationError(f"{crl.path} has expired on {crl.expires:%Y-%m-%d %H:%M}Z: get a newer CRL from the CA")
    known = read_list(pki)
    issuer = next((ca for ca in (*known.trusted, *known.issuers) if crl.is_of(ca)), None)
    if issuer is None:
        ca = content.issuer.rfc4514_string()
        raise OperationError(
            f"{crl.path} is a CRL of {ca}, and no certificate of this CA in the trust list has signed it: "
            "add the CA's certificate first"
        )
    old = revocation.newest(known.crls, issuer, now)
    if old is not None and old.content is not None and old.content.last_update_utc > content.last_update_utc:
        raise OperationError(
            f"{crl.path} is of {content.last_update_utc:%Y-%m-%d %H:%M}Z, and older than {old.path}, "
            f"which is of {old.content.last_update_utc:%Y-%m-%d %H:%M}Z"
        )
    folder = "trusted" if issuer in known.trusted else "issuers"
    path = pki / folder / "crl" / f"{fingerprint(issuer)[:16]}.crl"
    write_atomically(path, content.public_bytes(Encoding.DER))
    return path


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _files(folder: Path, suffixes: tuple[str, ...] = CERTIFICATE_SUFFIXES) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)
