"""Batches of a member that the database lacks: by content, because the other member wrote it in other batches.

Other events are what a member reports of itself: those have no content to be looked up by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.batch import STANDBY, CountBatch, Event, EventBatch, GapBatch, SampleBatch
from core.samples import joined
from core.time_limits import TimeLimits
from core.timestamps import timestamp
from ingest.alarms.channel import OPERATOR_ACTIONS
from ingest.event_rows import alarm_columns, event_id, reset_columns
from ingest.spool.format import SpooledBatch
from ingest.writer.pair.polled import LOOK_UP, Fetch, Placed, lonely, uncovered
from schema.queries import load


def is_content(spooled: SpooledBatch, event: Event | None = None) -> bool:
    """Return whether a batch, or this event of it, is looked up by its content.

    The other member has the same data, in batches of its own; what people do is recorded at once (``standby.py``). All
    other events are what a member reports of itself, and so are the texts that it polls.
    """
    batch = spooled.batch
    if event is not None:
        text = event.type == "text" and not spooled.is_polled
        return text or event.type == "user_action" or "event_id" in event.detail
    if isinstance(batch, EventBatch):
        return any(is_content(spooled, event) for event in batch.events)
    return not isinstance(batch, GapBatch)


@dataclass(frozen=True, slots=True)
class Lookup:
    """Lookup of a member's batches in the database. All methods return indices of ``batches``.

    ``other``: the other member. Samples outside ``limits`` go to the quarantine, and are not looked up.
    """

    limits: TimeLimits
    other: int
    fetch: Fetch

    async def missing(
        self, batches: Sequence[SpooledBatch], from_journal: Sequence[bool] = ()
    ) -> tuple[set[int], set[int]]:
        """The batches that are not in the database, and which of them the holder of the lease should have written.

        ``from_journal``: whether each was in the database once.
        """
        missing = await _samples(batches, self.limits, self.fetch)
        missing |= await _events(batches, self.fetch)
        missing |= await _counts(batches, self.fetch)
        from_journal_indices = {index for index, was_stored in enumerate(from_journal) if was_stored}
        polled = self._polled(batches)
        lacking, owed = await uncovered(
            [batch for batch in polled if batch[0] not in from_journal_indices], self.other, self.fetch
        )
        lost = await lonely([batch for batch in polled if batch[0] in from_journal_indices], LOOK_UP, self.fetch)
        return missing | lacking | lost, missing | owed | lost

    def _polled(self, batches: Sequence[SpooledBatch]) -> Placed:
        polled: list[tuple[int, SampleBatch | EventBatch]] = []
        for index, spooled in enumerate(batches):
            batch = spooled.batch
            if not spooled.is_polled or not isinstance(batch, SampleBatch | EventBatch):
                continue
            if (
                isinstance(batch, EventBatch)
                or self.limits.inside(batch.received_at, batch.samples.time, batch.source_id).all()
            ):
                polled.append((index, batch))
        return polled

    async def changed(self, batches: Sequence[SpooledBatch], events: Sequence[tuple[int, Event]]) -> set[int]:
        """Indices of ``events`` whose alarm or text is another one in the database now, and of unknown resets."""
        changed = {index for index, event in events if event.type not in ("text", "alarm", "counter_reset")}
        texts = [(index, event) for index, event in events if event.type == "text"]
        columns = [event.channel_id for _, event in texts], [event.text for _, event in texts]
        changed |= await self._unknown(load("lease")["select_known_texts"], texts, *columns)
        resets = [(index, event) for index, event in events if event.type == "counter_reset"]
        changed |= await self._unknown(
            load("write")["known_resets"], resets, *reset_columns([event for _, event in resets])
        )
        alarms = [(index, event) for index, event in events if event.type == "alarm"]
        of_sources = [(batches[index].batch.source_id, event) for index, event in alarms]
        changed |= await self._unknown(load("alarms")["select_known_alarms"], alarms, *alarm_columns(of_sources))
        return changed

    async def _unknown(self, query: str, events: Sequence[tuple[int, Event]], *columns: object) -> set[int]:
        """Indices of ``events`` that ``query``, with their columns, does not return."""
        stored = {row["index"] for row in await self.fetch(query, *columns)} if events else set()
        return {index for i, (index, _) in enumerate(events) if i not in stored}


async def _samples(batches: Sequence[SpooledBatch], limits: TimeLimits, fetch: Fetch) -> set[int]:
    sample_batches = [
        (index, spooled.batch)
        for index, spooled in enumerate(batches)
        if isinstance(spooled.batch, SampleBatch) and not spooled.is_polled
    ]
    if not sample_batches:
        return set()
    batch_indices = np.repeat([index for index, _ in sample_batches], [len(batch) for _, batch in sample_batches])
    inside = np.concatenate(
        [limits.inside(batch.received_at, batch.samples.time, batch.source_id) for _, batch in sample_batches]
    )
    samples = joined(batch.samples for _, batch in sample_batches).part(inside)
    if not len(samples):
        return set()
    by_channel = list(samples.sorted().by_channel())
    first, last = ([timestamp(int(of_channel.time[end])) for _, of_channel in by_channel] for end in (0, -1))
    columns = batch_indices[inside], samples.channel, samples.time, samples.value, samples.status.view(np.int32)
    spans = [channel for channel, _ in by_channel], first, last, min(first), max(last)
    rows = await fetch(load("lease")["select_missing_samples"], *(column.tolist() for column in columns), *spans)
    return {row["batch"] for row in rows}


async def _events(batches: Sequence[SpooledBatch], fetch: Fetch) -> set[int]:
    """The batches with values that are no numbers that are not in the table."""
    events = [
        (index, spooled.batch.source_id, event)
        for index, spooled in enumerate(batches)
        if isinstance(spooled.batch, EventBatch)
        for event in spooled.batch.events
        if is_content(spooled, event)
    ]
    if not events:
        return set()
    times = [timestamp(event.time) for _, _, event in events]
    ids = [event_id(source, event) for _, source, event in events]
    rows = await fetch(load("lease")["select_events"], times, ids, min(times), max(times))
    stored = {row["index"] for row in rows}
    return {index for i, (index, _, _) in enumerate(events) if i not in stored}


async def _counts(batches: Sequence[SpooledBatch], fetch: Fetch) -> set[int]:
    keys = {spooled.key: index for index, spooled in enumerate(batches) if isinstance(spooled.batch, CountBatch)}
    if not keys:
        return set()
    query = load("write")["select_batches"]
    rows = await fetch(query, [source for source, _ in keys], [number for _, number in keys])
    stored = {(row["source_id"], row["sequence"]) for row in rows}
    return {
        index
        for index, spooled in enumerate(batches)
        if isinstance(spooled.batch, CountBatch) and spooled.key not in stored
    }


class SelfReports:
    """The newest event about each thing that a member reports of itself: a source's state, the alarm of a limit, a text
    that was polled. The other member does not derive them from its data."""

    def __init__(self) -> None:
        self._newest: dict[tuple[object, ...], tuple[int, int]] = {}  # time (µs) and batch

    def add(self, spooled: SpooledBatch) -> None:
        """A batch that was received."""
        for kind, event in _self_reports(spooled):
            if (newest := self._newest.get(kind)) is None or newest[0] <= event.time:
                self._newest[kind] = event.time, spooled.sequence

    def newest(self, spooled: SpooledBatch) -> list[Event]:
        """The events of a batch that are the newest."""
        return [
            event for kind, event in _self_reports(spooled) if self._newest.get(kind) == (event.time, spooled.sequence)
        ]


def operator_commands(spooled: SpooledBatch) -> list[Event]:
    """Events of what an operator did, and of the audit trail."""
    return [event for event in _events_of(spooled) if event.type == "user_action" or _is_command(event)]


def _is_command(event: Event) -> bool:
    return event.type == "alarm" and event.detail["action"] in OPERATOR_ACTIONS


def reports_standby(spooled: SpooledBatch) -> bool:
    """Return whether the member reports a source that the other one polls."""
    batch = spooled.batch
    return isinstance(batch, GapBatch) and any(gap.reason == STANDBY for gap in batch.gaps)


def _self_reports(spooled: SpooledBatch) -> Iterator[tuple[tuple[object, ...], Event]]:
    source = spooled.batch.source_id
    for event in _events_of(spooled):
        if not is_content(spooled, event):
            alarm = event.condition_key or event.detail.get("limit")
            yield (source, event.type, event.channel_id, alarm), event


def _events_of(spooled: SpooledBatch) -> Sequence[Event]:
    return spooled.batch.events if isinstance(spooled.batch, EventBatch) else ()
