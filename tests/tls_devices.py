"""Modbus devices behind TLS that is not ours: a socat that accepts TLS for a device, and its certificates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography.x509.oid import ExtendedKeyUsageOID

from tests import certificates
from tests.peers import listens
from tests.ports import free_port
from tests.serial_lines import socat
from tests.waiting import until


class Pki:
    """An authority, and what it issued: files of the server, and the options of a source for its client."""

    def __init__(self, folder: Path, authority: str = "authority", **server: Any) -> None:
        """``authority``: its name; ``server``: as of :func:`certificates.make`."""
        self._folder = folder
        self._authority = certificates.make(folder / "authority", name=authority, extended=None)
        self.authority = certificates.pem(self._authority[0])
        self.server = self.issue("server", **server)
        self.client = self.issue("client", extended=ExtendedKeyUsageOID.CLIENT_AUTH, role="reader")

    def issue(self, name: str, **options: Any) -> tuple[Path, Path]:
        """Certificate (PEM) and key; those of before are replaced."""
        made, key = certificates.make(self._folder / name, name=name, issuer=self._authority, **options)
        return certificates.pem(made), key

    @property
    def options(self) -> dict[str, Any]:
        """Options of a source."""
        return {
            "server_certificate": self.authority,
            "client_certificate_file": self.client[0],
            "client_key_file": self.client[1],
        }


@asynccontextmanager
async def tls_terminator(pki: Pki, device: int, *options: str, port: int | None = None) -> AsyncIterator[int]:
    """Accepts TLS for the device at this port, from clients that the authority knows; gives its own port."""
    port = port or free_port()
    certificate, key = pki.server
    listening = (
        f"openssl-listen:{port},bind=127.0.0.1,reuseaddr,fork,cert={certificate},key={key}",
        f"cafile={pki.authority}",
        *options,
    )
    async with socat(",".join(listening), f"tcp:127.0.0.1:{device}"):
        await until(lambda: listens(port))
        yield port
