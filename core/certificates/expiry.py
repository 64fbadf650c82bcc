"""Expiry of certificates and CRLs, as gauges and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from core import metrics
from core.certificates.identity import expires_at
from core.certificates.trust import certificates_in, crls_of
from core.config.sources import ModbusSource, OpcuaSource
from core.errors import SourceError

_CRLS = "crl"  # the folders of revocation lists

_WARN_DAYS = 30.0
_NO_CERTIFICATES: Mapping[str, datetime] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Certificate:
    """Expiry of our own certificate, a trusted one, one that a server shows, or of a CRL."""

    name: str  # path of the file, or the server's host and port
    ends: datetime

    @property
    def days(self) -> float:
        """Days until the expiry; less than 0: it has expired."""
        return (self.ends - datetime.now(UTC)).total_seconds() / 86400

    def __str__(self) -> str:
        days = f"{self.days:.0f}"
        when = f"expires in {days} {'day' if days == '1' else 'days'}" if self.days > 0 else "has expired"
        is_ours = Path(self.name).name == "own.der"
        noun = (
            "the CRL" if Path(self.name).parent.name == _CRLS else "our certificate" if is_ours else "the certificate"
        )
        renew = ": run `plantlog source certificate renew` and trust the new certificate on each server" * is_ours
        return f"{noun} {self.name} {when} ({self.ends:%Y-%m-%d %H:%M}Z){renew}"


def certificate_files(pki: Path, sources: Iterable[OpcuaSource | ModbusSource]) -> list[Path]:
    """Files, or folders of them: our own certificate, the trust list, and the files in options of sources."""
    in_options = [
        path
        for source in sources
        for path in (
            source.server_certificate,
            source.user_certificate_file if isinstance(source, OpcuaSource) else source.client_certificate_file,
        )
    ]
    listed = [pki / name / kind for name in ("trusted", "issuers") for kind in ("certs", _CRLS)]
    return [pki / "own.der", *listed, *dict.fromkeys(path for path in in_options if path is not None)]


def measure_certificates(paths: Iterable[Path], shown: Mapping[str, datetime] = _NO_CERTIFICATES) -> list[Certificate]:
    """Set the expiry gauges of certificates; return those that expire within 30 days, and CRLs that have expired.

    ``paths``: files, or folders of them; ``shown``: expiry of servers' certificates, by host and port. Unreadable
    files are skipped.
    """
    certificates = [Certificate(server, ends) for server, ends in shown.items()]
    crls = []
    for folder_or_file in paths:
        if folder_or_file.name == _CRLS:
            crls += [
                Certificate(str(crl.path), crl.expires) for crl in crls_of(folder_or_file) if crl.expires is not None
            ]
            continue
        with suppress(SourceError):
            certificates += [
                Certificate(str(path), expires_at(content)) for path, content in certificates_in(folder_or_file)
            ]
    metrics.certificate_expiry.clear()  # of those that were removed
    for certificate in certificates:
        metrics.certificate_expiry.labels(certificate=Path(certificate.name).name).set(certificate.ends.timestamp())
    return [certificate for certificate in certificates if certificate.days < _WARN_DAYS] + [
        crl for crl in crls if crl.days < 0
    ]
