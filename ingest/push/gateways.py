"""The push sources of a process, by name. They follow the configuration while bodies come: nobody is refused for it."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Mapping, Sequence

from ingest import metrics
from ingest.alarms.stage import Stage
from ingest.batch import now_us
from ingest.collectors import ids_of, started, versions_of
from ingest.config.model import PushSource
from ingest.errors import OperationError
from ingest.gaps import Gaps
from ingest.push.channels import Channels
from ingest.push.gateway import Gateway, read_token
from ingest.registry import Registry
from ingest.spool.append import Spool
from ingest.status import SourceStatus
from ingest.versions import NO_VERSIONS

log = logging.getLogger(__name__)


class Gateways:
    """The gateways whose bodies are taken, each known by its source's token."""

    def __init__(self, spool: Spool, channels: Channels) -> None:
        self._spool = spool
        self._channels = channels
        self._running: dict[str, _Running] = {}

    async def configure(
        self, sources: Sequence[PushSource], registry: Registry, versions: Mapping[str, int] = NO_VERSIONS
    ) -> None:
        """Add, change and remove what differs.

        Raises OperationError, with nothing changed, where ids or tokens are missing or two sources have one token.
        """
        wanted = {source.name: (source, *ids_of(source, registry)) for source in sources}
        tokens = _tokens(sources)
        for name in self._running.keys() - wanted.keys():
            await self._running.pop(name).remove()
        for name, (source, source_id, channel_ids) in wanted.items():
            of = versions_of(channel_ids, versions)
            if (running := self._running.get(name)) is not None:
                running.gateway.configure(source, tokens[name], channel_ids, of)
                running.stage.configure(source, channel_ids)
            else:
                status = SourceStatus(source_id, name, source.kind, source.address, len(source.tags))
                stage = Stage(source, channel_ids, source_id, self._spool)
                gateway = Gateway(source, tokens[name], channel_ids, status, stage, self._channels, versions=of)
                running = self._running[name] = _Running(gateway, stage, status)
                await started(status, self._spool)
            await running.gateway.say()

    def of_token(self, given: bytes) -> Gateway | None:
        """Whose token it is; all are compared, so that time tells nothing."""
        found = None
        for running in self._running.values():
            if hmac.compare_digest(running.gateway.token, given):
                found = running.gateway
        return found

    def statuses(self) -> list[SourceStatus]:
        """What is known of each source."""
        return [running.status for running in self._running.values()]

    def stages(self) -> list[Stage]:
        """The alarms of each source."""
        return [running.stage for running in self._running.values()]

    async def stop(self) -> None:
        """End; bodies in hand were answered before."""
        for running in self._running.values():
            await running.stop()
            running.status.state = "stopped"


class _Running:
    """One source, and what looks at the clock for it."""

    def __init__(self, gateway: Gateway, stage: Stage, status: SourceStatus) -> None:
        self.gateway = gateway
        self.stage = stage
        self.status = status
        self._tasks = [
            asyncio.create_task(gateway.silence.watch(), name=gateway.name),
            asyncio.create_task(stage.run(), name=f"alarms of {gateway.name}"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.gateway.arrivals.close()

    async def remove(self) -> None:
        """End, for good: the configuration no longer names the source. Nothing of it is missing from now on."""
        await self.stop()
        log.info("source %s: the configuration no longer names it", self.status.name)
        gaps = Gaps(self.status, self.stage)
        await gaps.close(now_us())
        await gaps.close(now_us(), gaps.channels())
        metrics.forget_source(self.status.name)


def _tokens(sources: Sequence[PushSource]) -> dict[str, bytes]:
    """By source. Raises OperationError where two have the same."""
    names: dict[bytes, str] = {}
    for source in sources:
        other = names.setdefault(read_token(source), source.name)
        if other != source.name:
            raise OperationError(f"sources {other} and {source.name} have the same token: each gateway needs its own")
    return {name: token for token, name in names.items()}
