"""TLS of plantlog's own servers, whose certificate is replaced while they serve.

A server reads new contents of its files within seconds. If they can't be used, it logs that and keeps the certificate
before. If the configured ones can't be used at the start, it shows plantlog's own: a process that collects data starts
in any case.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from core import tls
from core.errors import PlantlogError

log = logging.getLogger(__name__)

_RENEW_SECONDS = 3600.0  # between two looks at the end of plantlog's own certificate

Files: TypeAlias = tuple[Path, Path]  # certificate and key


def ca_file(pki: Path) -> Path:
    """The certificate of plantlog's CA, which clients have to trust."""
    return pki / "tls" / "ca.crt"


def server_file(pki: Path) -> Path:
    """Key and certificate of plantlog's own, in one file."""
    return pki / "tls" / "server.pem"


def context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS of the server's side. Raises UnusableFile."""
    tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_context.minimum_version = ssl.TLSVersion.TLSv1_2
    tls_context.set_alpn_protocols(["http/1.1"])
    tls.present(tls_context, certificate, key)
    return tls_context


class ServerTls:
    """TLS of a server, with the ``configured`` files, or the ``fallback``: plantlog's own, which ``make`` renews."""

    def __init__(self, configured: Files | None, fallback: Path, make: Callable[[], None]) -> None:
        self._make = make
        self._made_at = time.monotonic()
        self.is_own = configured is None
        self._files = configured or (fallback, fallback)
        if self.is_own:
            self._renew()
        self._latest = self._used = self._state()
        try:
            self.context = context(*self._files)
        except tls.UnusableFile as fault:
            if self.is_own:
                raise
            log.error("%s; plantlog's own certificate is shown until that is put right", fault)
            make()
            self.context = context(fallback, fallback)

    def refresh(self) -> None:
        """Look for new files: to be called every second or so."""
        if self.is_own and time.monotonic() - self._made_at > _RENEW_SECONDS:
            self._made_at = time.monotonic()
            self._renew()
        before, self._latest = self._latest, self._state()
        if self._latest == self._used or self._latest != before:  # not while they change: there are two
            return
        self._used = self._latest
        try:
            self.context = context(*self._files)
        except tls.UnusableFile as fault:
            log.error("%s; the previous certificate stays in use", fault)
        else:
            log.info("new certificate in use: %s", self._files[0])

    def _renew(self) -> None:
        """Raises PlantlogError where there is no certificate at all."""
        try:
            self._make()
        except PlantlogError as error:
            if not self._files[0].exists():
                raise
            log.error("%s", error)

    def _state(self) -> list[tuple[int, ...]]:
        """Fingerprint of the files, which changes with their content."""
        return [_stat(path) for path in self._files]


def _stat(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
