"""The main functions of the processes: start, health report, orderly stop."""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core import metrics
from core.batch import Event, EventBatch
from core.certificates.expiry import Certificate, certificate_files, measure_certificates
from core.config import snapshot
from core.config.processes import collector
from core.config.settings import CollectorSettings, PushSettings, WriterSettings
from core.config.snapshot import Snapshot
from core.config.sources import PRIORITIES, ModbusSource, OpcuaSource, SourceKind
from core.errors import OperationError, PlantlogError, SpoolError
from core.installation import installation_of
from core.paths import State
from core.process import health_page
from core.registry import Registry
from core.servers import health
from core.source_states import UP
from core.timestamps import now_us
from ingest.alarms import command_socket
from ingest.alarms.conditions import Conditions
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.alarms.operator_api import OperatorApi
from ingest.appender import Appender
from ingest.spool.append import Spool
from ingest.status import SourceStatus

if TYPE_CHECKING:
    from ingest.writer.member import PairWriter
    from ingest.writer.writer import Writer

# A process imports what it needs when it runs, so that it starts soon.
# ruff: noqa: PLC0415

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 8.0
_CERTIFICATE_SECONDS = 60.0  # between two looks at certificates
_REPORT_SECONDS = 86400.0  # between two reports of one certificate


class _Configuration:
    """The configuration of a process: applied at its start and on SIGHUP."""

    def __init__(
        self, state: Path, kind: SourceKind, apply: Callable[[Snapshot, Registry], Awaitable[None]], number: int = 1
    ) -> None:
        """``apply`` raises OperationError, and nothing is changed; it is given the tags alone of those sources of
        ``kind`` that process ``number`` reads."""
        self._state = state
        self._kind = kind
        self._process = number
        self._apply = apply
        self._reload = asyncio.Event()
        self.number = 0

    async def apply(self) -> None:
        """Apply the configuration in force. Raises OperationError with nothing changed."""
        current = snapshot.in_force(self._state, (self._kind,), self._process)
        if current is None:
            raise OperationError(f"{self._state} has no configuration yet: run `plantlog up`")
        names = {source.name for source in current.plant.sources if source.kind == self._kind}
        await self._apply(current, Registry.load(self._state / "registry.json", names))
        self.number = current.number
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload.set)

    def source_filter(self) -> Callable[[str], bool]:
        """A function that tells whether the configuration in force, which may not be applied yet, has a source."""
        try:
            current = snapshot.in_force(self._state, ())
        except PlantlogError:
            current = None
        return lambda name: current is None or name in current.channels

    async def follow(self, stop: asyncio.Event) -> None:
        """Apply each new configuration until ``stop``."""
        stopping = asyncio.create_task(stop.wait())
        while not stopping.done():
            editing = asyncio.create_task(self._reload.wait())
            await asyncio.wait((stopping, editing), return_when=asyncio.FIRST_COMPLETED)
            editing.cancel()
            if self._reload.is_set():
                self._reload.clear()
                try:
                    await self.apply()
                except PlantlogError as error:
                    log.error("cannot apply the new configuration, keeping the current one: %s", error)


