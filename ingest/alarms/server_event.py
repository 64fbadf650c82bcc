"""An event of an OPC UA server, and the state that it gives a condition (OPC 10000-5, 6.4.2; OPC 10000-9, 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from core.config.sources import AlarmPriority
from ingest.alarms.state import State

Shelving: TypeAlias = Literal["", "timed", "one-shot"]
_BANDS: tuple[tuple[int, AlarmPriority], ...] = ((801, "critical"), (601, "high"), (401, "medium"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """The fields of an event. None: the event has no such field, or one of another type.

    Node ids are texts with the namespace's URI, so they stay the same if the server's namespaces get other indices.
    """

    event_id: str | None = None  # hexadecimal
    event_type: str = ""
    source_node: str | None = None
    source_name: str = ""
    time: int | None = None  # µs
    receive_time: int | None = None  # µs, when the server received it
    message: str = ""
    severity: int = 1
    condition_id: str | None = None
    condition_name: str | None = None
    branch_id: str | None = None
    retain: bool | None = None
    enabled: bool | None = None
    active: bool | None = None
    active_since: int | None = None  # µs, of the transition to or from active
    acked: bool | None = None
    confirmed: bool | None = None
    suppressed: bool | None = None
    out_of_service: bool | None = None
    shelving: Shelving = ""
    quality: int | None = None  # status code
    comment: str = ""
    user: str = ""

    @property
    def key(self) -> str | None:
        """Identity of a server's condition: ConditionId, and BranchId of an earlier state. None: no condition.

        A condition that is neither an alarm nor acknowledgeable, such as a dialog, is not in the alarm list.
        """
        if self.condition_id is None or (self.active is None and self.acked is None):
            return None
        return self.condition_id if self.branch_id is None else f"{self.condition_id} branch {self.branch_id}"

    @property
    def is_active(self) -> bool:
        """Return whether it is active. A branch is not: it is an earlier state that waits for acknowledgement.

        A condition that is only acknowledgeable is active while the server retains it.
        """
        if self.retain is False or self.branch_id is not None:
            return False
        return bool(self.retain) if self.active is None else self.active

    @property
    def state(self) -> State:
        """State by ISA-18.2. A condition that the server does not retain is normal (OPC 10000-9, 5.5.2)."""
        if self.out_of_service:
            return "out_of_service"
        if self.suppressed:
            return "suppressed_by_design"
        if self.shelving:
            return "shelved"
        if self.retain is False:
            return "normal"
        if self.acked is not False:
            return "acknowledged_active" if self.is_active else "normal"
        return "unacknowledged_active" if self.is_active else "return_to_normal_unacknowledged"

    def detail(self) -> dict[str, Any]:
        """The fields that the event has, for ``plant.event``."""
        values = {
            "event_id": self.event_id,
            "event_type": self.event_type or None,
            "source_node": self.source_node,
            "source_name": self.source_name or None,
            "receive_time": self.receive_time,
            "message": self.message or None,
            "severity": self.severity,
            "condition_id": self.condition_id,
            "condition_name": self.condition_name,
            "branch_id": self.branch_id,
            "retain": self.retain,
            "enabled": self.enabled,
            "active": self.active,
            "acked": self.acked,
            "confirmed": self.confirmed,
            "comment": self.comment or None,
            "user": self.user or None,
        }
        return {name: value for name, value in values.items() if value is not None}


def priority_of(severity: int) -> AlarmPriority:
    """The priority of a severity from 1 to 1000: critical from 801, high from 601, medium from 401, else low."""
    return next((priority for lowest, priority in _BANDS if severity >= lowest), "low")
