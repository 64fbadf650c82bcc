"""Which of the plant's servers speak HTTPS, and with which certificate."""

from __future__ import annotations

from pathlib import Path

from ingest.config.model import Plant, ServerOptions
from ingest.errors import SourceError
from ingest.server_tls import Files, ServerTls, context
from ingest.tls import UnusableFile


def of(plant: Plant, server: ServerOptions, state: Path) -> ServerTls | None:
    """The TLS of one of the plant's servers; None: it speaks HTTP. Raises SourceError."""
    if server.scheme == "http":
        return None
    return ServerTls(_yours(plant), state / "pki" / "tls" / "server.pem", lambda: ensure(plant, state))


def certificate_file(plant: Plant, state: Path) -> Path | None:
    """The certificate that the servers show; None: all speak HTTP."""
    if not _secure(plant):
        return None
    yours = _yours(plant)
    return state / "pki" / "tls" / "server.pem" if yours is None else yours[0]


def ensure(plant: Plant, state: Path, *, all_names: bool = False) -> None:
    """Make or renew plantlog's own certificate, if a server needs one. Raises SourceError.

    ``all_names``: also if it lacks a present name of the machine, besides those that options name.
    """
    if not _secure(plant):
        return
    from ingest import own_certificate  # noqa: PLC0415  (servers on loopback don't need its library)

    machine = own_certificate.machine_names()
    named = {*plant.tls.names, *(server.host for server in _secure(plant))}
    try:
        own_certificate.ensure(state / "pki", named | (machine if all_names else set()), machine)
    except OSError as error:
        raise SourceError(f"plantlog's own certificate can't be made: {error}") from error


def problem(plant: Plant) -> str | None:
    """Why your certificate can't be used; None: it can, or plantlog's own is used."""
    yours = _yours(plant)
    if yours is None or not _secure(plant):
        return None
    try:
        context(*yours)
    except UnusableFile as fault:
        return f"the certificate of [tls] can't be used: {fault}"
    return None


def _secure(plant: Plant) -> list[ServerOptions]:
    return [server for server in plant.servers() if server.scheme == "https"]


def _yours(plant: Plant) -> Files | None:
    certificate, key = plant.tls.certificate_file, plant.tls.key_file
    return None if certificate is None or key is None else (certificate, key)
