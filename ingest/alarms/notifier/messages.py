"""Build messages from queued notices: one per alarm, or a single one during an alarm flood (ISA-18.2)."""

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

_MAX_LISTED = 20  # alarms of a flood that its message names
_CRITICAL_SECONDS = 60.0  # a flood holds back alarms of the highest priority no longer than this
_CONDITIONS = {
    "lolo": "below its low-low limit",
    "lo": "below its low limit",
    "hi": "above its high limit",
    "hihi": "above its high-high limit",
    "rate": "exceeds its rate-of-change limit",
    "stale": "is stale",
    "bad": "has bad quality",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """An alarm event that may need a notification: an alarm was raised or returned to normal."""

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
    threshold: float | None
    late: bool  # it became known long after it happened
    state_now: str  # of the alarm, in the database
    message: str | None = None  # of a condition of a server


@dataclass(frozen=True, slots=True)
class Message:
    """A message and its notices."""

    kind: Kind
    subject: str
    body: Mapping[str, Any]
    notices: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """Messages to send and notices to discard; all other notices stay queued."""

    messages: list[Message] = field(default_factory=list)
    unsent: dict[str, list[Notice]] = field(default_factory=dict)  # why → notices


def decide(
    waiting: Sequence[Notice], sent: int, flood_at: datetime | None, now: datetime, plant: str, options: NotifyOptions
) -> Decision:
    """Messages for ``waiting``, in order. ``sent``: number of alarms notified within the window before ``now``.

    More than ``options.flood`` within ``options.flood_window`` become one message with the first-out alarm; later ones
    are held until the window ends, or for one minute if one is critical, and then become one message, too, if there
    are still too many. Returns to normal are not sent during a flood.
    """
    decision = Decision()
    to_send: list[Notice] = []
    for notice in waiting:
        reason = _reason_not_sent(notice, now, options)
        if reason is None:
            to_send.append(notice)
        else:
            decision.unsent.setdefault(reason, []).append(notice)
    alarms = [notice for notice in to_send if notice.kind == "alarm"]
    critical = any(notice.priority == "critical" for notice in alarms)
    hold = min(options.flood_window, _CRITICAL_SECONDS) if critical else options.flood_window
    if flood_at is not None and (now - flood_at).total_seconds() < hold:
        return decision
    if sent + max(len(alarms), len(to_send) - len(alarms)) <= options.flood:
        decision.messages.extend(_single(notice, plant) for notice in to_send)
        return decision
    if alarms:
        decision.messages.append(_flood(alarms, plant))
    if len(alarms) < len(to_send):
        decision.unsent["return, in a flood"] = [notice for notice in to_send if notice.kind == "return"]
    return decision


def _reason_not_sent(notice: Notice, now: datetime, options: NotifyOptions) -> str | None:
    """Why a notice is not sent; None: it is sent."""
    if (now - notice.queued_at).total_seconds() > options.max_age:
        return "too old"
    if PRIORITIES.index(notice.priority) > PRIORITIES.index(options.min_priority):
        return "priority"
    if notice.kind == "return" and not options.returns:
        return "returns are not sent"
    if notice.state_now in INHIBITED:
        return notice.state_now
    if notice.late and notice.state_now not in ("unacknowledged_active", "acknowledged_active"):
        return "late, and already over"
    return None


def _single(notice: Notice, plant: str) -> Message:
    if notice.kind == "return":
        subject = f"[{plant}] returned to normal: {notice.channel} ({notice.limit})"
        return Message("return", subject, {"plant": plant, "alarm": _alarm_body(notice)}, (notice,))
    subject = f"[{plant}] {notice.priority}: {notice.channel} {_occurrence(notice)}"
    return Message("alarm", subject, {"plant": plant, "alarm": _alarm_body(notice)}, (notice,))


def _occurrence(notice: Notice) -> str:
    """What happened, as a verb that follows the channel; of a condition, its name and message."""
    if notice.message is None:
        return _CONDITIONS[notice.limit]
    return f"{notice.limit}: {notice.message}" if notice.message else notice.limit


def _flood(alarms: Sequence[Notice], plant: str) -> Message:
    first = min(alarms, key=lambda notice: notice.time)
    units = Counter(notice.plant_unit for notice in alarms)
    priorities = Counter(notice.priority for notice in alarms)
    by_time = sorted(alarms, key=lambda notice: notice.time)
    body = {
        "plant": plant,
        "alarms": len(alarms),
        "first_out": _alarm_body(first),
        "by_unit": dict(units.most_common()),
        "by_priority": {priority: priorities[priority] for priority in PRIORITIES if priorities[priority]},
        "from": _iso(by_time[0].time),
        "to": _iso(by_time[-1].time),
        "named": [_alarm_body(notice) for notice in by_time[:_MAX_LISTED]],
    }
    number = "1 alarm" if len(alarms) == 1 else f"{len(alarms)} alarms"
    subject = f"[{plant}] alarm flood: {number}, first-out: {first.channel} {_occurrence(first)}"
    return Message("flood", subject, body, tuple(alarms))


def _alarm_body(notice: Notice) -> dict[str, Any]:
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
    """The plain text of a stored message."""
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
            f"{body['alarms']} alarms from {body['from']} to {body['to']}. First-out alarm:",
            *_lines(body["first_out"]),
            "",
            "By plant unit:",
            *units,
            "By priority:",
            *priorities,
            "In chronological order:",
            *named,
            *([f"  and {more} more"] if more > 0 else []),
            "",
        )
    )


def _lines(alarm: Mapping[str, Any]) -> list[str]:
    value = "none" if alarm["value"] is None else f"{alarm['value']:g} {alarm['unit']}".rstrip()
    return [
        f"  channel   {alarm['channel']}",
        f"  limit     {alarm['limit']}" + ("" if alarm["threshold"] is None else f" ({alarm['threshold']:g})"),
        f"  value     {value}",
        f"  time      {alarm['time']}",
        f"  priority  {alarm['priority']}",
    ]
