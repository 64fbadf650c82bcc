"""A channel's alarms as a note in the spool: what the next process goes on with, and as the events of its changes."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

from ingest.alarms.channel import Change, Channel, Watch
from ingest.alarms.limits import Limit
from ingest.alarms.state import Alarm
from ingest.batch import Event

LATE_US = 60_000_000  # a change that becomes known so much later is marked: it is for the record
_PREFIX = "alarm:"
_FIELDS = tuple(field.name for field in fields(Alarm))  # asdict() copies deeply, which costs more than all the rest


def note_of(channel_id: int) -> str:
    """The name of a channel's note."""
    return f"{_PREFIX}{channel_id}"


def channel_of(note: str) -> int | None:
    """The channel whose note this is; None: another note."""
    return int(note.removeprefix(_PREFIX)) if note.startswith(_PREFIX) else None


def write(channel: Channel) -> str | None:
    """All that must be known of a channel. None: nothing, it is as one of which nothing was ever said.

    A normal alarm is forgotten with the first sample behind its last revision: the next one is higher by itself.
    """
    last = max((watch.alarm.revision for watch in channel.watches), default=0)
    if channel.time > last and all(
        watch.pending is None and watch.alarm.state == "normal" for watch in channel.watches
    ):
        return None
    watches = {
        watch.limit.name: {
            "pending": watch.pending,
            "active": watch.active,
            "alarm": {name: getattr(watch.alarm, name) for name in _FIELDS},
        }
        for watch in channel.watches
        if watch.alarm.revision or watch.pending is not None
    }
    if not watches:
        return None
    value = None if math.isnan(channel.value) else channel.value
    return json.dumps({"time": channel.time, "value": value, "watches": watches})


def read(note: str, channel_id: int, limits: tuple[Limit, ...], now: int) -> tuple[Channel, list[Change]]:
    """The channel as it was; and the alarms that it has no limits for any more, which end ``now`` (µs)."""
    said: dict[str, Any] = json.loads(note)
    channel = Channel(channel_id, limits, now)
    channel.time = said["time"]
    channel.value = math.nan if said["value"] is None else said["value"]
    names = {watch.limit.name: watch for watch in channel.watches}
    ended: list[Change] = []
    for name, kept in said["watches"].items():
        alarm = Alarm(**kept["alarm"])
        if name in names:
            watch = names[name]
            watch.pending, watch.active, watch.alarm = kept["pending"], kept["active"], alarm
        elif alarm.state != "normal":
            gone = Watch(Limit(name, 0.0, 0.0, 0, 0, "low", False), kept["active"], None, alarm)
            ended += channel.remove(gone, now)
    return channel, ended


def event_of(change: Change) -> Event:
    """The event of type ``alarm``. All of it follows from samples and commands, so a replay has the same id."""
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
        if (told := getattr(after, name)) is not None:
            detail[name] = told
    if change.received_at - change.at > LATE_US:
        detail["late"] = True
    return Event("alarm", change.at, change.channel_id, text=after.state, detail=detail)
