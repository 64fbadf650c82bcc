"""Conditions of one OPC UA server, from its events (OPC 10000-9).

The server owns the state. It is changed only by an event, or by the end of a refresh that did not name the condition
any more. Like the alarms of limits, each condition that is not normal has a note in the spool, written together with
the event that changed it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from core.batch import Event
from core.config.sources import AlarmPriority
from core.errors import OperationError
from ingest.alarms.channel import INHIBIT, RELEASE, Action
from ingest.alarms.checkpoint import LATE_US
from ingest.alarms.server_event import ServerEvent, priority_of
from ingest.alarms.state import UNACKNOWLEDGED, State, summary
from ingest.appender import Notes

# ConditionId, EventId of the newest event, and comment. Raises OperationError.
Acknowledge = Callable[[str, str, str], Awaitable[None]]

_NOT_REPORTED = "no longer reported: a refresh of the server's conditions did not name it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The alarm of one condition, or of one of its branches."""

    key: str
    condition_id: str
    name: str  # ConditionName
    source_name: str
    channel_id: int | None = None  # the channel whose variable is the condition's source
    state: State = "normal"
    active: bool = False
    since: int = 0  # µs, of the state; an acknowledgement of an active alarm does not change it
    time: int = 0  # µs, of the newest event
    event_id: str = ""  # of the newest event, which is acknowledged
    priority: AlarmPriority = "low"
    severity: int = 1
    message: str = ""
    revision: int = 0  # grows with each change
    acknowledged_by: str | None = None
    acknowledged_at: int | None = None  # µs


class Conditions:
    """The conditions of one source, by key."""

    def __init__(self, source: str, source_id: int, notes: Mapping[str, str]) -> None:
        self.source = source
        self.acknowledge: Acknowledge | None = None  # None: the server is not connected
        self._names: Mapping[int, str] = {}
        self._prefix = f"condition:{source_id}:"
        saved = [json.loads(text) for name, text in notes.items() if name.startswith(self._prefix)]
        self._not_normal = {fields["key"]: Condition(**fields) for fields in saved}
        # Time and id of the newest event of each condition, also of normal ones
        self._newest = {key: (condition.time, condition.event_id) for key, condition in self._not_normal.items()}
        self._refreshed: set[str] | None = None  # keys since the beginning of a refresh; None: none is in progress

    def configure(self, names: Mapping[int, str]) -> None:
        """Set the names of the source's channels, by id."""
        self._names = names

    def record(self, event: ServerEvent, channel_id: int | None, arrival: int) -> tuple[Event | None, Notes]:
        """Evaluate an event; return its row and the notes to store with it. No row: the event is on record already.

        An event that changes the state of an alarm is of type ``alarm``, any other of type ``server_event``.
        ``event.time`` must be set; ``arrival``: µs, our clock.
        """
        time = arrival if event.time is None else event.time
        status, key = event.quality, event.key
        plain = Event("server_event", time, channel_id, status, event.message, event.detail())
        if key is None:
            return plain, {}
        if self._refreshed is not None:
            self._refreshed.add(key)
        newest, newest_id = self._newest.get(key, (0, ""))
        if event.event_id is not None and event.event_id == newest_id:
            return None, {}  # repeated by a refresh
        if time < newest:
            return plain, {}  # sent again, after newer ones
        before = self._not_normal.get(key)
        after = _after(before, key, event, channel_id, time)
        action = _action(before, after)
        if action is None:
            # The list of this process has the event to acknowledge; the database needs no update.
            return plain, self._keep(before, replace(after, revision=before.revision if before else 0))
        late = {"late": True} if arrival - time > LATE_US else {}
        detail = {**event.detail(), **_alarm_detail(before, after, action), **late}
        return Event("alarm", time, channel_id, status, after.state, detail), self._keep(before, after)

    def _keep(self, before: Condition | None, after: Condition) -> Notes:
        """Keep a condition; return its note. A normal condition has none."""
        self._newest[after.key] = after.time, after.event_id
        if after.state == "normal":
            self._not_normal.pop(after.key, None)
            if after.key != after.condition_id:
                del self._newest[after.key]  # a branch does not come back
            return {} if before is None else {self._prefix + after.key: None}
        self._not_normal[after.key] = after
        return {self._prefix + after.key: json.dumps(asdict(after))}

    def begin_refresh(self) -> None:
        """Begin a refresh, in which the server names every condition that it retains."""
        self._refreshed = set()

    def end_refresh(self, now: int, *, complete: bool) -> tuple[list[Event], Notes]:
        """End a refresh at ``now`` (µs): conditions that it did not name have returned, if it was ``complete``.

        Returns rows and notes.
        """
        refreshed, self._refreshed = self._refreshed, None
        events: list[Event] = []
        notes: dict[str, str | None] = {}
        if refreshed is None or not complete:
            return events, notes
        for key in [key for key in self._not_normal if key not in refreshed]:
            before = self._not_normal[key]
            at = max(now, before.time)
            after = replace(before, state="normal", active=False, since=at, revision=max(before.revision + 1, at))
            detail = {
                "condition_id": before.condition_id,
                "source_name": before.source_name,
                "condition_name": before.name,
                "message": before.message,
                "severity": before.severity,
                **_alarm_detail(before, after, "returned" if before.active else "removed"),
                "why": _NOT_REPORTED,
            }
            events.append(Event("alarm", at, before.channel_id, None, "normal", detail))
            notes |= self._keep(before, after)
        return events, notes

    def name_of(self, condition: Condition) -> str:
        """The name in the alarm list: that of the channel, else source and SourceName."""
        channel = None if condition.channel_id is None else self._names.get(condition.channel_id)
        return channel or f"{self.source}/{condition.source_name}"

    def listed(self) -> list[Condition]:
        """Conditions that are not normal."""
        return list(self._not_normal.values())

    async def send_acknowledgement(self, condition: Condition, comment: str) -> None:
        """Acknowledge it on the server. Raises OperationError with the reason if that is not possible."""
        if self.acknowledge is None:
            raise OperationError(f"source {self.source} is not connected: acknowledge it again once it is")
        await self.acknowledge(condition.condition_id, condition.event_id, comment)

    def as_json(self, condition: Condition) -> dict[str, Any]:
        """A condition as JSON, with the fields of an alarm of a limit and those that only a condition has."""
        return {
            "channel": self.name_of(condition),
            "source": self.source,
            "limit": condition.name,
            "state": condition.state,
            "active": condition.active,
            "since": condition.since,
            "value": None,
            "threshold": None,
            "unit": "",
            "priority": condition.priority,
            "acknowledged_by": condition.acknowledged_by,
            "acknowledged_at": condition.acknowledged_at,
            "shelved_until": None,
            "who": condition.acknowledged_by,
            "why": condition.message or None,
            "condition_id": condition.key,
            "severity": condition.severity,
        }

    def summary(self) -> dict[str, int]:
        """Summary of the conditions, see :func:`ingest.alarms.state.summary`."""
        return summary((each.priority, each.active, each.state) for each in self._not_normal.values())


