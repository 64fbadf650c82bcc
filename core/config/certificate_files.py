"""Faults of two options that belong together, such as a certificate and its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.config.base import Frozen
from core.config.explain import FieldFault, shown


def incomplete(options: Frozen, *names: str) -> Iterator[FieldFault]:
    """The fault that only one of two options is set."""
    missing = [name for name in names if getattr(options, name) is None]
    if len(missing) == 1:
        yield missing[0], "nothing", f"{' and '.join(names)}, or neither"


def unusable(options: Frozen, certificate_name: str, key_name: str) -> Iterator[FieldFault]:
    """The fault of the two files, if both exist."""
    certificate: Path | None = getattr(options, certificate_name)
    key: Path | None = getattr(options, key_name)
    if certificate is None or key is None or not certificate.is_file() or not key.is_file():
        return
    from core import tls  # noqa: PLC0415  (imports ssl, which others don't need)

    try:
        tls.present(tls.trusting(certificate), certificate, key)
    except tls.UnusableFile as fault:
        name = key_name if fault.path == key else certificate_name
        yield name, f"{shown(fault.path)}, which {fault.found}", fault.legal
