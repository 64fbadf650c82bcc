"""Build messages from queued notices: one per alarm, or a single one during an alarm flood (ISA-18.2).

An alarm that chatters is summed up: one message for all its notices, and the next one after the flood window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from core.config.model import NotifyOptions
from core.config.sources import PRIORITIES
from core.formatting import threshold_text
from ingest.alarms.state import INHIBITED

Kind: TypeAlias = Literal["alarm", "return", "flood"]

_MAX_LISTED = 20  # alarms in the message about a flood
_CRITICAL_SECONDS = 60.0  # for which a flood holds back alarms of the highest priority
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
    late: bool  # it became known more than a minute after it happened
    state_now: str  # current state of the alarm in the database
    message: str | None = None  # text of a server's condition; None: the alarm of a limit
    alarm: str = ""  # key of the alarm
    chatters: bool = False
    notified_at: datetime | None = None  # the last message of the alarm within the flood window
    disabled: bool = False  # notifications were disabled when it was queued


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
    unsent: dict[str, list[Notice]] = field(default_factory=dict)  # reason → notices


def decide(
    waiting: Sequence[Notice], sent: int, flood_at: datetime | None, now: datetime, plant: str, options: NotifyOptions
) -> Decision:
    """Messages for ``waiting``, in order. ``sent``: number of alarms notified within the window before ``now``.

    More than ``options.flood`` alarms within ``options.flood_window`` become one message with the first-out alarm;
    later ones are held until the window ends, or for one minute if one is critical, and then become one message, too,
    if there are still too many. Returns to normal are not sent during a flood. An alarm that chatters counts once, and
    is held in the same way after each message about it; its returns are not sent.
    """
    decision = Decision()
    alarms: dict[str, list[Notice]] = {}  # by alarm if it chatters, else by event
    returns: list[Notice] = []
    for notice in waiting:
        reason = _reason_not_sent(notice, now, options)
        if reason is not None:
            decision.unsent.setdefault(reason, []).append(notice)
        elif notice.kind == "return":
            returns.append(notice)
        elif not (notice.chatters and notice.notified_at and _is_deferred(notice.notified_at, [notice], now, options)):
            alarms.setdefault(notice.alarm if notice.chatters else f"event {notice.event_id}", []).append(notice)
    all_alarms = [notice for notices in alarms.values() for notice in notices]
    if flood_at is not None and _is_deferred(flood_at, all_alarms, now, options):
        return decision
    if sent + max(len(alarms), len(returns)) <= options.flood:
        single = sorted([*alarms.values(), *([notice] for notice in returns)], key=_order)
        decision.messages.extend(_single(notices, plant) for notices in single)
        return decision
    if alarms:
        decision.messages.append(_flood([*alarms.values()], plant))
    if returns:
        decision.unsent["return, in a flood"] = returns
    return decision


def _order(notices: Sequence[Notice]) -> tuple[datetime, datetime, int]:
    return notices[0].queued_at, notices[0].time, notices[0].event_id


def _is_deferred(since: datetime, notices: Sequence[Notice], now: datetime, options: NotifyOptions) -> bool:
    """Return whether ``notices`` wait because of the message that was created at ``since``."""
    critical = any(notice.priority == "critical" for notice in notices)
    hold = min(options.flood_window, _CRITICAL_SECONDS) if critical else options.flood_window
    return (now - since).total_seconds() < hold


def _reason_not_sent(notice: Notice, now: datetime, options: NotifyOptions) -> str | None:
    """Reason why a notice is not sent; None: it is sent."""
    active = notice.state_now in ("unacknowledged_active", "acknowledged_active")
    reasons = {
        "notifications were disabled": notice.disabled,
        "too old": (now - notice.queued_at).total_seconds() > options.max_age,
        "priority": PRIORITIES.index(notice.priority) > PRIORITIES.index(options.min_priority),
        "returns are not sent": notice.kind == "return" and not options.returns,
        "return, chattering": notice.kind == "return" and notice.chatters,
        notice.state_now: notice.state_now in INHIBITED,
        "late, and already over": notice.late and not active,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _single(notices: Sequence[Notice], plant: str) -> Message:
    """A message about an alarm; several notices: it chatters."""
    newest = notices[-1]
    if newest.kind == "return":
        subject = f"[{plant}] returned to normal: {newest.channel} ({newest.limit})"
        return Message("return", subject, {"plant": plant, "alarm": _alarm_body(newest)}, (newest,))
    times = f" × {len(notices)}" if len(notices) > 1 else ""
    subject = f"[{plant}] {newest.priority}: {newest.channel} {_occurrence(newest)}{times}"
    return Message("alarm", subject, {"plant": plant, "alarm": _alarm_body(*notices)}, tuple(notices))


def _occurrence(notice: Notice) -> str:
    """Occurrence as a verb that follows the channel; of a condition, its name and message."""
    if notice.message is None:
        return _CONDITIONS[notice.limit]
    return f"{notice.limit}: {notice.message}" if notice.message else notice.limit


def _flood(alarms: Sequence[Sequence[Notice]], plant: str) -> Message:
    """A message about many alarms, each with its notices."""
    by_time = sorted(alarms, key=lambda notices: notices[0].time)
    first = by_time[0][0]
    units = Counter(notices[0].plant_unit for notices in alarms)
    priorities = Counter(notices[0].priority for notices in alarms)
    body = {
        "plant": plant,
        "alarms": len(alarms),
        "first_out": _alarm_body(first),
        "by_unit": dict(units.most_common()),
        "by_priority": {priority: priorities[priority] for priority in PRIORITIES if priorities[priority]},
        "from": _iso(first.time),
        "to": _iso(max(notices[-1].time for notices in alarms)),
        "named": [_alarm_body(*notices) for notices in by_time[:_MAX_LISTED]],
    }
    number = "1 alarm" if len(alarms) == 1 else f"{len(alarms)} alarms"
    subject = f"[{plant}] alarm flood: {number}, first-out: {first.channel} {_occurrence(first)}"
    return Message("flood", subject, body, tuple(notice for notices in alarms for notice in notices))


def _alarm_body(*notices: Notice) -> dict[str, Any]:
    """The newest notice of an alarm; of one that chatters, also their number, the first one, and the state now."""
    notice = notices[-1]
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
        **(_repeated(notices) if len(notices) > 1 else {}),
    }


def _repeated(notices: Sequence[Notice]) -> dict[str, Any]:
    return {"times": len(notices), "first": _iso(notices[0].time), "state": notices[-1].state_now}


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def text_of(kind: str, subject: str, body: Mapping[str, Any]) -> str:
    """The plain text of a stored message."""
    if kind != "flood":
        return "\n".join((subject, "", *_lines(body["alarm"]), ""))
    units = [f"  {n:>6}  {unit or '(no unit)'}" for unit, n in body["by_unit"].items()]
    priorities = [f"  {n:>6}  {priority}" for priority, n in body["by_priority"].items()]
    named = [f"  {a['time']}  {a['priority']:<8}  {a['channel']}  {a['limit']}{_times(a)}" for a in body["named"]]
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
    threshold = threshold_text(alarm["limit"], alarm["threshold"], alarm["unit"])
    return [
        f"  channel   {alarm['channel']}",
        f"  limit     {alarm['limit']}" + (f" ({threshold})" if threshold else ""),
        f"  value     {value}",
        f"  time      {alarm['time']}",
        f"  priority  {alarm['priority']}",
        *([f"  raised    {alarm['times']} times since {alarm['first']}"] if "times" in alarm else []),
        *([f"  now       {alarm['state'].replace('_', ' ')}"] if "times" in alarm else []),
    ]


def _times(alarm: Mapping[str, Any]) -> str:
    return f" × {alarm['times']}" if "times" in alarm else ""
