"""Alarm states and their transitions, as pure functions.

ISA-18.2-2016, 5.3 (alarm state transition diagram). The condition is evaluated elsewhere and reported here (``raised``,
``returned``); the rest are actions of operators and plant logic. If the condition changes while an alarm is
shelved, suppressed or out of service, the state stays and only ``active`` follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from core.config.sources import PRIORITIES, AlarmPriority
from core.errors import OperationError

State: TypeAlias = Literal[
    "normal",
    "unacknowledged_active",
    "acknowledged_active",
    "return_to_normal_unacknowledged",
    "latched_unacknowledged",
    "shelved",
    "suppressed_by_design",
    "out_of_service",
]
Inhibition: TypeAlias = Literal["shelved", "suppressed_by_design", "out_of_service"]
INHIBITED = ("shelved", "suppressed_by_design", "out_of_service")
UNACKNOWLEDGED = ("unacknowledged_active", "return_to_normal_unacknowledged", "latched_unacknowledged")


@dataclass(frozen=True, slots=True)
class Alarm:
    """The alarm of one limit of one channel."""

    state: State = "normal"
    active: bool = False  # the condition is beyond the limit, whatever the state
    since: int = 0  # µs, of the state; an acknowledgement of an active alarm does not change it
    value: float | None = None  # at the last change of ``active``; None: not a number
    revision: int = 0  # grows with each change: of two records of an alarm, the one with the higher revision is newer
    acknowledged_by: str | None = None
    acknowledged_at: int | None = None  # µs
    shelved_until: int | None = None  # µs
    who: str | None = None  # who performed the last action
    why: str | None = None  # reason for shelving, suppression or being out of service


def summary(alarms: Iterable[tuple[AlarmPriority, bool, State]]) -> dict[str, int]:
    """Number of active alarms by priority, of unacknowledged and of inhibited ones, of (priority, active, state)."""
    numbers = Counter[str](dict.fromkeys((*PRIORITIES, "unacknowledged", "inhibited"), 0))
    for priority, active, state in alarms:
        numbers[priority] += active and state not in INHIBITED
        numbers["unacknowledged"] += state in UNACKNOWLEDGED
        numbers["inhibited"] += state in INHIBITED
    return dict(numbers)


def _changed(alarm: Alarm, at: int, **fields: object) -> Alarm:
    # Clocks may differ: a later change has a higher revision in any case.
    changed: Alarm = replace(alarm, revision=max(alarm.revision + 1, at), **fields)  # type: ignore[arg-type]
    return changed if changed.state == alarm.state else replace(changed, since=at)


def raised(alarm: Alarm, at: int, value: float | None) -> Alarm:
    """The alarm after its condition went beyond the limit at ``at`` (µs)."""
    if alarm.state in INHIBITED:
        return _changed(alarm, at, active=True, value=value)
    unacknowledged = {"acknowledged_by": None, "acknowledged_at": None, "who": None, "why": None}
    return _changed(alarm, at, active=True, value=value, state="unacknowledged_active", **unacknowledged)


def returned(alarm: Alarm, at: int, value: float | None, latch: bool) -> Alarm:
    """The alarm after its condition returned to normal. A latched alarm waits for another acknowledgement."""
    if alarm.state in INHIBITED:
        return _changed(alarm, at, active=False, value=value)
    state: State
    if latch:
        state = "latched_unacknowledged"
    elif alarm.state == "acknowledged_active":
        state = "normal"
    else:
        state = "return_to_normal_unacknowledged"
    return _changed(alarm, at, active=False, value=value, state=state)


def acknowledged(alarm: Alarm, at: int, who: str) -> Alarm:
    """The alarm after its acknowledgement. Raises OperationError if there is nothing to acknowledge."""
    if alarm.state not in UNACKNOWLEDGED:
        raise OperationError(f"nothing to acknowledge: the alarm is {alarm.state}")
    acknowledgement = {"acknowledged_by": who, "acknowledged_at": at, "who": who}
    if not alarm.active:
        return _changed(alarm, at, state="normal", **acknowledgement)
    return replace(_changed(alarm, at, state="acknowledged_active", **acknowledgement), since=alarm.since)


def inhibited(alarm: Alarm, at: int, how: Inhibition, who: str, why: str, until: int | None = None) -> Alarm:
    """The alarm after it was shelved (until ``until``, µs), suppressed by design, or taken out of service."""
    if (how == "shelved") != (until is not None):
        raise ValueError("a shelved alarm has an end time, any other has none")
    return _changed(alarm, at, state=how, who=who, why=why, shelved_until=until)


def released(alarm: Alarm, at: int, how: Inhibition, who: str) -> Alarm:
    """The alarm after :func:`inhibited` ended; active, it is a new one. Raises OperationError in another state."""
    if alarm.state != how:
        raise OperationError(f"the alarm is not {how}: it is {alarm.state}")
    state = "unacknowledged_active" if alarm.active else "normal"
    return _changed(alarm, at, state=state, who=who, why=None, shelved_until=None)


def removed(alarm: Alarm, at: int) -> Alarm:
    """The alarm after its limit was removed from the configuration."""
    return _changed(alarm, at, state="normal", active=False, why="no longer in the tag list", shelved_until=None)
