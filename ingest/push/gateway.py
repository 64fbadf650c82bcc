"""One push source at work: a body goes in, and is durable when it comes out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from ingest import metrics
from ingest.appender import Appender, Notes
from ingest.batch import ROUNDED, Event, EventBatch, now_us
from ingest.clock import Look, machine
from ingest.config.model import PushSource
from ingest.errors import DatabaseError, OperationError, SpoolError
from ingest.push.arrivals import Arrivals
from ingest.push.channels import Channels
from ingest.push.counts import CountRows, CountRule, digest_of
from ingest.push.limit import RateLimit
from ingest.push.line_protocol import BadLine, Precision, parse
from ingest.push.mapping import Names, Place, Rows, names, rows
from ingest.push.no_number import NoNumber
from ingest.push.silence import Silence
from ingest.push.template import Template
from ingest.status import SourceStatus
from ingest.versions import NO_VERSIONS, Versions

_FORMER = 20  # definitions that retries may be of
_OF_NO_CHANNEL = 0  # counts that no channel has


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a body."""

    values: int  # samples, texts and counts that are durable
    bad: list[BadLine]  # in order of lines
    later: str  # why some of it must come again: their channels can't be created now; empty: all is done
    note: str | None  # to forget when the gateway has the answer


class _Definition:
    """What a source's lines mean: never changed, but replaced by that of another configuration."""

    def __init__(self, source: PushSource, channel_ids: Mapping[str, int]) -> None:
        self.source = source
        self.configured = {tag.address: channel_ids[tag.name] for tag in source.tags}
        self.names = {tag.name: channel_ids[tag.name] for tag in source.tags}
        self.text_channels = {channel_ids[tag.name] for tag in source.tags if tag.kind == "text"}
        self.template = Template(source.channel)
        self.rule = CountRule(source.counts)


