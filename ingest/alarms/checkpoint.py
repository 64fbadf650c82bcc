"""Alarm state of a channel as a note in the spool, restored by the next process; and alarm changes as events."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

from core.batch import Event
from ingest.alarms.channel import AlarmChange, AlarmChannel, LimitMonitor
from ingest.alarms.limits import Limit
from ingest.alarms.state import Alarm

LATE_US = 60_000_000  # a change that becomes known after more than this is marked late
_PREFIX = "alarm:"
_FIELDS = tuple(field.name for field in fields(Alarm))  # asdict() copies deeply, which costs more than all the rest


def note_name(channel_id: int) -> str:
    """The name of a channel's note."""
    return f"{_PREFIX}{channel_id}"


def channel_of(note: str) -> int | None:
    """The channel of an alarm note; None: not an alarm note."""
    return int(note.removeprefix(_PREFIX)) if note.startswith(_PREFIX) else None


def encode(channel: AlarmChannel) -> str | None:
    """The state of a channel as JSON. None: the initial state, no note needed.

    A normal alarm is dropped with the first sample after its last revision: the next revision is higher anyway.
    """
    last = max((monitor.alarm.revision for monitor in channel.monitors), default=0)
    if channel.time > last and all(
        monitor.pending is None and monitor.alarm.state == "normal" for monitor in channel.monitors
    ):
        return None
    monitors = {
        monitor.limit.name: {
            "pending": monitor.pending,
            "active": monitor.active,
            "alarm": {name: getattr(monitor.alarm, name) for name in _FIELDS},
        }
        for monitor in channel.monitors
        if monitor.alarm.revision or monitor.pending is not None
    }
    if not monitors:
        return None
    value = None if math.isnan(channel.value) else channel.value
    return json.dumps({"time": channel.time, "value": value, "watches": monitors})


def decode(note: str, channel_id: int, limits: tuple[Limit, ...], now: int) -> tuple[AlarmChannel, list[AlarmChange]]:
    """Restore a channel; also return changes that end alarms whose limits were removed, at ``now`` (µs)."""
    state: dict[str, Any] = json.loads(note)
    channel = AlarmChannel(channel_id, limits, now)
    channel.time = state["time"]
    channel.value = math.nan if state["value"] is None else state["value"]
    names = {monitor.limit.name: monitor for monitor in channel.monitors}
    ended: list[AlarmChange] = []
    for name, saved in state["watches"].items():
        alarm = Alarm(**saved["alarm"])
        if name in names:
            monitor = names[name]
            monitor.pending, monitor.active, monitor.alarm = saved["pending"], saved["active"], alarm
        elif alarm.state != "normal":
            removed = LimitMonitor(Limit(name, 0.0, 0.0, 0, 0, "low", False), saved["active"], None, alarm)
            ended += channel.remove(removed, now)
    return channel, ended


def to_event(change: AlarmChange) -> Event:
    """The event of type ``alarm``. It depends only on samples and commands, so a replay has the same id."""
    after = change.after
    detail: dict[str, Any] = {
        "limit": change.limit.name,
        "action": change.action,
        "previous": change.before.state,
        "state": after.state,
        "active": after.active,
        "since": after.since,
        "value": after.value,
        "threshold": change.limit.threshold,
        "priority": change.limit.priority,
        "revision": after.revision,
    }
    for name in ("acknowledged_by", "acknowledged_at", "shelved_until", "who", "why"):
        if (value := getattr(after, name)) is not None:
            detail[name] = value
    if change.received_at - change.at > LATE_US:
        detail["late"] = True
    return Event("alarm", change.at, change.channel_id, text=after.state, detail=detail)
