"""Resources that run out: disk space, and the validity of certificates."""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from core import metrics
from core.batch import Event, EventBatch
from core.certificates.identity import expires_at
from core.certificates.trust import certificates_in, crls_of
from core.config.sources import ModbusSource, OpcuaSource
from core.errors import SourceError, SpoolError
from core.timestamps import now_us
from ingest.appender import Appender

log = logging.getLogger(__name__)

_CRLS = "crl"  # the folders of revocation lists

_WARN_DAYS = 30.0
_CHECK_SECONDS = 60.0
_REPORT_SECONDS = 86400.0  # between two reports of one certificate
_NONE: Mapping[str, datetime] = MappingProxyType({})


def measure_disk(folder: str, path: Path) -> None:
    """Set the gauges of the disk that ``path`` is on; a folder that is not there yet has none."""
    with suppress(OSError):
        usage = shutil.disk_usage(path)
        metrics.disk_free_bytes.labels(folder=folder).set(usage.free)
        metrics.disk_bytes.labels(folder=folder).set(usage.total)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Expiry of our own certificate, a trusted one, one that a server shows, or of a CRL."""

    name: str  # path of the file, or the server's host and port
    ends: datetime

    @property
    def days(self) -> float:
        """Days that are left; less than 0: it has ended."""
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
    """Our own certificate, the trust list, and what the options of sources name: files, or folders of them."""
    named = [
        path
        for source in sources
        for path in (
            source.server_certificate,
            source.user_certificate_file if isinstance(source, OpcuaSource) else source.client_certificate_file,
        )
    ]
    listed = [pki / name / kind for name in ("trusted", "issuers") for kind in ("certs", _CRLS)]
    return [pki / "own.der", *listed, *dict.fromkeys(path for path in named if path is not None)]


def measure_certificates(places: Iterable[Path], shown: Mapping[str, datetime] = _NONE) -> list[Certificate]:
    """Set the expiry gauges of certificates; return those that expire within 30 days, and CRLs that have expired.

    ``places``: files, or folders of them; ``shown``: when those end that servers show, by host and port. Unreadable
    files are skipped.
    """
    certificates = [Certificate(server, ends) for server, ends in shown.items()]
    crls = []
    for folder_or_file in places:
        if folder_or_file.name == _CRLS:
            crls += [
                Certificate(str(crl.path), crl.expires) for crl in crls_of(folder_or_file) if crl.expires is not None
            ]
            continue
        with suppress(SourceError):
            certificates += [
                Certificate(str(path), expires_at(certificate)) for path, certificate in certificates_in(folder_or_file)
            ]
    metrics.certificate_expiry.clear()  # one that was removed ends no more
    for one in certificates:
        metrics.certificate_expiry.labels(certificate=Path(one.name).name).set(one.ends.timestamp())
    return [one for one in certificates if one.days < _WARN_DAYS] + [one for one in crls if one.days < 0]


async def watch_certificates(
    measure: Callable[[], Awaitable[list[Certificate]]], sources: Collection[int], spool: Appender
) -> None:
    """Report certificates that expire soon once a day, in the log and as events of the first source, until cancelled.

    ``sources``: ids of those that are read now.
    """
    reported: dict[str, float] = {}  # name → s
    while True:
        now = now_us()
        events = []
        for one in await measure():
            if time.monotonic() < reported.get(one.name, -math.inf) + _REPORT_SECONDS:
                continue
            reported[one.name] = time.monotonic()
            log.warning("%s", one)
            detail = {"certificate": one.name, "ends": one.ends.isoformat(), "days": round(one.days, 1)}
            events.append(Event("certificate_expiry", now, text=str(one), detail=detail))
        with suppress(SpoolError):  # the log has it, and it is said again tomorrow
            if events and sources:
                await spool.append(EventBatch(min(sources), now, events))
        await asyncio.sleep(_CHECK_SECONDS)