class Gateway:
    """The gateway that one source's token belongs to."""

    def __init__(
        self,
        source: PushSource,
        token: bytes,
        channel_ids: Mapping[str, int],
        status: SourceStatus,
        spool: Appender,
        channels: Channels,
        look: Look = machine,
        versions: Mapping[int, int] = NO_VERSIONS,
    ) -> None:
        self.name = source.name
        self.token = token
        self.limit = RateLimit(source.max_rate)
        self.silence = Silence(status, source.stale_after, spool)
        self.arrivals = Arrivals(source.name, status.source_id, spool, source.skew_limit, look)
        self._versions = Versions(source.name, status.source_id, spool)
        self._channels = channels
        self._definition = _Definition(source, channel_ids)
        self._former: deque[tuple[int, _Definition]] = deque(maxlen=_FORMER)  # until when (µs), oldest first
        self._no_number = NoNumber(status, self.silence.gaps, self._name_of)
        self._rounded: set[int] = set()  # channels of which it was said that their integers are
        self._status = status
        self._spool = spool
        self._begin(versions, self.arrivals.now())

    def configure(
        self, source: PushSource, token: bytes, channel_ids: Mapping[str, int], versions: Mapping[int, int]
    ) -> None:
        """Go on with other tags and options: what arrives from now on means what they say. To be followed by
        :meth:`say`."""
        self.token = token
        if source.max_rate != self.limit.rate:
            self.limit = RateLimit(source.max_rate)
        self.silence.configure(source.stale_after)
        self.arrivals.configure(source.skew_limit)
        since = self.arrivals.now()
        self._former.append((since, self._definition))
        self._definition = _Definition(source, channel_ids)
        self._begin(versions, since)

    def _begin(self, versions: Mapping[int, int], since: int) -> None:
        for channel, version in self._versions.unsaid(versions).items():
            self._versions.begin(channel, version, since)
        self._count_channels()

    def _definition_of(self, note: str | None) -> _Definition:
        """What a body's lines mean: a retry is read as its first attempt was."""
        first = None if note is None else self.arrivals.first(note)
        if first is None:
            return self._definition
        return next((former for until, former in self._former if first < until), self._definition)

    async def say(self) -> None:
        """Put on record what the configuration changes. What the disk refuses now is said with the next body."""
        of, created = self._definition, self._channels.of(self.name)
        numbers = {*of.configured.values(), *created.values()} - of.text_channels - self._channels.texts
        await self._no_number.only(numbers)
        with suppress(SpoolError):
            await self._versions.say()

    async def take(self, body: bytes, precision: Precision) -> Taken:
        """Make durable what is good in ``body``.

        Raises SpoolError where the spool does not take it: the body must come again.
        """
        parsed = await asyncio.to_thread(parse, body, precision)
        untimed = sum(point.time is None for point in parsed.points)
        if untimed and (step := self.arrivals.follow()) is not None:
            await self.silence.clock_set(step)
        note = self.arrivals.note_of(precision.encode() + b"\n" + body) if untimed else None
        while True:
            of = self._definition_of(note)
            named = await asyncio.to_thread(names, parsed.points, of.template, of.rule)
            places, later = await self._places(of, named)
            if of is self._definition_of(note):  # what arrives now is read as it is defined now
                break
        keys = {**{key: places[name] for key, name in named.of.items()}, **named.unnamed}
        if of.source.unknown == "reject":
            keys.update((key, _OF_NO_CHANNEL) for key in named.counts if isinstance(keys[key], str))
        arrival, notes = (0, {}) if note is None else self.arrivals.time_of(note, untimed)
        texts = of.text_channels | self._channels.texts
        found = await asyncio.to_thread(rows, parsed.points, keys, arrival, named.counts, texts)
        if found or found.misplaced or found.waiting:
            self.silence.heard()
        if found.waiting:
            found.counts = CountRows()  # all counts of a body go together: with the attempt that takes all of it
        if found or found.misplaced:
            try:
                await self._store(found, notes, digest_of(body, precision, arrival))
            except SpoolError as error:
                await self.silence.say("degraded", str(error))
                raise
        bad = sorted(parsed.bad + found.bad, key=lambda one: one.line)
        self._count(found, bad)
        return Taken(len(found), bad, later if found.waiting else "", note)

    async def _places(self, of: _Definition, named: Names) -> tuple[Mapping[str, Place], str]:
        """Each name's channel id or why it has none; and why some must wait."""
        created = self._channels.of(self.name) if of.source.unknown == "create" else {}
        places: dict[str, Place] = {name: of.configured.get(name, created.get(name)) for name in named.kinds}
        unknown = [name for name, place in places.items() if place is None]
        if not unknown:
            return places, ""
        if of.source.unknown == "reject":
            places.update(
                (n, f"the channel {n!r} is not among the source's tags, and unknown ones are refused") for n in unknown
            )
            return places, ""
        room = max(0, of.source.max_channels - len(created))
        for name in unknown[room:]:
            places[name] = f"the channel {name!r} would be more than max_channels, which is {of.source.max_channels}"
        try:
            wanted = {name: named.kinds[name] for name in unknown[:room]}
            places.update(await self._channels.create(self.name, self._status.source_id, wanted))
        except DatabaseError as error:
            return places, str(error)
        self._count_channels()
        return places, ""

    def _name_of(self, channel: int) -> str:
        known = (*self._definition.names.items(), *self._channels.of(self.name).items())
        return next((name for name, number in known if number == channel), str(channel))

    def _count_channels(self) -> None:
        self._status.channels = len(self._definition.configured) + len(self._channels.of(self.name))

    async def _store(self, found: Rows, notes: Notes, digest: int) -> None:
        """Samples first: where there is no room for them, nothing is taken."""
        await self._versions.say()
        times = found.times()
        notes = {**notes, **self.silence.notes(times)}
        received = now_us()
        if found.value:
            await self._spool.append(found.samples(self._status.source_id, received), notes)
        if found.counts:
            await self._spool.append(found.counts.batch(self._status.source_id, received, digest), notes)
        rounded = found.rounded - self._rounded
        said = [Event("rounded", received, i, detail=ROUNDED) for i in sorted(rounded)]
        events = [*found.texts, *found.misplaced, *said]
        if events:
            await self._spool.append(EventBatch(self._status.source_id, received, events), notes)
        self._rounded |= rounded
        if changed := await self._no_number.look(found):
            await self._spool.append(EventBatch(self._status.source_id, received, changed), notes)
        await self.silence.over(times)

    def _count(self, found: Rows, bad: list[BadLine]) -> None:
        self._status.samples += len(found.value)
        self._status.decode_errors += len(bad)
        metrics.samples.labels(source=self.name).inc(len(found.value))
        metrics.events.labels(source=self.name, type="text").inc(len(found.texts))
        metrics.counts.labels(source=self.name).inc(len(found.counts))
        metrics.push_refused.labels(source=self.name).inc(len(bad))


def read_token(source: PushSource) -> bytes:
    """The gateway's token. Raises OperationError where its file holds none."""
    try:
        token = source.token_file.read_bytes().strip()
    except OSError as error:
        raise OperationError(f"the token of source {source.name}: {error}") from error
    if not token or len(token.split()) > 1:
        raise OperationError(
            f"{source.token_file} of source {source.name}: one line with the gateway's token belongs there"
        )
    return token
