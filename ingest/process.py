"""The life of a process: what it starts, what it says of its health, how it stops."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ingest import health, metrics, supplies
from ingest.alarms import control
from ingest.alarms.desk import Desk
from ingest.alarms.limits import PRIORITIES
from ingest.alarms.notifier import process as notifier
from ingest.alarms.stage import Stage, staged
from ingest.appender import Appender
from ingest.batch import Event, EventBatch, now_us
from ingest.config.model import ModbusSource, OpcuaSource, Plant, PushSource, Source
from ingest.errors import OperationError, SpoolError
from ingest.modbus import collector as modbus
from ingest.modbus.transport import Lines
from ingest.opcua import collector as opcua
from ingest.push import endpoint
from ingest.push.channels import Channels
from ingest.push.gateway import Gateway
from ingest.registry import Registry
from ingest.spool.append import Spool
from ingest.status import SourceStatus
from ingest.writer.writer import Writer

log = logging.getLogger(__name__)

_PORTS = {"opcua": 0, "modbus": 1, "writer": 2, "push": 3, "notifier": 6}  # behind [health].port
_DRAIN_SECONDS = 8.0
_AGAIN_SECONDS = 5.0  # before a collector that failed in a way nobody foresaw is started again


async def run_collectors(kind: Literal["opcua", "modbus"], plant: Plant, state: Path, stop: asyncio.Event) -> None:
    """Collect from all sources of one kind until ``stop``, each isolated from the others."""
    registry = Registry.load(state / "registry.json")
    sources: Sequence[OpcuaSource | ModbusSource] = plant.opcua_sources() if kind == "opcua" else plant.modbus_sources()
    since = now_us()
    statuses = [_status(source, registry) for source in sources]
    spool = Spool(state / "spool" / f"{kind}.sqlite", plant.spool.max_bytes)
    # What is read from a source's history: the writer takes it when nothing else waits.
    lane = Spool(state / "spool" / f"{kind}.backfill.sqlite", plant.spool.max_bytes // 4) if kind == "opcua" else spool
    stages = _stages(sources, registry, spool)
    lines = Lines()

    async def report() -> health.HealthReport:
        ready = all(status.state in ("connected", "degraded") for status in statuses)
        said = await _report(kind, ready, since, statuses, spool, stages.values())
        if kind == "opcua":
            soon = await asyncio.to_thread(supplies.measure_certificates, state / "pki", plant.opcua_sources())
            said["certificates"] = [str(one) for one in soon]
        return said

    desk = Desk(list(stages.values()), plant.alarms)
    async with (
        health.serve(plant.health.host, plant.health.port + _PORTS[kind], report),
        control.serve(control.socket_path(state, kind), desk),
    ):
        tasks = [asyncio.create_task(stage.run(), name=f"alarms of {name}") for name, stage in stages.items()]
        for source, status in zip(sources, statuses, strict=True):
            collect = _collect(source, registry, status, stages.get(source.name, spool), lane, state, lines)
            tasks.append(asyncio.create_task(_keep(collect, status, spool, kind), name=source.name))
        if kind == "opcua" and statuses:
            watched = supplies.watch_certificates(state / "pki", plant.opcua_sources(), statuses[0].source_id, spool)
            tasks.append(asyncio.create_task(watched, name="certificates"))
        await stop.wait()
        log.info("stopping: what is in hand goes to disk")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks or [asyncio.create_task(asyncio.sleep(0))], timeout=_DRAIN_SECONDS)
        await spool.close()
        if lane is not spool:
            await lane.close()


async def _report(
    kind: str, ready: bool, since: int, statuses: Sequence[SourceStatus], spool: Spool, stages: Iterable[Stage]
) -> health.HealthReport:
    """What a collector process says of itself."""
    for status in statuses:
        metrics.source_up.labels(source=status.name).set(status.state in ("connected", "degraded"))
        metrics.bad_channels.labels(source=status.name).set(len(status.bad_channels))
    batches_rows = await spool.depth()
    metrics.spool_rows.labels(spool=kind).set(batches_rows[1])
    metrics.spool_bytes.labels(spool=kind).set(spool.bytes)
    metrics.spool_max_bytes.labels(spool=kind).set(spool.max_bytes)
    supplies.measure_disk("spool", spool.path.parent)
    return {
        "process": f"collector-{kind}",
        "ready": ready,
        "alive": True,
        "since": since,
        "sources": [asdict(status) for status in statuses],
        "alarms": _alarms(stages),
        "spool": {"rows": batches_rows[1], "bytes": spool.bytes, "max_bytes": spool.max_bytes},
    }


def _stages(sources: Iterable[Source], registry: Registry, spool: Spool) -> dict[str, Stage]:
    """Source name → what judges its samples; only those that have something to judge."""
    stages = {}
    for source in sources:
        channel_ids = {tag.name: registry.channels[tag.name] for tag in source.tags}
        stage = staged(source, channel_ids, registry.sources[source.name], spool)
        if stage is not None:
            stages[source.name] = stage
    return stages


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


def _status(source: Source, registry: Registry) -> SourceStatus:
    missing = [tag.name for tag in source.tags if tag.name not in registry.channels]
    if source.name not in registry.sources or missing:
        what = f"source {source.name}" if source.name not in registry.sources else f"channel {missing[0]}"
        raise OperationError(f"{what} is not registered: run `plantlog up` to register the configuration")
    return SourceStatus(registry.sources[source.name], source.name, source.kind, source.address, len(source.tags))


def _collect(
    source: OpcuaSource | ModbusSource,
    registry: Registry,
    status: SourceStatus,
    spool: Appender,
    lane: Spool,
    state: Path,
    lines: Lines,
) -> Callable[[], Awaitable[None]]:
    channel_ids = {tag.name: registry.channels[tag.name] for tag in source.tags}
    match source:
        case OpcuaSource():
            return opcua.Collector(source, channel_ids, status, spool, state / "pki", lane).run
        case ModbusSource():
            return partial(modbus.collect, source, channel_ids, status, spool, lines)


async def _keep(collect: Callable[[], Awaitable[None]], status: SourceStatus, spool: Spool, kind: str) -> None:
    """Run one source's collector for ever. It handles what a plant does; this handles our own mistakes."""
    await _started(status, spool, kind)
    while True:
        try:
            await collect()
        except asyncio.CancelledError:
            status.state = "stopped"
            raise
        except Exception as error:
            log.exception("source %s: the collector failed, started again in %.0f s", status.name, _AGAIN_SECONDS)
            status.state, status.reason = "disconnected", f"{type(error).__name__}: {error}"
            await asyncio.sleep(_AGAIN_SECONDS)


