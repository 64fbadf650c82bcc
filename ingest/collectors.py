"""The sources of one kind that a process reads: each has a task of its own, and follows the configuration.

What changed of a source is applied where it is: another tag list to the living session, another address to that source
alone. No other source notices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ingest import metrics
from ingest.alarms.stage import Stage
from ingest.appender import Appender
from ingest.batch import Event, EventBatch, now_us
from ingest.config.files import digests
from ingest.config.model import ModbusSource, OpcuaSource, Source
from ingest.errors import OperationError, SpoolError
from ingest.gaps import Gaps
from ingest.modbus.collector import Collector as ModbusCollector
from ingest.modbus.transport import Lines
from ingest.opcua.collector import Collector as OpcuaCollector
from ingest.registry import Registry
from ingest.spool.append import Spool
from ingest.status import SourceStatus
from ingest.versions import NO_VERSIONS

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0  # before a collector that failed in a way nobody foresaw is started again
# What a living session can follow; all else a connection is made with.
_OPCUA_FOLLOWS = {"tags", "publishing_interval", "sampling_interval", "queue_size", "discard_oldest", "stale_after"}
_MODBUS_FOLLOWS = {"tags", "poll_interval", "bridge", "max_registers"}


class Collectors:
    """The running sources of a process, by name."""

    def __init__(self, state: Path, spool: Spool, lane: Spool) -> None:
        """``lane`` takes what is read from a source's history."""
        self._state = state
        self._spool = spool
        self._lane = lane
        self._lines = Lines()
        self._running: dict[str, _Running] = {}

    async def configure(
        self,
        sources: Sequence[OpcuaSource | ModbusSource],
        registry: Registry,
        versions: Mapping[str, int] = NO_VERSIONS,
    ) -> None:
        """Start, change and stop what differs. Raises OperationError, with nothing changed, where ids are missing.

        ``versions``: by channel's name, as in the snapshot of the configuration.
        """
        wanted = {source.name: (source, *ids_of(source, registry)) for source in sources}
        for name in self._running.keys() - wanted.keys():
            await self._running.pop(name).remove()
        for name, (source, source_id, channel_ids) in wanted.items():
            before = self._running.get(name)
            of = versions_of(channel_ids, versions)
            if before is not None and before.is_as(source, channel_ids, of):
                continue
            if before is not None and before.follow(source, channel_ids, of):
                log.info("source %s: its tags changed, %d now", name, len(source.tags))
                continue
            if before is not None:
                log.info("source %s: its configuration changed, read anew", name)
                await before.stop()
            status = SourceStatus(source_id, name, source.kind, source.address, len(source.tags))
            stage = before.stage if before is not None else Stage(source, channel_ids, source_id, self._spool)
            if before is not None:
                stage.configure(source, channel_ids)
            self._running[name] = _Running(source, channel_ids, of, status, stage, self._state, self._lane, self._lines)

    def opcua_sources(self) -> dict[int, OpcuaSource]:
        """The OPC UA servers that are read, by source id."""
        running = [(running.status.source_id, running.source) for running in self._running.values()]
        return {number: source for number, source in running if isinstance(source, OpcuaSource)}

    def statuses(self) -> list[SourceStatus]:
        """What each source's collector says of it."""
        return [running.status for running in self._running.values()]

    def stages(self) -> list[Stage]:
        """The alarms of each source."""
        return [running.stage for running in self._running.values()]

    async def stop(self, seconds: float) -> None:
        """End all within ``seconds``: what is in hand goes to disk."""
        stopping = [asyncio.create_task(running.stop()) for running in self._running.values()]
        if stopping:
            await asyncio.wait(stopping, timeout=seconds)


