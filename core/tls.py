"""Certificates and keys in files, for contexts of TLS clients and servers."""

from __future__ import annotations

import ssl
from pathlib import Path

from core.errors import SourceError

_PEM = b"-----BEGIN "
_KEY_LEGAL = "the key of the certificate, PEM, without a password"


class UnusableFile(SourceError):  # noqa: N818  (what it is)
    """A certificate or key that can't be used. ``found`` and ``legal`` are as in ``core.errors.Problem``."""

    def __init__(self, path: Path, found: str, legal: str) -> None:
        super().__init__(f"{path} {found}; legal: {legal}")
        self.path = path
        self.found = found
        self.legal = legal


def trusting(path: Path) -> ssl.SSLContext:
    """A context that accepts servers with a certificate in ``path`` (DER or PEM), or with one that it has issued.

    TLS 1.2 or newer. Raises UnusableFile.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # else a server's certificate that others issued is no anchor
    legal = "a certificate, DER or PEM"
    content = _read(path, legal)
    try:
        context.load_verify_locations(cadata=content.decode("ascii") if _PEM in content else content)
    except (ssl.SSLError, ValueError) as error:
        raise UnusableFile(path, "is no certificate", legal) from error
    return context


def present(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Show this certificate, which its issuers may follow, to the peer. Raises UnusableFile."""
    if _PEM not in _read(certificate, "a certificate, PEM"):
        raise UnusableFile(certificate, "is not PEM", "a certificate, PEM")
    trusting(certificate)  # from here on, the key is to blame
    _read(key, _KEY_LEGAL)

    def encrypted() -> str:
        raise UnusableFile(key, "has a password", _KEY_LEGAL)

    try:
        context.load_cert_chain(certificate, key, encrypted)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UnusableFile(key, f"is not the key of {certificate}", _KEY_LEGAL) from error
        fault = f"can't be used with {certificate} ({reason(error)})"
        raise UnusableFile(key, fault, _KEY_LEGAL) from error


def reason(error: ssl.SSLError) -> str:
    """Reason of an error, in OpenSSL's words."""
    return (error.reason or error.strerror or str(error)).lower().replace("_", " ")


def _read(path: Path, legal: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnusableFile(path, f"can't be read ({error.strerror})", legal) from error
