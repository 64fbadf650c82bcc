"""Options of Modbus sources for TLS: what a connection needs of them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ingest.config.explain import shown
from ingest.config.modbus_address import TlsOptions
from ingest.config.sources import ModbusSource

_OPTIONS = ("server_certificate", "accept", "client_certificate_file", "client_key_file")


def tls_options(source: ModbusSource) -> TlsOptions | None:
    """None: the connection has no TLS."""
    if not source.address.startswith("tls:") or source.server_certificate is None:
        return None
    client = source.client_certificate_file, source.client_key_file
    return TlsOptions(source.server_certificate, *client, source.accept)


def contradictions(source: ModbusSource) -> Iterator[tuple[str, str, str]]:
    """As of :mod:`ingest.config.contradictions`: between these options and the address, or the files they name."""
    named = {name: getattr(source, name) for name in _OPTIONS}
    if not source.address.startswith("tls:"):
        for name, value in named.items():
            if value:
                found = shown(list(value)) if isinstance(value, tuple) else shown(str(value))
                yield name, found, "no value without tls:// in address"
        return
    if source.server_certificate is None:
        yield "server_certificate", "nothing", "a file with the certificate of the server, or of its authority"
    if (source.client_certificate_file is None) != (source.client_key_file is None):
        name = "client_key_file" if source.client_key_file is None else "client_certificate_file"
        yield name, "nothing", "client_certificate_file and client_key_file, or neither"
    elif all(path.is_file() for path in named.values() if isinstance(path, Path)):
        yield from _in_files(source)


def _in_files(source: ModbusSource) -> Iterator[tuple[str, str, str]]:
    from ingest import tls  # noqa: PLC0415  (imports ssl, which others don't need)

    server, certificate, key = source.server_certificate, source.client_certificate_file, source.client_key_file
    try:
        if server is not None:
            tls.trusting(server)
    except tls.UnusableFile as fault:
        yield "server_certificate", f"{shown(str(fault.path))}, which {fault.found}", fault.legal
    try:
        if certificate is not None and key is not None:
            tls.present(tls.trusting(certificate), certificate, key)
    except tls.UnusableFile as fault:
        name = "client_key_file" if fault.path == key else "client_certificate_file"
        yield name, f"{shown(str(fault.path))}, which {fault.found}", fault.legal
