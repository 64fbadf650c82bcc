"""What is used up without a fault: room on a disk, the time that a certificate is valid."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ingest import metrics
from ingest.appender import Appender
from ingest.batch import Event, EventBatch, now_us
from ingest.config.model import OpcuaSource
from ingest.errors import SourceError, SpoolError
from ingest.opcua.certificate import ends
from ingest.opcua.trust import listed

log = logging.getLogger(__name__)

_WARN_DAYS = 30.0


def measure_disk(folder: str, path: Path) -> None:
    """Set the gauges of the disk that ``path`` is on; a folder that is not there yet has none."""
    with suppress(OSError):
        usage = shutil.disk_usage(path)
        metrics.disk_free_bytes.labels(folder=folder).set(usage.free)
        metrics.disk_bytes.labels(folder=folder).set(usage.total)


@dataclass(frozen=True, slots=True)
class Certificate:
    """When one of ours, or one that is trusted, ends."""

    path: Path
    ends: datetime

    @property
    def days(self) -> float:
        """Days that are left; less than 0: it has ended."""
        return (self.ends - datetime.now(UTC)).total_seconds() / 86400

    def __str__(self) -> str:
        when = f"ends in {self.days:.0f} days" if self.days > 0 else "has ended"
        what = "our OPC UA certificate" if self.path.name == "own.der" else "the trusted certificate"
        renew = ": `plantlog certificate renew`, and trust the new one at each server" * (self.path.name == "own.der")
        return f"{what} {self.path} {when} ({self.ends:%Y-%m-%d %H:%M}Z){renew}"


def measure_certificates(pki: Path, sources: Sequence[OpcuaSource]) -> list[Certificate]:
    """Set the gauges of our own certificate and of those that are trusted; gives those that end within 30 days.

    What can't be read has none.
    """
    named = [source.server_certificate for source in sources if source.server_certificate is not None]
    found = []
    for place in (pki / "own.der", pki / "trusted", *named):
        with suppress(SourceError):
            found += [Certificate(path, ends(certificate)) for path, certificate in listed(place)]
    metrics.certificate_expiry.clear()  # one that was removed ends no more
    for one in found:
        metrics.certificate_expiry.labels(certificate=one.path.name).set(one.ends.timestamp())
    return [one for one in found if one.days < _WARN_DAYS]


async def watch_certificates(pki: Path, sources: Mapping[int, OpcuaSource], spool: Appender) -> None:
    """Say each day which certificates end soon, in the log and as events of the first source; until cancelled.

    ``sources``: those that are read now, by id.
    """
    while True:
        now = now_us()
        events = []
        for one in await asyncio.to_thread(measure_certificates, pki, list(sources.values())):
            log.warning("%s", one)
            detail = {"certificate": str(one.path), "ends": one.ends.isoformat(), "days": round(one.days, 1)}
            events.append(Event("certificate_expiry", now, text=str(one), detail=detail))
        with suppress(SpoolError):  # the log has it, and it is said again tomorrow
            if events and sources:
                await spool.append(EventBatch(min(sources), now, events))
        await asyncio.sleep(86400)
