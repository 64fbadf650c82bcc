"""The trust list: accepted certificates of servers, and those waiting to be accepted, as files.

``trusted`` and ``rejected`` in the state folder's ``pki``. Collectors read it on each connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from ingest.errors import OperationError, SourceError
from ingest.files import write_atomically
from ingest.opcua.certificate import read

_MAX_REJECTED = 10  # rejected certificates kept per source: some servers present a new one each time
_MIN_DIGITS = 8  # minimum number of hexadecimal digits to identify a certificate
_SUFFIXES = (".der", ".pem", ".crt", ".cer")
SUFFIXES_LEGAL = ", ".join(f"*{suffix}" for suffix in _SUFFIXES)


def make_folders(pki: Path) -> None:
    """Create both. If a certificate was moved to ``trusted`` before that folder existed, move it inside."""
    for name in ("trusted", "rejected"):
        folder = pki / name
        if folder.is_file():
            moved = folder.rename(pki / f"{name}.der")
            folder.mkdir()
            moved.rename(folder / f"{name}.der")
        folder.mkdir(parents=True, exist_ok=True)


def trusted(pki: Path, server: x509.Certificate, only: Path | None) -> bool:
    """Whether ``server`` is in the list, or equals the file ``only`` if configured."""
    return server in (found for _, found in certificates_in(pki / "trusted" if only is None else only))


def certificates_in(place: Path) -> Iterator[tuple[Path, x509.Certificate]]:
    """The certificates in a folder (other files are ignored), or of one file. Raises SourceError."""
    if not place.is_dir():
        try:
            yield place, read(place.read_bytes(), place)
        except OSError as error:
            raise SourceError(f"{place}: {error.strerror}") from error
        return
    for path in sorted(path for path in place.iterdir() if path.suffix.lower() in _SUFFIXES):
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
    make_folders(pki)
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
    return path.rename(pki / "trusted" / path.name), server


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()
