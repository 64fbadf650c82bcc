"""The sources of one protocol that this process reads: one task each, reconfigured while running.

A change affects only its own source: a new tag list is applied to the open session, a new address restarts that source
alone. A source that is assigned to another process is handed over: it continues there from its state
in the spool, as after a restart, once this process has no pending data of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core import metrics
from core.config.files import digests
from core.config.settings import reconnects
from core.config.sources import ModbusSource, OpcuaSource
from core.errors import SpoolError, first_cause
from core.registry import Registry
from ingest.alarms import checkpoint
from ingest.alarms.conditions import Conditions
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.appender import Appender
from ingest.gaps import end_source
from ingest.modbus.collector import Collector as ModbusCollector
from ingest.modbus.transport import Connections
from ingest.spool.append import Spool
from ingest.spool.member import stands_by
from ingest.spool.metadata import SourceLocks
from ingest.status import SourceStatus, record_restart
from ingest.versions import NO_VERSIONS, versions_of

if TYPE_CHECKING:
    from ingest.opcua.collector import Collector as OpcuaCollector

log = logging.getLogger(__name__)

_RESTART_SECONDS = 5.0  # before a collector is restarted after an unexpected error
_POLL_SECONDS = 0.05  # whether another process has given a source


class Collectors:
    """The running sources of a process, by name."""

    def __init__(self, state: Path, spool: Spool, backfill_spool: Spool, process: str = "") -> None:
        """``backfill_spool``: for values from a source's history; ``process``: name of this process, else by kind."""
        self._state = state
        self._spool = spool
        self._backfill_spool = backfill_spool
        self._process = process
        self._connections = Connections(state / "pki")
        self._running: dict[str, _RunningSource] = {}
        self._assigned: dict[str, _Assigned] = {}
        self._pending: dict[str, SourceStatus] = {}  # that another process reads still
        self._polling: asyncio.Task[None] | None = None
        self._applying = asyncio.Lock()
        self._source_locks = SourceLocks(spool.path)
        self._ids: frozenset[int] = frozenset()  # of the sources that are ours
        self._channels: frozenset[int] = frozenset()  # likewise
        spool.owns_note = self._owns_note

    def _owns_note(self, note: str) -> bool:
        channel = checkpoint.channel_of(note)
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
        """Start, change and stop sources as needed. Raises OperationError, with nothing changed, if ids are missing.

        ``versions``: by channel's name, as in the snapshot of the configuration; ``elsewhere``: sources that other
        processes read. A source that another process still reads is started as soon as it is released.
        """
        configured = {s.name: (s, *registry.ids_of(s.name, [tag.name for tag in s.tags])) for s in sources}
        async with self._applying:
            self._assigned = {
                name: _Assigned(*arguments, versions_of(arguments[2], versions))
                for name, arguments in configured.items()
            }
            removed = [(name, self._running[name]) for name in self._running if name not in configured]
            for name, running in removed:
                await (running.hand_over() if name in elsewhere else running.remove())
                await self._release(running.status.source_id)
                del self._running[name]
            await self._apply()
        if self._pending and (self._polling is None or self._polling.done()):
            self._polling = asyncio.create_task(self._poll_pending(), name="sources of other processes")

    async def _poll_pending(self) -> None:
        while self._pending:
            await asyncio.sleep(_POLL_SECONDS)
            async with self._applying:
                await self._apply()

    async def _release(self, source_id: int) -> None:
        """Release a source without pending data, so that another process can continue with it."""
        for spool in (self._spool, self._backfill_spool):
            with suppress(SpoolError):
                await spool.note({})  # behind all that was appended before
        self._ids -= {source_id}
        self._source_locks.release(source_id)

    async def _apply(self) -> None:
        """Run the assigned sources that this process can lock."""
        running_ids = {running.status.source_id for running in self._running.values()}
        acquired_ids = running_ids | {
            assigned.source_id for assigned in self._assigned.values() if self._source_locks.acquire(assigned.source_id)
        }
        reason = "still read by another process"
        try:
            if acquired_ids > running_ids:
                await self._spool.reload_notes()  # what those knew of a source who had it before
        except SpoolError as error:
            log.error("%s", error)
            acquired_ids, reason = running_ids, str(error)
        acquired = [assigned for assigned in self._assigned.values() if assigned.source_id in acquired_ids]
        self._ids = frozenset(acquired_ids)
        self._channels = frozenset(channel for assigned in acquired for channel in assigned.channel_ids.values())
        self._pending = {
            name: assigned.status(reason) for name, assigned in self._assigned.items() if assigned not in acquired
        }
        for assigned in acquired:
            source, source_id, channel_ids, channel_versions = assigned
            name = source.name
            before = self._running.get(name)
            if before is not None and before.has_configuration(source, channel_ids, channel_versions):
                continue
            if before is not None and before.reconfigure(source, channel_ids, channel_versions):
                log.info("source %s: tag list changed, %d tags", name, len(source.tags))
                continue
            if before is not None:
                log.info("source %s: configuration changed, restarting", name)
                await before.stop()
            evaluator = (
                before.evaluator
                if before is not None
                else AlarmEvaluator(source, channel_ids, source_id, self._spool, partial(self._stands_by, name))
            )
            if before is not None:
                evaluator.configure(source, channel_ids)
            self._running[name] = _RunningSource(
                source,
                channel_ids,
                channel_versions,
                assigned.status(),
                evaluator,
                self._state,
                self._backfill_spool,
                self._connections,
                self._process,
            )

    def _stands_by(self, name: str) -> bool:
        return name in self._running and self._running[name].stands_by()

    def statuses(self) -> list[SourceStatus]:
        """The status of each source."""
        return [*(running.status for running in self._running.values()), *self._pending.values()]

    def shown_certificates(self) -> dict[str, datetime]:
        """Ends of the certificates that Modbus devices show, by host and port."""
        return self._connections.certificates()

    def evaluators(self) -> list[AlarmEvaluator]:
        """The alarms of each source."""
        return [running.evaluator for running in self._running.values()]

    def conditions(self) -> list[Conditions]:
        """The conditions of each OPC UA server."""
        return [running.conditions for running in self._running.values() if running.conditions is not None]

    async def stop(self, seconds: float, configured: Callable[[str], bool] = lambda name: True) -> None:
        """Stop all sources within ``seconds`` and write pending data. The exit of the process releases the rest.

        ``configured``: whether the configuration still names a source.
        """
        if self._polling is not None:
            self._polling.cancel()
        stopping = [
            asyncio.create_task(self._stop(running, configured(name))) for name, running in self._running.items()
        ]
        if stopping:
            await asyncio.wait(stopping, timeout=seconds)

    async def _stop(self, running: _RunningSource, configured: bool) -> None:
        await (running.stop() if configured else running.remove())
        await self._release(running.status.source_id)


