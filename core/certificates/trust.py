"""The trust list as files in the state folder's ``pki`` (OPC 10000-12, 7.8.2): ``trusted/certs`` and ``trusted/crl``,
``issuers/certs`` and ``issuers/crl``; and the certificates that wait to be accepted, in ``rejected``.

Collectors read it on each connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from core.certificates.chain import ChainFault, named
from core.certificates.identity import read
from core.errors import SourceError
from core.files import CERTIFICATE_SUFFIXES, write_atomically

_ADD = "which `plantlog source certificate add FILE` adds"


@dataclass(frozen=True, slots=True)
class Crl:
    """A file with a revocation list. ``content`` is None if it can't be used, for the reason ``problem``."""

    path: Path
    content: x509.CertificateRevocationList | None
    problem: str = ""

    @property
    def expires(self) -> datetime | None:
        """Time at which the next list is due; None: the list does not say."""
        return None if self.content is None else self.content.next_update_utc

    def is_of(self, issuer: x509.Certificate) -> bool:
        """Return whether ``issuer`` has signed it."""
        if self.content is None or self.content.issuer != issuer.subject:
            return False
        try:
            return self.content.is_signature_valid(issuer.public_key())  # type: ignore[arg-type]
        except (ValueError, TypeError, UnsupportedAlgorithm):  # a key of a kind that signs no list
            return False


def read_crl(path: Path) -> Crl:
    """The list in ``path``, DER or PEM. Delta lists and lists for a part of the certificates can't be used."""
    try:
        content = path.read_bytes()
        load = x509.load_pem_x509_crl if b"-----BEGIN" in content else x509.load_der_x509_crl
        crl = load(content)
        critical = [extension.oid._name for extension in crl.extensions if extension.critical]
        crl.last_update_utc, crl.next_update_utc, crl.issuer  # noqa: B018  (parsed on access)
    except OSError as error:
        return Crl(path, None, error.strerror or str(error))
    except ValueError as error:
        return Crl(path, None, f"not a CRL (DER or PEM): {error}")
    if critical:  # RFC 5280, 5.2: a list with a critical extension that is not understood shall not be used
        return Crl(path, None, f"a CRL with {', '.join(critical)}, expected a complete one")
    return Crl(path, crl)


def newest(crls: Sequence[Crl], issuer: x509.Certificate, now: datetime) -> Crl | None:
    """The newest list of ``issuer`` that is in force at ``now``, or has been."""
    dated_lists = [
        (crl.content.last_update_utc, crl)
        for crl in crls
        if crl.content is not None and crl.content.last_update_utc <= now and crl.is_of(issuer)
    ]
    return max(dated_lists, key=lambda dated: dated[0])[1] if dated_lists else None


def revocation_faults(
    certificate: x509.Certificate, issuer: x509.Certificate, crls: Sequence[Crl], now: datetime
) -> Iterator[ChainFault]:
    """Failed checks: no list of ``issuer`` in force, or ``certificate`` is in the newest one (RFC 5280, 6.3)."""
    crl = newest(crls, issuer, now)
    if crl is None or crl.content is None or not _signs_lists(issuer):
        unusable = "".join(f"; {crl.path}: {crl.problem}" for crl in crls if crl.problem)
        actual = "a CA whose key usage lacks crl_sign" if crl else "no CRL"
        yield ChainFault("revocation-unknown", f"{actual}{unusable}", f"one of {named(issuer)}, {_ADD}")
        return
    entry = crl.content.get_revoked_certificate_by_serial_number(certificate.serial_number)
    if entry is not None:
        since = f"{named(certificate)} revoked on {entry.revocation_date_utc:%Y-%m-%d}, by {crl.path}"
        yield ChainFault("revoked", since, f"a new certificate from {named(issuer)}")
    if crl.expires is not None and now > crl.expires:
        actual = f"{crl.path} valid until {crl.expires:%Y-%m-%d %H:%M}Z"
        yield ChainFault("expired-crl", actual, f"a newer CRL of {named(issuer)}, {_ADD}")


def _signs_lists(issuer: x509.Certificate) -> bool:
    """Return whether a certificate may sign revocation lists (RFC 5280, 4.2.1.3)."""
    try:
        return issuer.extensions.get_extension_for_class(x509.KeyUsage).value.crl_sign
    except x509.ExtensionNotFound:
        return True


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
        yield read_crl(path)


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
