"""Which of the plant's servers have TLS, and with which certificate."""

from __future__ import annotations

from pathlib import Path

from ingest.addresses import is_loopback
from ingest.config import certificate_files
from ingest.config.model import Plant, ServerOptions
from ingest.errors import SourceError
from ingest.server_tls import Files, ServerTls, server_file


def of(plant: Plant, server: ServerOptions, state: Path) -> ServerTls | None:
    """The TLS of one of the plant's servers; None: it speaks HTTP. Raises SourceError."""
    if server.scheme == "http":
        return None
    return ServerTls(_yours(plant), server_file(state / "pki"), lambda: ensure(plant, state))


def certificate_file(plant: Plant, state: Path) -> Path | None:
    """The certificate that the servers show; None: no server has TLS."""
    return files(plant, state)[0] if _hosts(plant) else None


def files(plant: Plant, state: Path) -> Files:
    """The certificate of servers with TLS, and its key."""
    own = server_file(state / "pki")
    return _yours(plant) or (own, own)


def ensure(plant: Plant, state: Path, *, all_names: bool = False) -> None:
    """Make or renew plantlog's own certificate, if a server needs one. Raises SourceError.

    ``all_names``: also if it lacks a present name of the machine, besides those that options name.
    """
    hosts = _hosts(plant)
    if not hosts:
        return
    from ingest import own_certificate  # noqa: PLC0415  (servers on loopback don't need its library)

    machine = own_certificate.machine_names()
    named = {*plant.tls.names, *hosts}
    try:
        own_certificate.ensure(state / "pki", named | (machine if all_names else set()), machine)
    except OSError as error:
        raise SourceError(f"plantlog's own certificate can't be made: {error}") from error


def problem(plant: Plant) -> str | None:
    """What is wrong with the files of [tls]; None: nothing.

    It is no error of the configuration: they change without anybody looking, and what collects has to start.
    """
    names = "certificate_file", "key_file"
    for name, found, legal in certificate_files.unusable(plant.tls, *names) if _hosts(plant) else ():
        return f"tls.{name}: found {found}; legal: {legal}"
    return None


def _hosts(plant: Plant) -> list[str]:
    """Where servers with TLS listen."""
    secure = [server.host for server in plant.servers() if server.scheme == "https"]
    return [*secure, *(() if is_loopback(plant.database.host) else (plant.database.host,))]


def _yours(plant: Plant) -> Files | None:
    certificate, key = plant.tls.certificate_file, plant.tls.key_file
    return None if certificate is None or key is None else (certificate, key)