class _Assigned(NamedTuple):
    """A source that this process is to read."""

    source: OpcuaSource | ModbusSource
    source_id: int
    channel_ids: dict[str, int]
    versions: dict[int, int]

    def status(self, reason: str = "") -> SourceStatus:
        """Initial status of the source; ``reason``: why it is not running."""
        source = self.source
        return SourceStatus(self.source_id, source.name, source.kind, source.address, len(source.tags), reason=reason)


class _RunningSource:
    """One source that is being read."""

    def __init__(
        self,
        source: OpcuaSource | ModbusSource,
        channel_ids: Mapping[str, int],
        versions: Mapping[int, int],
        status: SourceStatus,
        evaluator: AlarmEvaluator,
        state: Path,
        backfill_spool: Appender,
        connections: Connections,
        process: str,
    ) -> None:
        self.status = status
        self.evaluator = evaluator
        self.source = source
        self._ids = channel_ids
        self._versions = versions
        self._files = digests(source)
        self._state = state
        self._backfill_spool = backfill_spool
        self._connections = connections
        self._process = process
        self._opcua: OpcuaCollector | None = None
        self._modbus: ModbusCollector | None = None
        self._tasks = [
            asyncio.create_task(self._run_forever(), name=source.name),
            asyncio.create_task(evaluator.run(), name=f"alarms of {source.name}"),
        ]

    def has_configuration(
        self, source: OpcuaSource | ModbusSource, channel_ids: Mapping[str, int], versions: Mapping[int, int]
    ) -> bool:
        """Return whether this is its current configuration."""
        now = self.source, self._ids, self._versions, self._files
        return (source, channel_ids, versions, digests(source)) == now

    def reconfigure(
        self, source: OpcuaSource | ModbusSource, channel_ids: Mapping[str, int], versions: Mapping[int, int]
    ) -> bool:
        """Apply a new tag list to the open session; False: a new connection is needed."""
        if reconnects(self.source, source) or digests(source) != self._files:
            return False
        match source:
            case OpcuaSource() if self._opcua is not None:
                self._opcua.configure(source, channel_ids, versions)
            case ModbusSource() if self._modbus is not None:
                self._modbus.configure(source, channel_ids, versions)
            case _:
                return False
        self.source, self._ids, self._versions = source, channel_ids, versions
        self.evaluator.configure(source, channel_ids)
        return True

    @property
    def conditions(self) -> Conditions | None:
        """Conditions of the server; None: it is no OPC UA server, or not started yet."""
        return None if self._opcua is None else self._opcua.conditions

    def stands_by(self) -> bool:
        """Return whether the other member of a redundant pair reads the source instead."""
        source = self.source
        return isinstance(source, ModbusSource) and source.standby == "idle" and stands_by(self._state / "spool")

    async def stop(self) -> None:
        """Stop, and write pending data to disk."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def hand_over(self) -> None:
        """Stop: another process continues with the source."""
        await self.stop()
        log.info("source %s: now read by another process", self.status.name)
        metrics.remove_source(self.status.name)

    async def remove(self) -> None:
        """Stop for good: the source was removed from the configuration."""
        await self.stop()
        await end_source(self.status, self.evaluator)

    async def _run_forever(self) -> None:
        """Run the collector until cancelled. The collector handles errors of the plant; this handles bugs."""
        await record_restart(self.status, self.evaluator, self._process)
        while True:
            try:
                await self._collect()
            except asyncio.CancelledError:
                self.status.state = "stopped"
                raise
            except Exception as error:
                log.exception(
                    "source %s: the collector failed, restarting in %.0f s", self.status.name, _RESTART_SECONDS
                )
                cause = first_cause(error)
                self.status.state, self.status.reason = "disconnected", f"{type(cause).__name__}: {cause}"
                await asyncio.sleep(_RESTART_SECONDS)

    async def _collect(self) -> None:
        common = self._ids, self.status, self.evaluator
        match self.source:
            case OpcuaSource():
                # Imports asyncua: 0.3 s and 30 MB that no other process needs.
                from ingest.opcua.collector import Collector as OpcuaCollector  # noqa: PLC0415

                pki = self._state / "pki"
                self._opcua = OpcuaCollector(
                    self.source,
                    *common,
                    pki,
                    self._backfill_spool,
                    self._versions,
                    partial(stands_by, self._state / "spool"),
                )
                await self._opcua.run()
            case ModbusSource():
                self._modbus = ModbusCollector(
                    self.source, *common, self._connections, versions=self._versions, stands_by=self.stands_by
                )
                await self._modbus.run()
