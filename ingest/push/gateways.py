"""Push sources of a process, which are reconfigured while requests are served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from core.config.sources import PushSource
from core.registry import Registry
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.gaps import end_source
from ingest.push.body import BodyQueue
from ingest.push.channels import Channels
from ingest.push.gateway import Gateway
from ingest.push.tokens import Tokens
from ingest.spool.append import Spool
from ingest.status import SourceStatus, record_restart
from ingest.versions import NO_VERSIONS, versions_of

log = logging.getLogger(__name__)

_TOKEN_SECONDS = 0.25  # between two checks of the token files; a change is applied once two checks agree


class Gateways:
    """The gateways of a process, identified by their tokens."""

    def __init__(self, spool: Spool, channels: Channels) -> None:
        self._spool = spool
        self._channels = channels
        self._running: dict[str, _RunningSource] = {}
        self._tokens = Tokens()
        self.body_queue = BodyQueue()

    async def configure(
        self, sources: Sequence[PushSource], registry: Registry, versions: Mapping[str, int] = NO_VERSIONS
    ) -> None:
        """Add, change and remove gateways as needed.

        Raises OperationError, with nothing changed, if ids are missing.
        """
        sources_by_name = {s.name: (s, *registry.ids_of(s.name, [tag.name for tag in s.tags])) for s in sources}
        for name in self._running.keys() - sources_by_name.keys():
            await self._running.pop(name).remove()
        for name, (source, source_id, channel_ids) in sources_by_name.items():
            channel_versions = versions_of(channel_ids, versions)
            if (running := self._running.get(name)) is not None:
                running.gateway.configure(source, channel_ids, channel_versions)
                running.evaluator.configure(source, channel_ids)
            else:
                status = SourceStatus(source_id, name, source.kind, source.address, len(source.tags))
                evaluator = AlarmEvaluator(source, channel_ids, source_id, self._spool)
                gateway = Gateway(
                    source, channel_ids, status, evaluator, self._channels, self.body_queue, versions=channel_versions
                )
                running = self._running[name] = _RunningSource(gateway, evaluator, status)
                await record_restart(status, self._spool)
            await running.gateway.record_configuration()
        await self._tokens.configure({source.name: source.token_file for source in sources})
        self._remark_faults()

    def of_token(self, token: bytes) -> Gateway | None:
        """The gateway of a token."""
        running = self._running.get(self._tokens.source_of(token) or "")
        return None if running is None else running.gateway

    async def follow_tokens(self) -> None:
        """Apply changes of the token files, until cancelled."""
        while True:
            await asyncio.sleep(_TOKEN_SECONDS)
            await self._tokens.refresh()
            self._remark_faults()

    def tokens_used(self) -> dict[str, dict[str, int]]:
        """Last use of each token, see :meth:`Tokens.used`."""
        return self._tokens.used()

    def _remark_faults(self) -> None:
        faults = self._tokens.faults()
        for name, running in self._running.items():
            running.status.remark("token_file", faults.get(name, ""))

    def statuses(self) -> list[SourceStatus]:
        """The status of each source."""
        return [running.status for running in self._running.values()]

    def evaluators(self) -> list[AlarmEvaluator]:
        """The alarms of each source."""
        return [running.evaluator for running in self._running.values()]

    async def stop(self) -> None:
        """Stop the gateways, after their open requests."""
        for running in self._running.values():
            await running.stop()
            running.status.state = "stopped"


class _RunningSource:
    """A source with its background tasks."""

    def __init__(self, gateway: Gateway, evaluator: AlarmEvaluator, status: SourceStatus) -> None:
        self.gateway = gateway
        self.evaluator = evaluator
        self.status = status
        self._tasks = [
            asyncio.create_task(gateway.silence.watch(), name=gateway.name),
            asyncio.create_task(evaluator.run(), name=f"alarms of {gateway.name}"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.gateway.arrivals.close()

    async def remove(self) -> None:
        """Stop a source that was removed from the configuration, and end its gaps."""
        await self.stop()
        await end_source(self.status, self.evaluator)
