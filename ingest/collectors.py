"""The sources of one kind that a process reads: each has a task of its own, and follows the configuration.

What changed of a source is applied where it is: another tag list to the living session, another address to that source
alone. No other source notices. One that another process is to read from now on is given to it: it goes on there with
all that the spool has of it, as after a restart, once nothing of it is in hand here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ingest import metrics
from ingest.alarms import kept
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
from ingest.spool.sidecar import Readers
from ingest.status import SourceStatus
from ingest.versions import NO_VERSIONS

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0  # before a collector that failed in a way nobody foresaw is started again
_LOOK_SECONDS = 0.05  # whether another process has given a source
# What a living session can follow; all else a connection is made with.
_OPCUA_FOLLOWS = {"tags", "publishing_interval", "sampling_interval", "queue_size", "discard_oldest", "stale_after"}
_MODBUS_FOLLOWS = {"tags", "poll_interval", "bridge", "max_registers"}


class Collectors:
    """The running sources of a process, by name."""

    def __init__(self, state: Path, spool: Spool, lane: Spool, process: str = "") -> None:
        """``lane`` takes what is read from a source's history; ``process``: the name of this one, else by kind."""
        self._state = state
        self._spool = spool
        self._lane = lane
        self._process = process
        self._lines = Lines()
        self._running: dict[str, _Running] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._awaited: dict[str, SourceStatus] = {}  # that another process reads still
        self._awaiting: asyncio.Task[None] | None = None
        self._applying = asyncio.Lock()
        self._readers = Readers(spool.path)
        self._ids: frozenset[int] = frozenset()  # of the sources that are ours
        self._channels: frozenset[int] = frozenset()  # likewise
        spool.ours = self._ours

    def _ours(self, note: str) -> bool:
        channel = kept.channel_of(note)
        if channel is not None:
            return channel in self._channels
        _, source, *_ = (*note.split(":"), "")
        return source.isdecimal() and int(source) in self._ids

    async def configure(
        self,
        sources: Sequence[OpcuaSource | ModbusSource],
        registry: Registry,
        versions: Mapping[str, int] = NO_VERSIONS,
        elsewhere: Collection[str] = (),
    ) -> None:
        """Start, change and stop what differs. Raises OperationError, with nothing changed, where ids are missing.

        ``versions``: by channel's name, as in the snapshot of the configuration; ``elsewhere``: sources that other
        processes read. What another one reads still is started as soon as that gives it.
        """
        wanted = {source.name: (source, *ids_of(source, registry)) for source in sources}
        async with self._applying:
            self._wanted = {name: _Wanted(*one, versions_of(one[2], versions)) for name, one in wanted.items()}
            gone = [(name, self._running[name]) for name in self._running if name not in wanted]
            for name, running in gone:
                await (running.give() if name in elsewhere else running.remove())
                await self._give(running.status.source_id)
                del self._running[name]
            await self._apply()
        if self._awaited and (self._awaiting is None or self._awaiting.done()):
            self._awaiting = asyncio.create_task(self._await(), name="sources of other processes")

    async def _await(self) -> None:
        while self._awaited:
            await asyncio.sleep(_LOOK_SECONDS)
            async with self._applying:
                await self._apply()

    async def _give(self, source_id: int) -> None:
        """Nothing of it is in hand any more: another process may go on."""
        for spool in (self._spool, self._lane):
            with suppress(SpoolError):
                await spool.note({})  # behind all that was appended before
        self._ids -= {source_id}
        self._readers.give(source_id)

    async def _apply(self) -> None:
        """Have what is wanted, as far as it is ours to have."""
        had = {running.status.source_id for running in self._running.values()}
        taken = had | {one.source_id for one in self._wanted.values() if self._readers.take(one.source_id)}
        why = "another process reads it still"
        try:
            if taken > had:
                await self._spool.reread()  # what those knew of a source who had it before
        except SpoolError as error:
            log.error("%s", error)
            taken, why = had, str(error)
        ours = [one for one in self._wanted.values() if one.source_id in taken]
        self._ids = frozenset(taken)
        self._channels = frozenset(channel for one in ours for channel in one.channel_ids.values())
        self._awaited = {name: one.status(why) for name, one in self._wanted.items() if one not in ours}
        for one in ours:
            source, source_id, channel_ids, of = one
            name = source.name
            before = self._running.get(name)
            if before is not None and before.is_as(source, channel_ids, of):
                continue
            if before is not None and before.follow(source, channel_ids, of):
                log.info("source %s: its tags changed, %d now", name, len(source.tags))
                continue
            if before is not None:
                log.info("source %s: its configuration changed, read anew", name)
                await before.stop()
            stage = before.stage if before is not None else Stage(source, channel_ids, source_id, self._spool)
            if before is not None:
                stage.configure(source, channel_ids)
            self._running[name] = _Running(
                source, channel_ids, of, one.status(), stage, self._state, self._lane, self._lines, self._process
            )

    def statuses(self) -> list[SourceStatus]:
        """What each source's collector says of it."""
        return [*(running.status for running in self._running.values()), *self._awaited.values()]

    def stages(self) -> list[Stage]:
        """The alarms of each source."""
        return [running.stage for running in self._running.values()]

    async def stop(self, seconds: float, named: Callable[[str], bool] = lambda name: True) -> None:
        """End all within ``seconds``: what is in hand goes to disk. The end of the process gives what is not over.

        ``named``: whether the configuration still names a source.
        """
        if self._awaiting is not None:
            self._awaiting.cancel()
        stopping = [asyncio.create_task(self._stop(running, named(name))) for name, running in self._running.items()]
        if stopping:
            await asyncio.wait(stopping, timeout=seconds)

    async def _stop(self, running: _Running, named: bool) -> None:
        await (running.stop() if named else running.remove())
        await self._give(running.status.source_id)


class _Wanted(NamedTuple):
    """A source that this process is to read."""

    source: OpcuaSource | ModbusSource
    source_id: int
    channel_ids: dict[str, int]
    versions: dict[int, int]

    def status(self, reason: str = "") -> SourceStatus:
        """As it begins; ``reason``: why it does not."""
        source = self.source
        return SourceStatus(self.source_id, source.name, source.kind, source.address, len(source.tags), reason=reason)


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
        process: str,
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
        self._process = process
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

    async def give(self) -> None:
        """End here: another process goes on with it."""
        await self.stop()
        log.info("source %s: another process reads it from now on", self.status.name)
        metrics.forget_source(self.status.name)

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
        await started(self.status, self.stage, self._process)
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


async def started(status: SourceStatus, spool: Appender, process: str = "") -> None:
    """Put on record that a source's collector was started; ``process``: else by kind."""
    event = Event("restart", now_us(), detail={"process": process or f"collector-{status.kind}"})
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