def _after(before: Condition | None, key: str, event: ServerEvent, channel_id: int | None, time: int) -> Condition:
    """The condition after an event."""
    state, active = event.state, event.is_active
    since, acknowledged_by, acknowledged_at = time, None, None
    if before is not None and (
        state == before.state
        or (state == "acknowledged_active" and before.state == "unacknowledged_active" and before.active)
    ):
        since = before.since
    elif state in ("acknowledged_active", "unacknowledged_active") and event.active_since is not None:
        since = min(event.active_since, time)
    if before is not None and state not in UNACKNOWLEDGED:
        acknowledged_by, acknowledged_at = before.acknowledged_by, before.acknowledged_at
        if before.state in UNACKNOWLEDGED and active == before.active:
            acknowledged_by = ": ".join(text for text in (event.user, event.comment) if text) or None
            acknowledged_at = time
    severity = before.severity if before is not None and not active else event.severity  # as it was raised
    return Condition(
        key=key,
        condition_id=event.condition_id or key,
        name=event.condition_name or "condition",
        source_name=event.source_name or event.source_node or "server",
        channel_id=channel_id,
        state=state,
        active=active,
        since=since,
        time=time,
        event_id=event.event_id or "",
        priority=priority_of(severity),
        severity=severity,
        message=event.message,
        revision=max(time, (before.revision if before is not None else 0) + 1),
        acknowledged_by=acknowledged_by,
        acknowledged_at=acknowledged_at,
    )


def _action(before: Condition | None, after: Condition) -> Action | None:
    """Action on the alarm; None: the alarm list shows no change."""
    state_before: State = "normal" if before is None else before.state
    was_active = before is not None and before.active
    if after.state == state_before:
        return "raised" if after.active and not was_active else "returned" if was_active and not after.active else None
    if after.state in INHIBIT:
        return INHIBIT[after.state]
    if state_before in RELEASE:
        return RELEASE[state_before]
    if was_active and not after.active:
        return "returned"
    if after.state in UNACKNOWLEDGED or (not was_active and after.active):
        return "raised"
    return "acknowledged"


def _alarm_detail(before: Condition | None, after: Condition, action: Action) -> dict[str, Any]:
    """Detail like that of a limit's alarm (``checkpoint.to_event``), with the condition's key beside its name."""
    detail: dict[str, Any] = {
        "limit": after.name,
        "condition_key": after.key,
        "action": action,
        "previous": "normal" if before is None else before.state,
        "state": after.state,
        "active": after.active,
        "since": after.since,
        "value": None,
        "threshold": None,
        "priority": after.priority,
        "revision": after.revision,
    }
    acknowledged = {"acknowledged_by": after.acknowledged_by, "acknowledged_at": after.acknowledged_at}
    return detail | {name: value for name, value in acknowledged.items() if value is not None}
