"""What is used up without a fault: room on a disk, the time that a certificate is valid."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cryptography import x509

from ingest import metrics
from ingest.config.model import OpcuaSource


def measure_disk(folder: str, path: Path) -> None:
    """Set the gauges of the disk that ``path`` is on; a folder that is not there yet has none."""
    with suppress(OSError):
        usage = shutil.disk_usage(path)
        metrics.disk_free_bytes.labels(folder=folder).set(usage.free)
        metrics.disk_bytes.labels(folder=folder).set(usage.total)


def measure_certificates(pki: Path, sources: Sequence[OpcuaSource]) -> None:
    """Set the gauges of our own certificate and of those that are trusted; what can't be read has none."""
    trusted = [path for pattern in ("*.der", "*.pem") for path in sorted((pki / "trusted").glob(pattern))]
    named = [source.server_certificate for source in sources if source.server_certificate is not None]
    metrics.certificate_expiry.clear()  # one that was removed ends no more
    for path in [pki / "own.der", *trusted, *named]:
        with suppress(OSError, ValueError):
            ends = expiry(path)
            metrics.certificate_expiry.labels(certificate=path.name).set(ends)


def expiry(path: Path) -> float:
    """When a certificate (DER or PEM) ends, s since 1970 UTC. Raises OSError, and ValueError where it is none."""
    content = path.read_bytes()
    pem = content.startswith(b"-----BEGIN")
    certificate = x509.load_pem_x509_certificate(content) if pem else x509.load_der_x509_certificate(content)
    return certificate.not_valid_after_utc.timestamp()