class _Running:
    """One source that is collected from, for ever."""

    def __init__(
        self,
        source: OpcuaSource | ModbusSource,
        channel_ids: Mapping[str, int],
        versions: Mapping[int, int],
        status: SourceStatus,
        stage: Stage,
        state: Path,
        lane: Appender,
        lines: Lines,
    ) -> None:
        self.status = status
        self.stage = stage
        self.source = source
        self._ids = channel_ids
        self._versions = versions
        self._files = digests(source)
        self._state = state
        self._lane = lane
        self._lines = lines
        self._collector: OpcuaCollector | ModbusCollector | None = None
        self._tasks = [
            asyncio.create_task(self._keep(), name=source.name),
            asyncio.create_task(stage.run(), name=f"alarms of {source.name}"),
        ]

    def is_as(
        self, source: OpcuaSource | ModbusSource, channel_ids: Mapping[str, int], versions: Mapping[int, int]
    ) -> bool:
        """Whether it is configured so already."""
        now = self.source, self._ids, self._versions, self._files
        return (source, channel_ids, versions, digests(source)) == now

    def follow(
        self, source: OpcuaSource | ModbusSource, channel_ids: Mapping[str, int], versions: Mapping[int, int]
    ) -> bool:
        """Go on with another tag list in the living session; False: it takes another connection."""
        followed = _OPCUA_FOLLOWS if isinstance(source, OpcuaSource) else _MODBUS_FOLLOWS
        if source.model_dump(exclude=followed) != self.source.model_dump(exclude=followed):
            return False
        if digests(source) != self._files:
            return False
        match self._collector, source:
            case (OpcuaCollector() as opcua, OpcuaSource()):
                opcua.configure(source, channel_ids, versions)
            case (ModbusCollector() as modbus, ModbusSource()):
                modbus.configure(source, channel_ids, versions)
            case _:
                return False
        self.source, self._ids, self._versions = source, channel_ids, versions
        self.stage.configure(source, channel_ids)
        return True

    async def stop(self) -> None:
        """End; what is in hand goes to disk."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def remove(self) -> None:
        """End, for good: the configuration no longer names the source. Nothing of it is missing from now on."""
        await self.stop()
        log.info("source %s: the configuration no longer names it", self.status.name)
        gaps = Gaps(self.status, self.stage)
        await gaps.close(now_us())
        await gaps.close(now_us(), gaps.channels())
        metrics.forget_source(self.status.name)

    async def _keep(self) -> None:
        """Run the collector for ever. It handles what a plant does; this handles our own mistakes."""
        await started(self.status, self.stage)
        while True:
            try:
                await self._collect()
            except asyncio.CancelledError:
                self.status.state = "stopped"
                raise
            except Exception as error:
                log.exception(
                    "source %s: the collector failed, started again in %.0f s", self.status.name, _AGAIN_SECONDS
                )
                self.status.state, self.status.reason = "disconnected", f"{type(error).__name__}: {error}"
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _collect(self) -> None:
        of = self._ids, self.status, self.stage
        match self.source:
            case OpcuaSource():
                pki = self._state / "pki"
                self._collector = OpcuaCollector(self.source, *of, pki, self._lane, self._versions)
            case ModbusSource():
                self._collector = ModbusCollector(self.source, *of, self._lines, versions=self._versions)
        await self._collector.run()


async def started(status: SourceStatus, spool: Appender) -> None:
    """Put on record that a source's collector was started."""
    event = Event("restart", now_us(), detail={"process": f"collector-{status.kind}"})
    with suppress(SpoolError):
        await spool.append(EventBatch(status.source_id, event.time, (event,)))


def ids_of(source: Source, registry: Registry) -> tuple[int, dict[str, int]]:
    """A source's id, and its channels' by name. Raises OperationError where they are not registered."""
    known = registry.channels.get(source.name, {})
    missing = [tag.name for tag in source.tags if tag.name not in known]
    if source.name not in registry.sources or missing:
        what = f"source {source.name}" if source.name not in registry.sources else f"channel {missing[0]}"
        raise OperationError(f"{what} is not registered: run `plantlog up` to register the configuration")
    return registry.sources[source.name], {tag.name: known[tag.name] for tag in source.tags}


def versions_of(channel_ids: Mapping[str, int], versions: Mapping[str, int]) -> dict[int, int]:
    """Channel id → version, of those of a source's channels that have one."""
    return {channel_ids[name]: versions[name] for name in channel_ids.keys() & versions.keys()}
