"""The state machine of an alarm: ISA-18.2's states, whatever happens in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.errors import OperationError
from ingest.alarms.state import (
    INHIBITED,
    UNACKNOWLEDGED,
    Alarm,
    Inhibition,
    acknowledged,
    inhibited,
    raised,
    released,
    removed,
    returned,
)

INHIBITIONS: tuple[Inhibition, ...] = ("shelved", "suppressed_by_design", "out_of_service")


@pytest.mark.parametrize(
    ("actions", "state"),
    [
        ("", "normal"),
        ("+", "unacknowledged_active"),
        ("+a", "acknowledged_active"),
        ("+-", "return_to_normal_unacknowledged"),
        ("+-a", "normal"),
        ("+a-", "normal"),
        ("+-+", "unacknowledged_active"),
        ("+a-+", "unacknowledged_active"),
        ("+L", "latched_unacknowledged"),
        ("+aL", "latched_unacknowledged"),
        ("+La", "normal"),
        ("+L+", "unacknowledged_active"),
        ("s", "shelved"),
        ("s+", "shelved"),
        ("s+r", "unacknowledged_active"),
        ("s+-r", "normal"),
        ("+as-r", "normal"),
        ("+asr", "unacknowledged_active"),
    ],
)
def test_transitions(actions: str, state: str) -> None:
    alarm = Alarm()
    for at, action in enumerate(actions, 1):
        match action:
            case "+":
                alarm = raised(alarm, at, 1.0)
            case "-" | "L":
                alarm = returned(alarm, at, 0.0, latch=action == "L")
            case "a":
                alarm = acknowledged(alarm, at, "me")
            case "s":
                alarm = inhibited(alarm, at, "shelved", "me", "because", until=99)
            case "r":
                alarm = released(alarm, at, "shelved", "me")
    assert alarm.state == state


def test_acknowledged_alarm_keeps_the_time_since_when_it_is_active() -> None:
    active = raised(Alarm(), 1, 1.0)
    known = acknowledged(active, 2, "me")
    assert (known.since, known.acknowledged_at, known.revision) == (1, 2, 2)
    assert returned(known, 3, 0.0, latch=False).since == 3
    gone = acknowledged(returned(active, 2, 0.0, latch=False), 3, "me")
    assert (gone.state, gone.since, gone.acknowledged_at) == ("normal", 3, 3)


class Machine(RuleBasedStateMachine):
    """Two facts beside the state: whether the condition is beyond, and whether somebody has to look."""

    def __init__(self) -> None:
        super().__init__()
        self.alarm = Alarm()
        self.beyond = False
        self.unseen = False
        self.how: str | None = None
        self.clock = 1000
        self.revisions = [0]

    def _set(self, alarm: Alarm) -> None:
        self.alarm = alarm
        self.revisions.append(alarm.revision)

    def _at(self, step: int) -> int:
        self.clock += step  # of clocks that differ: it may go back
        return self.clock

    steps = st.integers(-50, 50)

    @precondition(lambda self: not self.beyond)
    @rule(step=steps)
    def raise_(self, step: int) -> None:
        self._set(raised(self.alarm, self._at(step), 1.0))
        self.beyond = True
        self.unseen = self.unseen or self.how is None

    @precondition(lambda self: self.beyond)
    @rule(step=steps, latch=st.booleans())
    def return_(self, step: int, latch: bool) -> None:
        self._set(returned(self.alarm, self._at(step), 0.0, latch))
        self.beyond = False
        self.unseen = self.unseen or (latch and self.how is None)

    @rule(step=steps)
    def acknowledge(self, step: int) -> None:
        if self.unseen and self.how is None:
            self._set(acknowledged(self.alarm, self._at(step), "me"))
            self.unseen = False
            assert self.alarm.acknowledged_by == "me"
        else:
            with pytest.raises(OperationError):
                acknowledged(self.alarm, self.clock, "me")

    @rule(step=steps, how=st.sampled_from(INHIBITIONS))
    def inhibit(self, step: int, how: Inhibition) -> None:
        at = self._at(step)
        self._set(inhibited(self.alarm, at, how, "me", "why", at + 10 if how == "shelved" else None))
        self.how, self.unseen = how, False

    @rule(step=steps, how=st.sampled_from(INHIBITIONS))
    def release(self, step: int, how: Inhibition) -> None:
        if self.how == how:
            self._set(released(self.alarm, self._at(step), how, "me"))
            self.how, self.unseen = None, self.beyond
        else:
            with pytest.raises(OperationError):
                released(self.alarm, self.clock, how, "me")

    @invariant()
    def the_state_says_it(self) -> None:
        assert self.alarm.active == self.beyond
        assert (self.alarm.state in INHIBITED) == (self.how is not None)
        if self.how is not None:
            assert self.alarm.state == self.how
        else:
            assert (self.alarm.state in UNACKNOWLEDGED) == self.unseen
            assert (self.alarm.state == "normal") == (not self.beyond and not self.unseen)
        assert (self.alarm.shelved_until is not None) == (self.how == "shelved")

    @invariant()
    def what_is_said_later_has_the_higher_revision(self) -> None:
        assert all(a < b for a, b in zip(self.revisions, self.revisions[1:], strict=False))


TestMachine = Machine.TestCase


def test_shelving_and_only_shelving_needs_an_end() -> None:
    with pytest.raises(ValueError, match="has an end"):
        inhibited(Alarm(), 1, "shelved", "me", "why")
    with pytest.raises(ValueError, match="has an end"):
        inhibited(Alarm(), 1, "out_of_service", "me", "why", until=5)


def test_removed_limit_has_no_alarm() -> None:
    alarm = removed(inhibited(raised(Alarm(), 1, 1.0), 2, "shelved", "me", "why", 9), 3)
    assert (alarm.state, alarm.active, alarm.shelved_until) == ("normal", False, None)
