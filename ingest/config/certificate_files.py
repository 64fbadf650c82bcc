"""Options that name a certificate and its key: what is wrong with the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ingest.config.base import Frozen
from ingest.config.explain import shown


def contradictions(options: Frozen, certificate_name: str, key_name: str) -> Iterator[tuple[str, str, str]]:
    """As of :mod:`ingest.config.contradictions`: between the two options, or the files they name."""
    certificate: Path | None = getattr(options, certificate_name)
    key: Path | None = getattr(options, key_name)
    if (certificate is None) != (key is None):
        missing = key_name if key is None else certificate_name
        yield missing, "nothing", f"{certificate_name} and {key_name}, or neither"
    elif certificate is not None and key is not None and certificate.is_file() and key.is_file():
        from ingest import tls  # noqa: PLC0415  (imports ssl, which others don't need)

        try:
            tls.present(tls.trusting(certificate), certificate, key)
        except tls.UnusableFile as fault:
            name = key_name if fault.path == key else certificate_name
            yield name, f"{shown(str(fault.path))}, which {fault.found}", fault.legal
