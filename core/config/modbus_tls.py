"""TLS options of Modbus sources: those of a connection, and their faults."""

from __future__ import annotations

from collections.abc import Iterator

from core.config import certificate_files
from core.config.addresses.modbus_address import ModbusTlsOptions
from core.config.explain import FieldFault, shown
from core.config.sources import ModbusSource

_OPTIONS = ("server_certificate", "accept", "client_certificate_file", "client_key_file")


def tls_options(source: ModbusSource) -> ModbusTlsOptions | None:
    """TLS options of a connection; None: it has no TLS."""
    if not source.address.startswith("tls:") or source.server_certificate is None:
        return None
    client = source.client_certificate_file, source.client_key_file
    return ModbusTlsOptions(source.server_certificate, *client, source.accept)


def contradictions(source: ModbusSource) -> Iterator[FieldFault]:
    """Faults between these options and the address, or of the files that they name."""
    if not source.address.startswith("tls:"):
        for name in _OPTIONS:
            if value := getattr(source, name):
                text = shown(list(value) if isinstance(value, tuple) else value)
                yield name, text, "no value without tls:// in address"
        return
    if source.server_certificate is None:
        yield "server_certificate", "nothing", "a file with the certificate of the server, or of its authority"
    elif source.server_certificate.is_file():
        from core import tls  # noqa: PLC0415  (imports ssl, which others don't need)

        try:
            tls.trusting(source.server_certificate)
        except tls.UnusableFile as fault:
            yield "server_certificate", f"{shown(fault.path)}, which {fault.found}", fault.legal
    yield from certificate_files.incomplete(source, "client_certificate_file", "client_key_file")
    yield from certificate_files.unusable(source, "client_certificate_file", "client_key_file")
