"""What a member of a redundant pair reports of itself, in events that the other one does not derive from its data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.batch import STANDBY, Event, EventBatch, GapBatch
from ingest.alarms.channel import OPERATOR_ACTIONS
from ingest.spool.format import SpooledBatch
from ingest.writer.lookup import is_content


class SelfReports:
    """The newest event about each thing: a source's state, the alarm of a limit, a text that was polled."""

    def __init__(self) -> None:
        self._newest: dict[tuple[object, ...], tuple[int, int]] = {}  # time (µs) and batch

    def add(self, spooled: SpooledBatch) -> None:
        """A batch that was received."""
        for kind, event in _reports(spooled):
            if (known := self._newest.get(kind)) is None or known[0] <= event.time:
                self._newest[kind] = event.time, spooled.sequence

    def newest(self, spooled: SpooledBatch) -> list[Event]:
        """The events of a batch that are the newest."""
        return [event for kind, event in _reports(spooled) if self._newest.get(kind) == (event.time, spooled.sequence)]


def operator_commands(spooled: SpooledBatch) -> list[Event]:
    """What an operator did, and the audit trail."""
    return [event for event in _events(spooled) if event.type == "user_action" or _is_command(event)]


def _is_command(event: Event) -> bool:
    return event.type == "alarm" and event.detail["action"] in OPERATOR_ACTIONS


def reports_standby(spooled: SpooledBatch) -> bool:
    """Whether the member reports a source that the other one polls."""
    batch = spooled.batch
    return isinstance(batch, GapBatch) and any(gap.reason == STANDBY for gap in batch.gaps)


def _reports(spooled: SpooledBatch) -> Iterator[tuple[tuple[object, ...], Event]]:
    source = spooled.batch.source_id
    for event in _events(spooled):
        if not is_content(spooled, event):
            alarm = event.detail.get("condition_key", event.detail.get("limit"))
            yield (source, event.type, event.channel_id, alarm), event


def _events(spooled: SpooledBatch) -> Sequence[Event]:
    return spooled.batch.events if isinstance(spooled.batch, EventBatch) else ()
