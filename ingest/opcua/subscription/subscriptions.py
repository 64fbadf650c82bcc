"""Manages the subscriptions and items of one source on the server according to its tags, and saves them in notes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from asyncua import Client, ua

from core.config.sources import OpcuaSource
from core.errors import SourceError
from core.opcua.namespaces import Namespaces, read_namespaces
from core.opcua.service import operation_limit, sends_whole_arrays
from core.timeouts import within
from ingest.appender import Appender
from ingest.opcua.decode.decoded import DecodeRules
from ingest.opcua.subscription.items import (
    PROBE_HANDLE,
    create,
    create_marker,
    create_subscription,
    delete,
    delete_items,
    modify,
    parameters,
    remove,
)
from ingest.opcua.subscription.receive import Receiver
from ingest.opcua.subscription.subscription_state import (
    Subscription,
    SubscriptionState,
    decode_state,
    encode_state,
    note_name,
)
from ingest.opcua.subscription.tags import Tags

_LIMITS = (
    ua.ObjectIds.Server_ServerCapabilities_OperationLimits_MaxMonitoredItemsPerCall,
    ua.ObjectIds.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead,
)


class Subscriptions:
    """Across sessions and processes of one source. Hold ``lock`` while changing items of a current session."""

    def __init__(self, source_id: int, servers: Sequence[str], receiver: Receiver, spool: Appender) -> None:
        self._source_id = source_id
        self._receiver = receiver
        self._spool = spool
        self.state, self.server = decode_state(source_id, servers, spool.notes)
        self.saved_ids = set(self.state.subscriptions)  # ids of complete subscriptions saved in notes
        self.lock = asyncio.Lock()

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self.state.subscriptions.values())

    async def begin_session(self, client: Client, source: OpcuaSource) -> Namespaces:
        """Read what the meaning of items depends on in this session."""
        namespaces = await read_namespaces(client, source.time_out)
        self.state.begin_session(*[await operation_limit(client, limit, source.time_out) for limit in _LIMITS])
        self.state.whole_arrays = await sends_whole_arrays(client, source.time_out)
        structures, shared = self.state.structures, self.state.shared_items()
        structures.begin_session()
        nodes = {}
        for address, _ in shared.values():
            with suppress(SourceError):  # no such namespace: the subscription is created again
                nodes[address] = namespaces.node_id(address)
        await structures.read(client, source.time_out, nodes)
        structures.monitor_only(shared)
        self._receiver.session_rules = DecodeRules(whole_arrays=self.state.whole_arrays, structures=structures.decoders)
        return namespaces

    def note_name(self, subscription: Subscription) -> str:
        """Name of the note with the progress of a subscription."""
        return note_name(self._source_id, subscription)

    async def create(self, client: Client, tags: Tags, channels: list[int]) -> None:
        """Create items for ``channels`` and the subscriptions they need, at least one: its keep-alives show that the
        session is alive."""
        if channels:
            async with self._changing():
                await self._create_items(client, tags, channels)
        if not self.state.subscriptions:
            idle = await create_subscription(client, tags.source, tags.source.publishing_interval)
            self.state.subscriptions[idle.id] = idle

    async def complete(self) -> None:
        """All subscriptions match the tags: save them, so that the next process continues them."""
        self.saved_ids = set(self.state.subscriptions)
        await self.note()

    def forget(self, lost: Iterable[Subscription]) -> None:
        """Remove subscriptions that the server has lost. :meth:`note` saves that."""
        for subscription in lost:
            del self.state.subscriptions[subscription.id]
            self.saved_ids.discard(subscription.id)

    async def note(self) -> None:
        """Save the complete subscriptions, and no others, for the next process."""
        complete = {number: s for number, s in self.state.subscriptions.items() if number in self.saved_ids}
        state = replace(self.state, subscriptions=complete)
        await self._spool.note(encode_state(self._source_id, self.server, state, self._spool.notes))

    async def start_versions(self, tags: Tags, changes: ItemDifference) -> None:
        """Begin the current versions of all tags, except those whose former items still exist."""
        monitored = {channel for s in self for channel in s.items}
        definitions = {channel: tags.definition(channel) for channel in set(tags.ids.tolist()) - set(changes.replace)}
        redefined = {
            channel
            for channel in definitions.keys() - monitored
            if self.state.definitions.get(channel) != definitions[channel]
        }
        await self._receiver.start_versions(_subset(tags.versions, definitions.keys() - redefined), another_node=False)
        await self._receiver.start_versions(_subset(tags.versions, redefined), another_node=True)
        read_now = self.state.definitions | {
            channel: definitions[channel] for channel in definitions.keys() & monitored
        }
        if read_now != self.state.definitions:
            self.state.definitions = read_now
            await self.note()

    async def synchronise(self, client: Client, tags: Tags) -> None:
        """Change the items on the server of a publishing session to match ``tags``."""
        for channel in [c for c in self.state.refused if tags.position(c) is None]:
            del self.state.refused[channel]
        changes = difference(tags, self.state)
        await self.start_versions(tags, changes)
        if not changes:
            return
        async with self._changing():
            await self._create_items(client, tags, changes.create)
            await modify(client, tags, self.state, changes.modify)
            await self._receiver.record_removed(
                [channel for retired in changes.retired.values() for channel in retired]
            )
            await remove(client, tags.source, self.state, changes.retired)
        await self.complete()
        await self._wait_until_published(client, tags, changes.obsolete)
        moves = set(changes.replace)
        for subscription in self:
            if remaining := moves & subscription.items.keys():
                await self._receiver.open_move_gaps(subscription, remaining)
        async with self._changing():
            await remove(client, tags.source, self.state, changes.obsolete)
            if not changes.replace:
                await self._delete_idle(client, tags)
        await self.complete()
        if changes.replace:
            await self._replace(client, tags, changes)

    async def _replace(self, client: Client, tags: Tags, changes: ItemDifference) -> None:
        """Create items of new nodes once all data of the deleted former items is on disk."""
        await self._wait_until_published(client, tags, changes.obsolete)
        await self._receiver.start_versions(_subset(tags.versions, changes.replace), another_node=True)
        self._receiver.moves.expect_first(changes.replace)
        async with self._changing():
            await self._create_items(client, tags, changes.replace)
            await self._delete_idle(client, tags)
        await self.complete()

    async def _create_items(self, client: Client, tags: Tags, channels: Sequence[int]) -> None:
        """Create items of nodes as the server names them now: it may have added namespaces."""
        if channels:
            namespaces = await read_namespaces(client, tags.source.time_out)
            await create(client, tags, namespaces, self.state, channels)

    async def _wait_until_published(self, client: Client, tags: Tags, subscriptions: Iterable[int]) -> None:
        """Return once everything queued so far by items of ``subscriptions`` is on disk."""
        for number in subscriptions:
            subscription = self.state.subscriptions[number]
            marker_event = self._receiver.marker_event(subscription)
            item = await create_marker(client, tags.source, subscription)
            if item is None:
                await asyncio.sleep(2 * subscription.interval)
                continue
            await marker_event.wait()
            await delete_items(client, tags.source, self.state, number, [item])

    async def silent(self, client: Client, source: OpcuaSource, all_publishing: asyncio.Event) -> list[Subscription]:
        """The transferred subscriptions that do not publish in this session, because the server continues to publish to
        the one before. ``all_publishing`` is set when there are none.

        A quiet subscription publishes nothing before its keep-alive is due. So those that are silent get an item more,
        whose first value the next publication has.
        """
        interval = max((s.interval for s in self), default=0.0)
        with suppress(TimeoutError):
            await within(2 * interval, all_publishing.wait())
        probes: dict[int, int] = {}
        for subscription in [s for s in self if not s.has_published]:
            with suppress(ua.UaStatusCodeError):
                item = await create_marker(client, source, subscription, PROBE_HANDLE)
                probes |= {} if item is None else {subscription.id: item}
        if not probes:
            return []
        with suppress(TimeoutError):
            await within(interval + source.time_out, all_publishing.wait())
        silent = [s for s in self if s.id in probes and not s.has_published]
        for number in probes.keys() - {s.id for s in silent}:
            with suppress(ua.UaStatusCodeError):
                await delete_items(client, source, self.state, number, [probes[number]])
        return silent

    async def _delete_idle(self, client: Client, tags: Tags) -> None:
        """Delete subscriptions without items, except one: its keep-alives show that the session is alive."""
        by_size = sorted(self, key=lambda s: -len(s.items))
        if idle := [s.id for s in by_size[1:] if not s.items and not s.event_items]:
            await delete(client, tags.source, idle)
            for number in idle:
                del self.state.subscriptions[number]

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Items are created or deleted inside the block: if the process is killed there, their state is unknown."""
        for subscription in self:
            subscription.changing |= not subscription.event_items
        await self.note()
        yield
        for subscription in self:
            subscription.changing &= bool(subscription.event_items)


