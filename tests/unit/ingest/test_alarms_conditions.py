"""Conditions of a server in the alarm list: what each event changes, whatever is repeated, late or missing."""

from __future__ import annotations

from typing import Any

import pytest

from core.batch import Event
from core.errors import DecodeError
from core.opcua.namespaces import Namespaces
from ingest.alarms.conditions import Conditions
from ingest.alarms.server_event import ServerEvent, priority_of
from ingest.event_rows import event_id
from ingest.opcua.events.event_requests import decode

T0 = 1_800_000_000_000_000
ON: dict[str, Any] = {"active": True, "acked": False, "retain": True}
SEEN: dict[str, Any] = {"active": True, "acked": True, "retain": True}
OFF: dict[str, Any] = {"active": False, "acked": False, "retain": True}
GONE: dict[str, Any] = {"active": False, "acked": True, "retain": False}


class Server:
    """Sends events of one condition, and keeps the notes."""

    def __init__(self, notes: dict[str, str] | None = None) -> None:
        self.notes = notes or {}
        self.conditions = Conditions("ua", 1, self.notes)
        self.rows: list[Event] = []

    def send(self, number: int, key: str = "s=c", **state: Any) -> str | None:
        """The type of row, or the action of an alarm; None: no row."""
        event = ServerEvent(
            event_id=f"{number:04x}", time=T0 + number, condition_id=key, condition_name="c", severity=700, **state
        )
        row, notes = self.conditions.record(event, None, T0 + number)
        self._note(notes)
        self.rows += [] if row is None else [row]
        return None if row is None else row.detail.get("action", row.type)

    def refreshed(self, complete: bool = True) -> list[str]:
        rows, notes = self.conditions.end_refresh(T0 + 1000, complete=complete)
        self._note(notes)
        return [row.detail["action"] for row in rows]

    def _note(self, notes: Any) -> None:
        for name, value in notes.items():
            if value is None:
                self.notes.pop(name, None)
            else:
                self.notes[name] = value

    @property
    def states(self) -> list[str]:
        assert Conditions("ua", 1, self.notes).listed() == self.conditions.listed(), "as after a restart"
        return [condition.state for condition in self.conditions.listed()]


def test_states_follow_the_events() -> None:
    server = Server()
    assert server.send(1, **GONE) == "server_event"
    assert (server.send(2, **ON), server.states) == ("raised", ["unacknowledged_active"])
    assert server.send(3, **ON) == "server_event"  # another severity or message
    assert (server.send(4, **SEEN, user="panel", comment="ok"), server.states) == (
        "acknowledged",
        ["acknowledged_active"],
    )
    [alarm] = server.conditions.listed()
    assert (alarm.acknowledged_by, alarm.since, alarm.priority) == ("panel: ok", T0 + 2, "high")
    assert (server.send(5, **ON), server.states) == ("raised", ["unacknowledged_active"])
    assert (server.send(6, **OFF), server.states) == ("returned", ["return_to_normal_unacknowledged"])
    assert (server.send(7, **GONE), server.states) == ("acknowledged", [])
    assert server.notes == {}
    revisions = [row.detail["revision"] for row in server.rows if row.type == "alarm"]
    assert revisions == sorted(set(revisions))


@pytest.mark.parametrize(
    ("inhibition", "state", "actions"),
    [
        ({"shelving": "timed"}, "shelved", ("shelved", "unshelved")),
        ({"suppressed": True}, "suppressed_by_design", ("suppressed", "unsuppressed")),
        ({"out_of_service": True}, "out_of_service", ("out of service", "in service")),
    ],
)
def test_inhibited_on_the_server(inhibition: dict[str, Any], state: str, actions: tuple[str, str]) -> None:
    server = Server()
    server.send(1, **ON)
    assert (server.send(2, **ON, **inhibition), server.states) == (actions[0], [state])
    assert (server.send(3, **ON), server.states) == (actions[1], ["unacknowledged_active"])


def test_repeated_and_late_events_change_nothing() -> None:
    server = Server()
    server.send(2, **ON)
    assert server.send(2, **ON) is None
    server.send(4, **GONE)
    assert server.send(3, **ON) == "server_event"
    assert server.states == []
    first, again = Server(), Server()
    first.send(1, **GONE)
    again.send(1, **GONE, comment="of a member that knows more")
    assert [event_id(1, row) for row in first.rows] == [event_id(1, row) for row in again.rows]


def test_branch_is_not_raised_again() -> None:
    """An earlier state that waits for acknowledgement; the condition itself has returned."""
    server = Server()
    server.send(1, **ON)
    server.send(2, **ON, branch_id="g=1")
    server.send(3, **GONE)
    assert server.states == ["return_to_normal_unacknowledged"]
    assert [row.detail["state"] for row in server.rows].count("unacknowledged_active") == 1


def test_refresh_ends_what_it_does_not_name() -> None:
    server = Server()
    for key in ("s=a", "s=b", "s=c"):
        server.send(ord(key[-1]), key, **ON)
    server.send(200, "s=c", **OFF)
    server.conditions.begin_refresh()
    server.send(ord("a"), "s=a", **ON)
    assert server.refreshed(complete=False) == []
    server.conditions.begin_refresh()
    server.send(ord("a"), "s=a", **ON)
    assert server.refreshed() == ["returned", "removed"]
    assert [condition.key for condition in server.conditions.listed()] == ["s=a"]
    assert server.states == ["unacknowledged_active"]


def test_other_events_are_no_alarms() -> None:
    server = Server()
    assert server.send(1) == "server_event"  # a condition without states, such as a dialog
    assert server.states == []


@pytest.mark.parametrize(
    ("severity", "priority"),
    [(1, "low"), (400, "low"), (401, "medium"), (601, "high"), (800, "high"), (801, "critical")],
)
def test_priority_of_a_severity(severity: int, priority: str) -> None:
    assert priority_of(severity) == priority


@pytest.mark.parametrize(
    "body", [b"\x01", b"\xff\xff\xff\x7f", b"\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x16"]
)
def test_malformed_events_are_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(body, Namespaces())
