"""A push source, whose request bodies are made durable."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from core import metrics
from core.batch import ROUNDED_DETAIL, Event, EventBatch, SampleBatch
from core.clock import ReadClocks, machine_clocks
from core.config.sources import PushSource
from core.errors import DatabaseError, SpoolError
from core.timestamps import now_us
from ingest.appender import Appender, Notes
from ingest.gaps import Gaps
from ingest.no_data import NoData
from ingest.push.arrivals import Arrivals
from ingest.push.body import BodyQueue
from ingest.push.channels import Channels
from ingest.push.line_protocol import BadLine, Parsed, Point, Precision
from ingest.push.mapping import (
    ChannelNames,
    CountRows,
    CountRule,
    MappedRows,
    Resolved,
    StatusRule,
    Template,
    digest_of,
    names,
    rows,
)
from ingest.push.repeated_times import RepeatedTimes
from ingest.push.silence import Silence
from ingest.status import SourceStatus
from ingest.versions import NO_VERSIONS, ChannelVersions

_MAX_FORMER = 20  # earlier definitions, by which retries are read
_MAX_UNKNOWN_STATUSES = 100  # words that are recorded as events
_UNKNOWN_STATUS = {"reason": "values with an unknown status are stored as Uncertain: add the word to status_codes"}
_NO_CHANNEL = 0  # channel id of counts without a channel


@dataclass(frozen=True, slots=True)
class BodyResult:
    """The result of writing a body."""

    values: int  # samples, texts and counts that are durable
    bad: list[BadLine]  # in order of lines
    retry_reason: str  # why channels could not be created and the client must retry; empty: complete
    notes: tuple[str, ...]  # to forget when the gateway has the response


class _Definition:
    """The mapping of a source's lines to channels; immutable, replaced on reconfiguration."""

    def __init__(self, source: PushSource, channel_ids: Mapping[str, int]) -> None:
        self.source = source
        self.configured = {tag.address: channel_ids[tag.name] for tag in source.tags}
        self.names = {tag.name: channel_ids[tag.name] for tag in source.tags}
        self.text_channels = {channel_ids[tag.name] for tag in source.tags if tag.kind == "text"}
        self.no_data = NoData((channel_ids[tag.name], tag.no_data) for tag in source.tags)
        self.template = Template(source.channel)
        self.rule = CountRule(source.counts)
        self.statuses = StatusRule(source.status, source.status_codes)
        self._times = {channel_ids[tag.name]: tag.time for tag in source.tags if tag.time is not None}
        self.uses_arrival = "arrival" in (source.time, *self._times.values())

    def by_arrival(self, channels: Iterable[Resolved]) -> Set[Resolved]:
        """Channels whose samples get the time of arrival, also where lines have timestamps."""
        if not self.uses_arrival:
            return frozenset()
        return {
            channel
            for channel in channels
            if isinstance(channel, int) and self._times.get(channel, self.source.time) == "arrival"
        }


