"""TLS of the plant's servers, and their certificate."""

from __future__ import annotations

import socket
from pathlib import Path

from core.addresses import WILDCARDS, is_loopback
from core.config import certificate_files
from core.config.base import Frozen
from core.config.model import Plant, ServerOptions, TlsOptions
from core.errors import SourceError
from core.servers.server_tls import Files, ServerTls, server_file


class TlsSettings(Frozen):
    """The certificate that all servers with TLS show, and the addresses on which they listen (none: no such server)."""

    options: TlsOptions
    hosts: tuple[str, ...]

    @classmethod
    def of(cls, plant: Plant) -> TlsSettings:
        """The settings of a plant."""
        hosts = {server.host for server in plant.servers() if server.scheme == "https"}
        hosts |= set() if is_loopback(plant.database.host) else {plant.database.host}
        return cls(options=plant.tls, hosts=tuple(sorted(hosts)))

    @property
    def configured(self) -> Files | None:
        """The files of [tls]; None: plantlog makes its own certificate."""
        certificate, key = self.options.certificate_file, self.options.key_file
        return None if certificate is None or key is None else (certificate, key)

    def server(self, server: ServerOptions, state: Path) -> ServerTls | None:
        """The TLS of one of the servers; None: it speaks HTTP. Raises SourceError."""
        if server.scheme == "http":
            return None
        return ServerTls(self.configured, server_file(state / "pki"), lambda: self.ensure(state))

    def certificate_file(self, state: Path) -> Path | None:
        """The certificate that the servers show; None: no server has TLS."""
        return self.files(state)[0] if self.hosts else None

    def files(self, state: Path) -> Files:
        """The certificate of servers with TLS, and its key."""
        own = server_file(state / "pki")
        return self.configured or (own, own)

    def ensure(self, state: Path, *, all_names: bool = False) -> None:
        """Make or renew plantlog's own certificate, if a server needs one. Raises SourceError.

        ``all_names``: also if it lacks a present name of the machine, besides those that options name.
        """
        if not self.hosts:
            return
        from core.servers import own_certificate  # noqa: PLC0415  (servers on loopback don't need its library)

        machine = own_certificate.machine_names()
        named = {*self.options.names, *self.hosts}
        try:
            own_certificate.ensure(state / "pki", named | (machine if all_names else set()), machine)
        except OSError as error:
            raise SourceError(f"plantlog's own certificate can't be made: {error}") from error

    def problem(self) -> str | None:
        """The fault of the files of [tls]; None: there is none.

        It is no error of the configuration: they change without anybody looking, and what collects has to start.
        """
        names = "certificate_file", "key_file"
        for name, found, legal in certificate_files.unusable(self.options, *names) if self.hosts else ():
            return f"tls.{name}: found {found}; legal: {legal}"
        return None


def base_url(plant: Plant, server: ServerOptions) -> str:
    """Scheme and host by which clients reach a server: one that listens everywhere has a name of the machine."""
    host = server.host
    if host in WILDCARDS:
        host = next(iter(plant.tls.names), socket.gethostname())
    return f"{server.scheme}://[{host}]" if ":" in host else f"{server.scheme}://{host}"


def viewer_url(plant: Plant) -> str:
    """Address of the viewer for browsers."""
    return plant.viewer.url or f"{base_url(plant, plant.viewer)}:{plant.viewer.port}"
