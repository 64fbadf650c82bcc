"""The trust list as files in the state folder's ``pki`` (OPC 10000-12, 7.8.2): ``trusted/certs`` and ``trusted/crl``,
``issuers/certs`` and ``issuers/crl``; and the certificates that wait to be accepted, in ``rejected``.

Collectors read it on each connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from core.certificates import revocation
from core.certificates.identity import read
from core.certificates.revocation import Crl
from core.errors import SourceError
from core.files import CERTIFICATE_SUFFIXES, write_atomically

_MAX_REJECTED = 10  # rejected certificates kept per source: some servers present a new one each time


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
        tuple(certificate for _, certificate in certificates_in(pki / name / "certs"))
        for name in ("trusted", "issuers")
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


def certificates_in(path_or_folder: Path) -> Iterator[tuple[Path, x509.Certificate]]:
    """The certificates in a folder (other files are ignored), or of one file. Raises SourceError."""
    if not path_or_folder.is_dir():
        try:
            yield path_or_folder, read(path_or_folder.read_bytes(), path_or_folder)
        except OSError as error:
            raise SourceError(f"{path_or_folder}: {error.strerror}") from error
        return
    for path in _files(path_or_folder):
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


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _files(folder: Path, suffixes: tuple[str, ...] = CERTIFICATE_SUFFIXES) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)