class Gateway:
    """The gateway that one source's tokens belong to."""

    def __init__(
        self,
        source: PushSource,
        channel_ids: Mapping[str, int],
        status: SourceStatus,
        spool: Appender,
        channels: Channels,
        body_queue: BodyQueue,
        read_clocks: ReadClocks = machine_clocks,
        versions: Mapping[int, int] = NO_VERSIONS,
    ) -> None:
        self.name = source.name
        self.limit = RateLimit(source.max_rate)
        self.silence = Silence(status, source.stale_after, spool)
        self.arrivals = Arrivals(source.name, status.source_id, spool, source.skew_limit, read_clocks)
        self._versions = ChannelVersions(source.name, status.source_id, spool)
        self._channels = channels
        self._body_queue = body_queue
        self._definition = _Definition(source, channel_ids)
        self._former: deque[tuple[int, _Definition]] = deque(maxlen=_MAX_FORMER)  # the end (µs) of each, oldest first
        self._type_mismatches = TypeMismatches(status, self.silence.gaps, self._name_of)
        self._repeated = RepeatedTimes(status, self.silence.gaps)
        self._rounded: set[int] = set()  # channels whose rounding was recorded
        self._unknown_statuses: set[str] = set()  # recorded ones
        self._removed: set[int] = set()  # channels whose removal is not on record yet
        self._status = status
        self._spool = spool
        self._begin(versions, self.arrivals.now())

    def configure(self, source: PushSource, channel_ids: Mapping[str, int], versions: Mapping[int, int]) -> None:
        """Apply new tags and options to data that arrives from now on. Call
        :meth:`record_configuration` afterwards."""
        if source.max_rate != self.limit.rate:
            self.limit = RateLimit(source.max_rate)
        self.silence.configure(source.stale_after)
        self.arrivals.configure(source.skew_limit)
        since = self.arrivals.now()
        self._former.append((since, self._definition))
        self._removed |= set(self._definition.names.values()) - set(channel_ids.values())
        self._definition = _Definition(source, channel_ids)
        self._begin(versions, since)

    def _begin(self, versions: Mapping[int, int], since: int) -> None:
        for channel, version in self._versions.not_yet_read(versions).items():
            self._versions.start(channel, version, since)
        self._count_channels()

    def _definition_of(self, note: str | None) -> _Definition:
        """The definition for a body: a retry uses that of its first attempt."""
        first = None if note is None else self.arrivals.first(note)
        if first is None:
            return self._definition
        return next((former for end, former in self._former if first < end), self._definition)

    async def record_configuration(self) -> None:
        """Record the effects of a new configuration. On a disk error they are recorded with the next body."""
        definition, created = self._definition, self._channels.ids_of(self.name)
        numbers = {*definition.configured.values(), *created.values()} - definition.text_channels - self._channels.texts
        await self._type_mismatches.set_number_channels(numbers)
        removed, self._removed = self._removed - {*definition.names.values()}, set()
        await self.silence.gaps.remove(self.arrivals.now(), removed)
        with suppress(SpoolError):
            await self._versions.flush()

    async def write(self, body: bytes, precision: Precision, parsed: Parsed) -> BodyResult:
        """Store the valid part of the parsed ``body``.

        Raises SpoolError if the spool rejects it: the gateway must retry.
        """
        results = [
            await self._write(part, precision, points) for part, points in self._parts(body, precision, parsed.points)
        ]
        bad = sorted(chain(parsed.bad, *(result.bad for result in results)), key=lambda bad: bad.line)
        self._status.decode_errors += len(bad)
        metrics.push_refused.labels(source=self.name).inc(len(bad))
        return BodyResult(
            sum(result.values for result in results),
            bad,
            next((result.retry_reason for result in results if result.retry_reason), ""),
            tuple(chain.from_iterable(result.notes for result in results)),
        )

    def _parts(self, body: bytes, precision: Precision, points: list[Point]) -> Iterator[tuple[bytes, list[Point]]]:
        """Unanswered bodies with which the body begins, and the rest; each with its points."""
        begin = 0
        while points:
            end = begin + self.arrivals.beginning(body[begin:], precision)
            end = len(body) if end == begin else end
            lines = body.count(b"\n", 0, end) + (not body.endswith(b"\n", 0, end))
            n = bisect_right(points, lines, key=lambda point: point.line)
            yield body[begin:end], points[:n]
            begin, points = end, points[n:]

    async def _write(self, body: bytes, precision: Precision, points: list[Point]) -> BodyResult:
        untimed = sum(self._definition.uses_arrival or point.time is None for point in points)
        if untimed and (step := self.arrivals.detect_step()) is not None:
            await self.silence.clock_set(step)
        note = self.arrivals.note_name(body, precision) if untimed else None
        while True:
            definition = self._definition_of(note)
            channel_names = await self._body_queue.run_next(
                names, points, definition.template, definition.rule, definition.statuses
            )
            resolved, retry_reason = await self._resolve(definition, channel_names)
            if definition is self._definition_of(note):  # it was not replaced meanwhile
                break
        keys = {**{key: resolved[name] for key, name in channel_names.of.items()}, **channel_names.unnamed}
        if definition.source.unknown == "reject":
            keys.update((key, _NO_CHANNEL) for key in channel_names.counts if isinstance(keys[key], str))
        arrival, notes = (0, {}) if note is None else self.arrivals.time_of(note, untimed, len(body))
        texts = definition.text_channels | self._channels.texts
        by_arrival = definition.by_arrival(keys.values())
        mapped = await self._body_queue.run_next(
            rows, points, keys, arrival, channel_names.counts, texts, definition.statuses, by_arrival
        )
        mapped.no_data = definition.no_data
        if mapped or mapped.misplaced or mapped.waiting:
            self.silence.record_activity()
        if mapped.waiting:
            mapped.counts = (
                CountRows()
            )  # the counts of a body are one batch, which goes with the attempt that stores all of it
        if mapped or mapped.misplaced:
            try:
                await self._store(mapped, notes, digest_of(body, precision, arrival))
            except SpoolError as error:
                await self.silence.set_state("degraded", str(error))
                raise
        self._count(mapped)
        retry_reason = retry_reason if mapped.waiting else ""
        return BodyResult(len(mapped), mapped.bad, retry_reason, () if note is None else (note,))

    async def _resolve(
        self, definition: _Definition, channel_names: ChannelNames
    ) -> tuple[Mapping[str, Resolved], str]:
        """Channel id or error of each name; and the reason why the client must retry, if any."""
        created = self._channels.ids_of(self.name) if definition.source.unknown == "create" else {}
        resolved: dict[str, Resolved] = {
            name: definition.configured.get(name, created.get(name)) for name in channel_names.kinds
        }
        unknown = [name for name, channel in resolved.items() if channel is None]
        if not unknown:
            return resolved, ""
        if definition.source.unknown == "reject":
            resolved.update(
                (n, f"channel {n!r} is not a tag of the source (unknown channels are rejected)") for n in unknown
            )
            return resolved, ""
        room = max(0, definition.source.max_channels - len(created))
        for name in unknown[room:]:
            resolved[name] = f"channel {name!r} exceeds max_channels, which is {definition.source.max_channels}"
        try:
            kinds = {name: channel_names.kinds[name] for name in unknown[:room]}
            resolved.update(await self._channels.create(self.name, self._status.source_id, kinds))
        except DatabaseError as error:
            return resolved, str(error)
        self._count_channels()
        return resolved, ""

    def _name_of(self, channel: int) -> str:
        ids = (*self._definition.names.items(), *self._channels.ids_of(self.name).items())
        return next((name for name, number in ids if number == channel), str(channel))

    def _count_channels(self) -> None:
        self._status.channels = len(self._definition.configured) + len(self._channels.ids_of(self.name))

    async def _store(self, rows: MappedRows, notes: Notes, digest: int) -> None:
        """Append samples first: if there is no room for them, nothing is stored."""
        await self._versions.flush()
        times = rows.times()
        notes = {**notes, **self.silence.notes(times)}
        received = now_us()
        if rows.value:
            samples = rows.samples()
            await self._repeated.check(samples.part(self._spool.limits.inside(received, samples.time)))
            await self._spool.append(SampleBatch(self._status.source_id, received, samples), notes)
        if rows.counts:
            await self._spool.append(rows.counts.batch(self._status.source_id, received, digest), notes)
        rounded = rows.rounded - self._rounded
        rounding = [Event("rounded", received, i, detail=ROUNDED_DETAIL) for i in sorted(rounded)]
        room = _MAX_UNKNOWN_STATUSES - len(self._unknown_statuses)
        unknown = sorted(rows.unknown_statuses - self._unknown_statuses)[:room]
        unknowns = [Event("unknown_status", received, text=word, detail=_UNKNOWN_STATUS) for word in unknown]
        events = [*rows.texts, *rows.misplaced, *rounding, *unknowns]
        if events:
            await self._spool.append(EventBatch(self._status.source_id, received, events), notes)
        self._rounded |= rounded
        self._unknown_statuses.update(unknown)
        if changed := await self._type_mismatches.update(rows):
            await self._spool.append(EventBatch(self._status.source_id, received, changed), notes)
        await self.silence.samples_stored(times)

    def _count(self, rows: MappedRows) -> None:
        self._status.count_samples(len(rows.value))
        metrics.events.labels(source=self.name, type="text").inc(len(rows.texts))
        metrics.counts.labels(source=self.name).inc(len(rows.counts))