async def run_collectors(
    kind: Literal["opcua", "modbus"], number: int, settings: CollectorSettings, state: Path, stop: asyncio.Event
) -> None:
    """Read the sources of one kind that are assigned to process ``number``, until ``stop``."""
    from ingest.run.collectors import Collectors

    since, process = now_us(), collector(kind, number)
    spool = Spool(state / "spool" / f"{kind}.sqlite", settings.max_bytes, settings.limits, settings.max_text)
    # What is read from a source's history: the writer takes it when nothing else waits.
    backfill_spool = (
        Spool(state / "spool" / f"{kind}.backfill.sqlite", settings.max_bytes // 4, settings.limits, settings.max_text)
        if kind == "opcua"
        else spool
    )
    collectors = Collectors(state, spool, backfill_spool, process)
    ids: set[int] = set()  # of the sources of all processes of the kind
    files: list[Path] = []  # with certificates; one process looks after them

    async def apply(current: Snapshot, registry: Registry) -> None:
        opcua, modbus = current.plant.opcua_sources(), current.plant.modbus_sources()
        sources: Sequence[OpcuaSource | ModbusSource] = opcua if kind == "opcua" else modbus
        assigned = [source for source in sources if current.process(source.name) == number]
        elsewhere = {source.name for source in sources} - {source.name for source in assigned}
        await collectors.configure(assigned, registry, current.versions, elsewhere)
        ids.clear()
        ids.update(registry.sources[source.name] for source in sources)
        looks_after = number == 1 and (kind == "opcua" or not opcua)
        files[:] = certificate_files(state / "pki", [*opcua, *modbus]) if looks_after else []

    configuration = _Configuration(state, kind, apply, number)
    await configuration.apply()

    async def certificates() -> list[Certificate]:
        return await asyncio.to_thread(measure_certificates, files, collectors.shown_certificates())

    async def report() -> health.HealthReport:
        statuses = collectors.statuses()
        ready = all(status.state in UP for status in statuses)
        watched: list[AlarmEvaluator | Conditions] = [*collectors.evaluators(), *collectors.conditions()]
        content = await _report(process, ready, since, statuses, spool, watched)
        expiring = [str(certificate) for certificate in await certificates()]
        return {**content, "certificates": expiring, "configuration": configuration.number}

    async with (
        health_page.serve(process, settings, report, state),
        command_socket.serve(
            command_socket.socket_path(state, process),
            OperatorApi(collectors.evaluators, settings.alarms, collectors.conditions),
        ),
    ):
        watching = asyncio.create_task(watch_certificates(certificates, ids, spool), name="certificates")
        await configuration.follow(stop)
        log.info("stopping: writing pending data to disk")
        watching.cancel()
        await collectors.stop(_DRAIN_SECONDS, configuration.source_filter())
        await spool.close()
        if backfill_spool is not spool:
            await backfill_spool.close()


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
        for certificate in await measure():
            if time.monotonic() < reported.get(certificate.name, -math.inf) + _REPORT_SECONDS:
                continue
            reported[certificate.name] = time.monotonic()
            log.warning("%s", certificate)
            detail = {
                "certificate": certificate.name,
                "ends": certificate.ends.isoformat(),
                "days": round(certificate.days, 1),
            }
            events.append(Event("certificate_expiry", now, text=str(certificate), detail=detail))
        with suppress(SpoolError):  # the log has it, and it is said again tomorrow
            if events and sources:
                await spool.append(EventBatch(min(sources), now, events))
        await asyncio.sleep(_CERTIFICATE_SECONDS)


async def _report(
    process: str,
    ready: bool,
    since: int,
    statuses: Sequence[SourceStatus],
    spool: Spool,
    alarms: Iterable[AlarmEvaluator | Conditions],
) -> health.HealthReport:
    """Health report of a collector process and of the spool of its protocol."""
    name = spool.path.stem
    for status in statuses:
        metrics.source_up.labels(source=status.name).set(status.state in UP)
        metrics.bad_channels.labels(source=status.name).set(len(status.bad_channels))
    batches_rows = await spool.depth()
    metrics.spool_rows.labels(spool=name).set(batches_rows[1])
    metrics.spool_bytes.labels(spool=name).set(spool.bytes)
    metrics.spool_max_bytes.labels(spool=name).set(spool.max_bytes)
    measure_disk(spool.path.parent)
    return {
        "process": process,
        "ready": ready,
        "alive": True,
        "since": since,
        "sources": [status.report() for status in statuses],
        "alarms": _alarms(alarms),
        "spool": {"name": name, "rows": batches_rows[1], "bytes": spool.bytes, "max_bytes": spool.max_bytes},
    }


def measure_disk(spool: Path) -> None:
    """Set the gauges of the disk with this folder; a folder that is not there yet has none."""
    with suppress(OSError):
        usage = shutil.disk_usage(spool)
        metrics.disk_free_bytes.labels(folder="spool").set(usage.free)
        metrics.disk_bytes.labels(folder="spool").set(usage.total)


def _alarms(alarms: Iterable[AlarmEvaluator | Conditions]) -> dict[str, int]:
    """Number of alarms over all sources; sets the metrics of each source."""
    summaries: dict[str, Counter[str]] = {}
    for of_source in alarms:
        summaries.setdefault(of_source.source, Counter()).update(of_source.summary())
    total: Counter[str] = Counter()
    for source, summary in summaries.items():
        for priority in PRIORITIES:
            metrics.alarms_active.labels(source=source, priority=priority).set(summary[priority])
        metrics.alarms_unacknowledged.labels(source=source).set(summary["unacknowledged"])
        metrics.alarms_inhibited.labels(source=source).set(summary["inhibited"])
        total.update(summary)
    return dict(total)


async def run_push(settings: PushSettings, state: Path, stop: asyncio.Event) -> None:
    """Accept data from gateways until ``stop``. Ready: they can push; whether they do is each source's state."""
    from ingest.push.channels import Channels
    from ingest.push.endpoint import Endpoint, serve
    from ingest.push.gateways import Gateways

    since = now_us()
    spool = Spool(state / "spool" / "push.sqlite", settings.max_bytes, settings.limits, settings.max_text)
    try:
        gateways = Gateways(spool, Channels(state, State(state).dsn("ingest")))
        endpoint = Endpoint(settings.push, gateways)

        async def apply(current: Snapshot, registry: Registry) -> None:
            await gateways.configure(current.plant.push_sources(), registry, current.versions)
            endpoint.options = current.plant.push

        configuration = _Configuration(state, "push", apply)
        await configuration.apply()

        async def report() -> health.HealthReport:
            content = await _report("collector-push", True, since, gateways.statuses(), spool, gateways.evaluators())
            return {
                **content,
                "configuration": configuration.number,
                "tokens": gateways.tokens_used(),
                "wrong_tokens": asdict(endpoint.wrong_tokens),
            }

        async with (
            health_page.serve("collector-push", settings, report, state),
            command_socket.serve(
                command_socket.socket_path(state, "collector-push"), OperatorApi(gateways.evaluators, settings.alarms)
            ),
        ):
            async with serve(endpoint, settings.server_tls(settings.push, state)):
                following = asyncio.create_task(gateways.follow_tokens(), name="tokens")
                await configuration.follow(stop)
                following.cancel()
                log.info("stopping: answering open requests")
            await gateways.stop()
    finally:
        await spool.close()


async def run_writer(settings: WriterSettings, state: Path, stop: asyncio.Event) -> None:
    """Write until ``stop``, then drain the spools for a limited time."""
    from ingest.writer.member import PairWriter

    dsn = State(state).dsn("ingest")
    since = now_us()
    writer = _writer(settings, state, dsn)

    async def report() -> dict[str, Any]:
        rows, used, journal = await writer.backlog()
        measure_disk(state / "spool")
        return {
            "process": "writer",
            "ready": writer.database == "connected",
            "alive": True,
            "since": since,
            "database": writer.database,
            "written": writer.written,
            "lag_seconds": writer.lag_seconds,
            "backlog_rows": rows,
            "backlog_bytes": used,
            "journal": asdict(journal),
            "redundancy": writer.report() if isinstance(writer, PairWriter) else None,
        }

    async with health_page.serve("writer", settings, report, state):
        writing = asyncio.create_task(writer.run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((writing, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        log.info("stopping: draining the spools for at most %.0f s", _DRAIN_SECONDS)
        writer.drain()
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                await writing
        except TimeoutError:
            log.warning("stopped before the spools were empty; the rest is written after the next start")


def _writer(settings: WriterSettings, state: Path, dsn: str) -> Writer | PairWriter:
    from ingest.writer.member import PairWriter
    from ingest.writer.writer import Writer

    installation = installation_of(state)
    if settings.member is None:
        return Writer(state / "spool", dsn, settings.writer, settings.spool)
    if installation is None:
        raise OperationError(f"{state} has no installation yet: run `plantlog up`")
    return PairWriter(state / "spool", dsn, installation, settings.member, settings.writer, settings.spool)
