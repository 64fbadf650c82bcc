"""The trust list: certificates of servers that somebody accepted, and those that wait for it, as files.

``trusted`` and ``rejected`` in the state folder's ``pki``. Collectors look into it at each connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from ingest.errors import OperationError, SourceError
from ingest.opcua.certificate import read

_KEPT = 10  # rejected certificates of one source: a server may show another one each time
_LEAST = 8  # hexadecimal digits of a fingerprint that name a certificate
_SUFFIXES = (".der", ".pem", ".crt", ".cer")
SUFFIXES_LEGAL = ", ".join(f"*{suffix}" for suffix in _SUFFIXES)


def folders(pki: Path) -> None:
    """Make both. A certificate that was moved to ``trusted`` while there was no such folder goes into it."""
    for name in ("trusted", "rejected"):
        folder = pki / name
        if folder.is_file():
            moved = folder.rename(pki / f"{name}.der")
            folder.mkdir()
            moved.rename(folder / f"{name}.der")
        folder.mkdir(parents=True, exist_ok=True)


def trusted(pki: Path, server: x509.Certificate, only: Path | None) -> bool:
    """Whether ``server`` is in the list, or is the file ``only``, where the configuration names one."""
    return server in (found for _, found in listed(pki / "trusted" if only is None else only))


def listed(place: Path) -> Iterator[tuple[Path, x509.Certificate]]:
    """The certificates of a folder, or of one file; what is none is left out of a folder. Raises SourceError."""
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
    """Keep the certificate of ``source`` for somebody to look at, and forget the oldest of too many."""
    folder = pki / "rejected"
    path = folder / f"{source}.{fingerprint(server)[:16]}.der"
    path.write_bytes(server.public_bytes(Encoding.DER))
    others = sorted(folder.glob(f"{source}.*.der"), key=lambda p: p.stat().st_mtime)
    for old in others[:-_KEPT]:
        old.unlink(missing_ok=True)
    return path


def trust(pki: Path, what: str) -> tuple[Path, x509.Certificate]:
    """Move a rejected certificate to the list: that of the source ``what``, or of a fingerprint that begins so.

    Raises OperationError where none or more than one is meant.
    """
    folders(pki)
    digits = what.replace(":", "").lower()
    rejected = list(listed(pki / "rejected"))
    found = [(path, server) for path, server in rejected if path.name == what or path.name.rsplit(".", 2)[0] == what]
    if not found and len(digits) >= _LEAST:
        found = [(path, server) for path, server in rejected if fingerprint(server).startswith(digits)]
    if len(found) != 1:
        meant = found or rejected
        these = "; ".join(f"{path.name}: {fingerprint(server)}" for path, server in meant) or "none"
        said = f"{len(found)} rejected certificates are of {what}" if found else f"no rejected certificate is of {what}"
        raise OperationError(f"{said}; name one by its fingerprint (SHA-256), from {_LEAST} digits on: {these}")
    ((path, server),) = found
    return path.rename(pki / "trusted" / path.name), server


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256, in hexadecimal digits."""
    return certificate.fingerprint(hashes.SHA256()).hex()
