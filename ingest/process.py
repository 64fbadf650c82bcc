"""The life of a process: what it starts, what it says of its health, how it stops."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ingest import health, metrics, supplies
from ingest.alarms import control
from ingest.alarms.desk import Desk
from ingest.alarms.limits import PRIORITIES
from ingest.alarms.notifier import process as notifier
from ingest.alarms.stage import Stage
from ingest.batch import now_us
from ingest.collectors import Collectors
from ingest.config import snapshot
from ingest.config.model import ModbusSource, OpcuaSource, Plant, SourceKind
from ingest.config.snapshot import Snapshot
from ingest.errors import OperationError, PlantlogError
from ingest.processes import collector, port
from ingest.push.channels import Channels
from ingest.push.endpoint import Endpoint, serve
from ingest.push.gateways import Gateways
from ingest.registry import Registry
from ingest.spool.append import Spool
from ingest.status import SourceStatus
from ingest.writer.writer import Writer

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 8.0


class _Configuration:
    """What is in force in a process: applied at its start, and again with each SIGHUP."""

    def __init__(
        self, state: Path, kind: SourceKind, apply: Callable[[Snapshot, Registry], Awaitable[None]], number: int = 1
    ) -> None:
        """``apply`` raises OperationError, and nothing is changed; it is given the tags alone of those sources of
        ``kind`` that process ``number`` reads."""
        self._state = state
        self._kind = kind
        self._process = number
        self._apply = apply
        self._edited = asyncio.Event()
        self.number = 0

    async def apply(self) -> None:
        """Let what is in force be so here. Raises OperationError, and nothing is changed."""
        current = snapshot.in_force(self._state, (self._kind,), self._process)
        if current is None:
            raise OperationError(f"{self._state} has no configuration: `plantlog up` puts one in force")
        own = {source.name for source in current.plant.sources if source.kind == self._kind}
        await self._apply(current, Registry.load(self._state / "registry.json", own))
        self.number = current.number
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._edited.set)

    def names(self) -> Callable[[str], bool]:
        """Whether what is in force, which may not be what was applied, has a source of that name."""
        try:
            current = snapshot.in_force(self._state, ())
        except PlantlogError:
            current = None
        return lambda name: current is None or name in current.channels

    async def follow(self, stop: asyncio.Event) -> None:
        """Apply each other configuration, until ``stop``."""
        stopping = asyncio.create_task(stop.wait())
        while not stopping.done():
            editing = asyncio.create_task(self._edited.wait())
            await asyncio.wait((stopping, editing), return_when=asyncio.FIRST_COMPLETED)
            editing.cancel()
            if self._edited.is_set():
                self._edited.clear()
                try:
                    await self.apply()
                except PlantlogError as error:
                    log.error("the configuration stays as it is: %s", error)


async def run_collectors(
    kind: Literal["opcua", "modbus"], number: int, plant: Plant, state: Path, stop: asyncio.Event
) -> None:
    """Collect until ``stop`` from what process ``number`` reads of one kind, each source isolated from the others."""
    since, process = now_us(), collector(kind, number)
    spool = Spool(state / "spool" / f"{kind}.sqlite", plant.spool.max_bytes)
    # What is read from a source's history: the writer takes it when nothing else waits.
    lane = Spool(state / "spool" / f"{kind}.backfill.sqlite", plant.spool.max_bytes // 4) if kind == "opcua" else spool
    collectors = Collectors(state, spool, lane, process)
    servers: dict[int, OpcuaSource] = {}  # of all processes, by source id

    async def apply(current: Snapshot, registry: Registry) -> None:
        opcua, modbus = current.plant.opcua_sources(), current.plant.modbus_sources()
        sources: Sequence[OpcuaSource | ModbusSource] = opcua if kind == "opcua" else modbus
        own = [source for source in sources if current.process(source.name) == number]
        elsewhere = {source.name for source in sources} - {source.name for source in own}
        await collectors.configure(own, registry, current.versions, elsewhere)
        servers.clear()
        servers.update((registry.sources[source.name], source) for source in opcua)

    configuration = _Configuration(state, kind, apply, number)
    await configuration.apply()

    async def report() -> health.HealthReport:
        statuses = collectors.statuses()
        ready = all(status.state in ("connected", "degraded") for status in statuses)
        said = await _report(process, ready, since, statuses, spool, collectors.stages())
        if process == "collector-opcua":
            soon = await asyncio.to_thread(supplies.measure_certificates, state / "pki", list(servers.values()))
            said["certificates"] = [str(one) for one in soon]
        return {**said, "configuration": configuration.number}

    async with (
        health.serve(plant.health.host, port(process, plant.health), report),
        control.serve(control.socket_path(state, process), Desk(collectors.stages, plant.alarms)),
    ):
        certificates = partial(supplies.watch_certificates, state / "pki", servers, spool)
        first = process == "collector-opcua"
        watching = [asyncio.create_task(certificates(), name="certificates")] if first else []
        await configuration.follow(stop)
        log.info("stopping: what is in hand goes to disk")
        for task in watching:
            task.cancel()
        await collectors.stop(_DRAIN_SECONDS, configuration.names())
        await spool.close()
        if lane is not spool:
            await lane.close()


async def _report(
    process: str, ready: bool, since: int, statuses: Sequence[SourceStatus], spool: Spool, stages: Iterable[Stage]
) -> health.HealthReport:
    """What a collector process says of itself, and of the spool of its protocol."""
    name = spool.path.stem
    for status in statuses:
        metrics.source_up.labels(source=status.name).set(status.state in ("connected", "degraded"))
        metrics.bad_channels.labels(source=status.name).set(len(status.bad_channels))
    batches_rows = await spool.depth()
    metrics.spool_rows.labels(spool=name).set(batches_rows[1])
    metrics.spool_bytes.labels(spool=name).set(spool.bytes)
    metrics.spool_max_bytes.labels(spool=name).set(spool.max_bytes)
    supplies.measure_disk("spool", spool.path.parent)
    return {
        "process": process,
        "ready": ready,
        "alive": True,
        "since": since,
        "sources": [asdict(status) for status in statuses],
        "alarms": _alarms(stages),
        "spool": {"name": name, "rows": batches_rows[1], "bytes": spool.bytes, "max_bytes": spool.max_bytes},
    }


def _alarms(stages: Iterable[Stage]) -> dict[str, int]:
    """How many alarms there are, of all sources; each source's go to the metrics."""
    total: Counter[str] = Counter()
    for stage in stages:
        summary = stage.summary()
        for priority in PRIORITIES:
            metrics.alarms_active.labels(source=stage.source, priority=priority).set(summary[priority])
        metrics.alarms_unacknowledged.labels(source=stage.source).set(summary["unacknowledged"])
        metrics.alarms_inhibited.labels(source=stage.source).set(summary["inhibited"])
        total.update(summary)
    return dict(total)