class RateLimit:
    """A token bucket for one second of lines. A single body may overdraw it, so that no body is too large."""

    def __init__(self, lines_a_second: int) -> None:
        self.rate = lines_a_second
        self._level = float(lines_a_second)
        self._at = time.monotonic()

    def wait(self) -> float:
        """Seconds until the next body is accepted; 0: now."""
        now = time.monotonic()
        self._level = min(float(self.rate), self._level + (now - self._at) * self.rate)
        self._at = now
        return 0.0 if self._level > 0 else -self._level / self.rate

    def take(self, lines: int) -> None:
        """Count the lines of an accepted body."""
        self._level -= lines


_MISMATCH = "undecodable"
_MISMATCH_DETAIL = 'text value received for a numeric channel: set kind = "text"'


class TypeMismatches:
    """Texts received for numeric channels of one source: reported once, with a gap from the text to the next number.

    The affected channels are restored from their gaps. ``name`` returns the name of a channel id.
    """

    def __init__(self, status: SourceStatus, gaps: Gaps, name: Callable[[int], str]) -> None:
        self._status = status
        self._gaps = gaps
        self._name = name
        self._update_status()

    async def set_number_channels(self, numbers: Set[int]) -> None:
        """Set the numeric channels; close the gaps of all others."""
        at = now_us()
        await self._gaps.close(at, self._bad() - numbers)
        self._update_status()

    async def update(self, rows: MappedRows) -> list[Event]:
        """Open and close gaps for rows that are now durable; return the events to store."""
        bad = self._bad()
        if not rows.misplaced and not bad:
            return []
        times: dict[int, list[tuple[int, bool]]] = {channel: [] for channel in bad}
        for event in rows.misplaced:
            assert event.channel_id is not None
            times.setdefault(event.channel_id, []).append((event.time, True))
        for channel, at in zip(rows.channel_id, rows.time, strict=True):
            if channel in times and self._gaps.ends_with(at):
                times[channel].append((at, False))
        spans: list[tuple[list[int], int, int]] = []
        for channel, arrived in times.items():
            since = self._gaps.open_since(channel) if channel in bad else None
            begin: int | None = None  # of a gap that is not open yet
            for at, is_text in sorted(arrived):
                if is_text and since is None and begin is None:
                    begin = at
                elif not is_text and since is not None and at > since:
                    await self._gaps.close(at, [channel])
                    since = None
                elif not is_text and begin is not None and at > begin:
                    spans.append(([channel], begin, at))
                    begin = None
            if begin is not None:
                await self._gaps.open(begin, _MISMATCH, _MISMATCH_DETAIL, [channel])
        if spans:
            await self._gaps.record_each(spans, _MISMATCH, _MISMATCH_DETAIL)
        self._update_status()
        return self._changes(bad, self._bad())

    def _bad(self) -> set[int]:
        return set(self._gaps.channels_open_for(_MISMATCH))

    def _changes(self, before: set[int], after: set[int]) -> list[Event]:
        at = now_us()
        events = [
            Event("channel_state", at, c, text="bad", detail={"reason": _MISMATCH_DETAIL})
            for c in sorted(after - before)
        ]
        return events + [Event("channel_state", at, c, text="good") for c in sorted(before - after)]

    def _update_status(self) -> None:
        self._status.bad_channels = {self._name(channel): _MISMATCH_DETAIL for channel in self._bad()}
