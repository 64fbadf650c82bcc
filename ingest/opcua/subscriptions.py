"""What the server has of one source: subscriptions and items, made as the tags ask for, and kept in our notes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager

from asyncua import Client

from ingest.appender import Appender
from ingest.opcua import kept
from ingest.opcua.difference import Difference, difference
from ingest.opcua.items import Subscribed, Subscription, create, mark, modify, remove
from ingest.opcua.receive import Receiver
from ingest.opcua.tags import Tags
from ingest.opcua.transfer import delete


class Subscriptions:
    """Of one source, in all its sessions and processes. Who changes items of a living session holds ``making``."""

    def __init__(self, source_id: int, address: str, receiver: Receiver, spool: Appender) -> None:
        self._source_id = source_id
        self._address = address
        self._receiver = receiver
        self._spool = spool
        self.known, self.same_server = kept.read(source_id, address, spool.notes)
        self.on_record = set(self.known.subscriptions)  # ids of those that are complete, and in our notes
        self.making = asyncio.Lock()

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self.known.subscriptions.values())

    def note_of(self, subscription: Subscription) -> str:
        """The name of the note that tells how far it has come."""
        return kept.note_of(self._source_id, subscription)

    async def create(self, client: Client, tags: Tags, channels: list[int]) -> None:
        """Make items of ``channels``, and the subscriptions that they need."""
        if channels:
            async with self._changing():
                await create(client, tags, self.known, channels)

    async def complete(self) -> None:
        """All subscriptions are as the tags ask for: from now on they are ours, also in the next process."""
        self.on_record = set(self.known.subscriptions)
        await self.note()

    def forget(self, lost: Iterable[Subscription]) -> None:
        """The server has these no more. :meth:`note` makes that durable."""
        for subscription in lost:
            del self.known.subscriptions[subscription.id]
            self.on_record.discard(subscription.id)

    async def note(self) -> None:
        """Make durable what the next process must know: of subscriptions that are complete, no others."""
        complete = {number: s for number, s in self.known.subscriptions.items() if number in self.on_record}
        known = Subscribed(complete, self.known.bad, read=self.known.read)
        await self._spool.note(kept.write(self._source_id, self._address, known, self._spool.notes))

    async def read_by(self, tags: Tags, todo: Difference) -> None:
        """All tags are read as they are defined now, but those whose former items are there."""
        living = {channel for s in self for channel in s.items}
        now = {channel: tags.meaning(channel) for channel in set(tags.ids.tolist()) - set(todo.replace)}
        others = {channel for channel in now.keys() - living if self.known.read.get(channel) != now[channel]}
        await self._receiver.read_by(_some(tags.versions, now.keys() - others), another_node=False)
        await self._receiver.read_by(_some(tags.versions, others), another_node=True)
        read = self.known.read | {channel: now[channel] for channel in now.keys() & living}
        if read != self.known.read:
            self.known.read = read
            await self.note()

    async def synchronise(self, client: Client, tags: Tags) -> None:
        """Let the server of a session that publishes have items of ``tags``, and no others."""
        for channel in [c for c in self.known.bad if tags.place(c) is None]:
            del self.known.bad[channel]
        todo = difference(tags, self.known)
        await self.read_by(tags, todo)
        if not todo:
            return
        async with self._changing():
            await create(client, tags, self.known, todo.create)
            await modify(client, tags, self.known, todo.modify)
            await remove(client, tags.source, self.known, todo.retired)
        await self.complete()
        await self._published(client, tags, todo.obsolete)
        moves = set(todo.replace)
        for subscription in self:
            if left := moves & subscription.items.keys():
                await self._receiver.leave(subscription, left)
        async with self._changing():
            await remove(client, tags.source, self.known, todo.obsolete)
            if not todo.replace:
                await self._without_idle(client, tags)
        await self.complete()
        if todo.replace:
            await self._replace(client, tags, todo)

    async def _replace(self, client: Client, tags: Tags, todo: Difference) -> None:
        """Make items of other nodes, when all is on disk that came of those before, which are gone."""
        await self._published(client, tags, todo.obsolete)
        await self._receiver.read_by(_some(tags.versions, todo.replace), another_node=True)
        self._receiver.await_first(todo.replace)
        async with self._changing():
            await create(client, tags, self.known, todo.replace)
            await self._without_idle(client, tags)
        await self.complete()

    async def _published(self, client: Client, tags: Tags, subscriptions: Iterable[int]) -> None:
        """Return when all that the items of ``subscriptions`` have queued until now is on disk."""
        for number in subscriptions:
            subscription = self.known.subscriptions[number]
            marked = self._receiver.marked(subscription)
            item = await mark(client, tags.source, subscription)
            if item is None:
                await asyncio.sleep(2 * subscription.interval)
                continue
            await marked.wait()
            await remove(client, tags.source, self.known, {number: [item]})

    async def _without_idle(self, client: Client, tags: Tags) -> None:
        """Delete subscriptions without items. One stays: its keep-alives tell that the session lives."""
        by_size = sorted(self, key=lambda s: -len(s.items))
        if idle := [s.id for s in by_size[1:] if not s.items]:
            await delete(client, tags.source, idle)
            for number in idle:
                del self.known.subscriptions[number]

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Items are made or deleted in the block: a process that is killed there leaves what nobody knows."""
        for subscription in self:
            subscription.changing = True
        await self.note()
        yield
        for subscription in self:
            subscription.changing = False


def _some(versions: Mapping[int, int], channels: Iterable[int]) -> dict[int, int]:
    return {channel: versions[channel] for channel in channels if channel in versions}