async def run_push(plant: Plant, state: Path, stop: asyncio.Event) -> None:
    """Take what gateways push until ``stop``. Ready means that they can; whether they do is each source's state."""
    since = now_us()
    spool = Spool(state / "spool" / "push.sqlite", plant.spool.max_bytes)
    try:
        gateways = Gateways(spool, Channels(state, ingest_dsn(state)))
        endpoint = Endpoint(plant.push, gateways)

        async def apply(current: Snapshot, registry: Registry) -> None:
            await gateways.configure(current.plant.push_sources(), registry, current.versions)
            endpoint.options = current.plant.push

        configuration = _Configuration(state, "push", apply)
        await configuration.apply()

        async def report() -> health.HealthReport:
            said = await _report("collector-push", True, since, gateways.statuses(), spool, gateways.stages())
            return {**said, "configuration": configuration.number}

        async with (
            health.serve(plant.health.host, port("collector-push", plant.health), report),
            control.serve(control.socket_path(state, "collector-push"), Desk(gateways.stages, plant.alarms)),
        ):
            async with serve(endpoint):
                await configuration.follow(stop)
                log.info("stopping: bodies in hand are answered")
            await gateways.stop()
    finally:
        await spool.close()


async def run_writer(plant: Plant, state: Path, stop: asyncio.Event) -> None:
    """Write until ``stop``, then what still waits, for a bounded time."""
    dsn = ingest_dsn(state)
    since = now_us()
    writer = Writer(state / "spool", dsn, plant.writer)

    async def report() -> dict[str, Any]:
        rows, used = await writer.backlog()
        supplies.measure_disk("spool", state / "spool")
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
        }

    async with health.serve(plant.health.host, port("writer", plant.health), report):
        writing = asyncio.create_task(writer.run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((writing, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        log.info("stopping: what the spools hold is written, for %.0f s at most", _DRAIN_SECONDS)
        writer.drain()
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                await writing
        except TimeoutError:
            log.warning("stopped before the spools were empty; what is left stays there for the next start")


async def run_notifier(plant: Plant, state: Path, stop: asyncio.Event) -> None:
    """Tell people of alarms until ``stop``."""
    await notifier.run(plant, ingest_dsn(state), port("notifier", plant.health), stop)


def ingest_dsn(state: Path) -> str:
    """The DSN of the role that may only insert."""
    path = state / "secrets" / "ingest.dsn"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        raise OperationError(f"{path} is missing: `plantlog up` makes it") from None
