"""Which messages are made of what waits: one an alarm, and one for all where there are too many (ISA-18.2: a flood)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from ingest.alarms.limits import PRIORITIES
from ingest.alarms.state import INHIBITED
from ingest.config.model import NotifyOptions

Kind: TypeAlias = Literal["alarm", "return", "flood"]

_NAMED = 20  # alarms of a flood that its message names
_CRITICAL_SECONDS = 60.0  # a flood holds back alarms of the highest priority no longer than this
_WORDS = {
    "lolo": "below its low-low limit",
    "lo": "below its low limit",
    "hi": "above its high limit",
    "hihi": "above its high-high limit",
    "rate": "changes too fast",
    "stale": "is silent",
    "bad": "has bad quality",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """What people may have to be told: an alarm event that begins or ends an alarm."""

    time: datetime
    event_id: int
    queued_at: datetime
    kind: Literal["alarm", "return"]
    channel: str
    plant_unit: str
    unit: str
    limit: str
    priority: str
    value: float | None
    threshold: float
    late: bool  # it became known long after it happened
    state_now: str  # of the alarm, in the database


@dataclass(frozen=True, slots=True)
class Message:
    """One message, and what it tells of."""

    kind: Kind
    subject: str
    body: Mapping[str, Any]
    notices: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """What becomes of what waits; what is in neither waits on."""

    messages: list[Message] = field(default_factory=list)
    unsent: dict[str, list[Notice]] = field(default_factory=dict)  # why → notices


def decide(
    waiting: Sequence[Notice], sent: int, flood_at: datetime | None, now: datetime, plant: str, options: NotifyOptions
) -> Decided:
    """Messages for ``waiting``, which is in order. ``sent`` alarms were told of within the window before ``now``.

    More than ``options.flood`` within ``options.flood_window`` are one message, which names the first-out; what comes
    behind it is held until the window is over, or a minute where one is critical, and is then one message too, if they
    are still too many. Returns to normal are not told of in a flood.
    """
    decided = Decided()
    tell: list[Notice] = []
    for notice in waiting:
        why = _why_not(notice, now, options)
        if why is None:
            tell.append(notice)
        else:
            decided.unsent.setdefault(why, []).append(notice)
    alarms = [notice for notice in tell if notice.kind == "alarm"]
    critical = any(notice.priority == "critical" for notice in alarms)
    hold = min(options.flood_window, _CRITICAL_SECONDS) if critical else options.flood_window
    if flood_at is not None and (now - flood_at).total_seconds() < hold:
        return decided
    if sent + max(len(alarms), len(tell) - len(alarms)) <= options.flood:
        decided.messages.extend(_single(notice, plant) for notice in tell)
        return decided
    if alarms:
        decided.messages.append(_flood(alarms, plant))
    if len(alarms) < len(tell):
        decided.unsent["return, in a flood"] = [notice for notice in tell if notice.kind == "return"]
    return decided


def _why_not(notice: Notice, now: datetime, options: NotifyOptions) -> str | None:
    """Why nobody is told; None: somebody is."""
    if (now - notice.queued_at).total_seconds() > options.max_age:
        return "too old"
    if PRIORITIES.index(notice.priority) > PRIORITIES.index(options.min_priority):
        return "priority"
    if notice.kind == "return" and not options.returns:
        return "returns are not sent"
    if notice.state_now in INHIBITED:
        return notice.state_now
    if notice.late and notice.state_now not in ("unacknowledged_active", "acknowledged_active"):
        return "late, and over"
    return None


def _single(notice: Notice, plant: str) -> Message:
    if notice.kind == "return":
        subject = f"[{plant}] normal again: {notice.channel} ({notice.limit})"
        return Message("return", subject, {"plant": plant, "alarm": _said(notice)}, (notice,))
    subject = f"[{plant}] {notice.priority}: {notice.channel} {_WORDS[notice.limit]}"
    return Message("alarm", subject, {"plant": plant, "alarm": _said(notice)}, (notice,))


def _flood(alarms: Sequence[Notice], plant: str) -> Message:
    first = min(alarms, key=lambda notice: notice.time)
    units = Counter(notice.plant_unit for notice in alarms)
    priorities = Counter(notice.priority for notice in alarms)
    by_time = sorted(alarms, key=lambda notice: notice.time)
    body = {
        "plant": plant,
        "alarms": len(alarms),
        "first_out": _said(first),
        "by_unit": dict(units.most_common()),
        "by_priority": {priority: priorities[priority] for priority in PRIORITIES if priorities[priority]},
        "from": _iso(by_time[0].time),
        "to": _iso(by_time[-1].time),
        "named": [_said(notice) for notice in by_time[:_NAMED]],
    }
    subject = f"[{plant}] alarm flood: {len(alarms)} alarms, the first: {first.channel} {_WORDS[first.limit]}"
    return Message("flood", subject, body, tuple(alarms))


def _said(notice: Notice) -> dict[str, Any]:
    return {
        "channel": notice.channel,
        "limit": notice.limit,
        "priority": notice.priority,
        "time": _iso(notice.time),
        "value": notice.value,
        "threshold": notice.threshold,
        "unit": notice.unit,
        "plant_unit": notice.plant_unit,
        "event_id": str(notice.event_id),
        **({"late": True} if notice.late else {}),
    }


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def text_of(kind: str, subject: str, body: Mapping[str, Any]) -> str:
    """A message's body for people, from what is kept of it."""
    if kind != "flood":
        return "\n".join((subject, "", *_lines(body["alarm"]), ""))
    units = [f"  {n:>6}  {unit or '(no unit)'}" for unit, n in body["by_unit"].items()]
    priorities = [f"  {n:>6}  {priority}" for priority, n in body["by_priority"].items()]
    named = [f"  {a['time']}  {a['priority']:<8}  {a['channel']}  {a['limit']}" for a in body["named"]]
    more = body["alarms"] - len(named)
    return "\n".join(
        (
            subject,
            "",
            f"{body['alarms']} alarms from {body['from']} to {body['to']}. The first of them:",
            *_lines(body["first_out"]),
            "",
            "By plant unit:",
            *units,
            "By priority:",
            *priorities,
            "In order of time:",
            *named,
            *([f"  and {more} more"] if more > 0 else []),
            "",
        )
    )


def _lines(alarm: Mapping[str, Any]) -> list[str]:
    value = "no number" if alarm["value"] is None else f"{alarm['value']:g} {alarm['unit']}".rstrip()
    return [
        f"  channel   {alarm['channel']}",
        f"  limit     {alarm['limit']} ({alarm['threshold']:g})",
        f"  value     {value}",
        f"  time      {alarm['time']}",
        f"  priority  {alarm['priority']}",
    ]