async def _started(status: SourceStatus, spool: Spool, kind: str) -> None:
    started = Event("restart", now_us(), detail={"process": f"collector-{kind}"})
    with suppress(SpoolError):
        await spool.append(EventBatch(status.source_id, started.time, (started,)))


async def run_push(plant: Plant, state: Path, stop: asyncio.Event) -> None:
    """Take what gateways push until ``stop``. Ready means that they can; whether they do is each source's state."""
    registry = Registry.load(state / "registry.json")
    channels = Channels(state, ingest_dsn(state))
    since = now_us()
    spool = Spool(state / "spool" / "push.sqlite", plant.spool.max_bytes)
    try:
        statuses = [_status(source, registry) for source in plant.push_sources()]
        stages = _stages(plant.push_sources(), registry, spool)
        gateways = [
            _gateway(source, registry, status, stages.get(source.name, spool), channels)
            for source, status in zip(plant.push_sources(), statuses, strict=True)
        ]
        endpoint.check_tokens(gateways)

        async def report() -> health.HealthReport:
            return await _report("push", True, since, statuses, spool, stages.values())

        async with (
            health.serve(plant.health.host, plant.health.port + _PORTS["push"], report),
            control.serve(control.socket_path(state, "push"), Desk(list(stages.values()), plant.alarms)),
        ):
            for status in statuses:
                await _started(status, spool, "push")
            async with endpoint.serve(plant.push, gateways), asyncio.TaskGroup() as group:
                watching = [group.create_task(gateway.silence.watch(), name=gateway.name) for gateway in gateways]
                watching += [group.create_task(stage.run(), name=f"alarms of {n}") for n, stage in stages.items()]
                await stop.wait()
                log.info("stopping: bodies in hand are answered")
                for task in watching:
                    task.cancel()
            for gateway, status in zip(gateways, statuses, strict=True):
                await gateway.arrivals.close()
                status.state = "stopped"
    finally:
        await spool.close()


def _gateway(
    source: PushSource, registry: Registry, status: SourceStatus, spool: Appender, channels: Channels
) -> Gateway:
    channel_ids = {tag.name: registry.channels[tag.name] for tag in source.tags}
    return Gateway(source, channel_ids, status, spool, channels)


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

    async with health.serve(plant.health.host, plant.health.port + _PORTS["writer"], report):
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
    await notifier.run(plant, ingest_dsn(state), plant.health.port + _PORTS["notifier"], stop)


def ingest_dsn(state: Path) -> str:
    """The DSN of the role that may only insert."""
    path = state / "secrets" / "ingest.dsn"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        raise OperationError(f"{path} is missing: `plantlog up` makes it") from None