def _subset(versions: Mapping[int, int], channels: Iterable[int]) -> dict[int, int]:
    return {channel: versions[channel] for channel in channels if channel in versions}


@dataclass(frozen=True, slots=True)
class ItemDifference:
    """Differences between the tags and the server's monitored items: channel ids, and items by subscription.

    A channel that moves to another subscription gets its new item before the old one is deleted. Both send the same
    samples, stored once. An item is deleted only after its queue was published, with what it sampled before that.
    """

    create: list[int] = field(default_factory=list)  # channels without an item in their subscription
    modify: dict[int, list[int]] = field(default_factory=dict)  # subscription → channels with changed parameters
    replace: list[int] = field(default_factory=list)  # channels with another Tags.target_of: the old item goes first
    obsolete: dict[int, list[int]] = field(default_factory=dict)  # subscription → channels, to delete once published
    retired: dict[int, list[int]] = field(default_factory=dict)  # subscription → channels without a tag

    def __bool__(self) -> bool:
        return bool(self.create or self.modify or self.replace or self.obsolete or self.retired)


def difference(tags: Tags, state: SubscriptionState) -> ItemDifference:
    """Compare; rejected nodes are not requested again."""
    changes = ItemDifference()
    unchanged: set[int] = set()
    for subscription in state.subscriptions.values():
        for channel, item in subscription.items.items():
            if tags.position(channel) is None:
                changes.retired.setdefault(subscription.id, []).append(channel)
                continue
            interval, requested = parameters(tags, channel)
            if tags.target_of(channel) != item.target:
                changes.replace.append(channel)
                changes.obsolete.setdefault(subscription.id, []).append(channel)
            elif subscription.requested_interval != interval:
                changes.obsolete.setdefault(subscription.id, []).append(channel)
            else:
                unchanged.add(channel)
                if item.parameters != requested:
                    changes.modify.setdefault(subscription.id, []).append(channel)
    refused = {c for c, r in state.refused.items() if tags.position(c) is not None and tags.target_of(c) == r.target}
    others = set(changes.replace)
    changes.create.extend(c for c in tags.ids.tolist() if c not in unchanged and c not in refused and c not in others)
    return changes
