"""The state of a source as its events tell it."""

from __future__ import annotations

import re
from collections.abc import Callable

from core.batch import Event
from core.source_states import SourceState

_NUMBER = re.compile(r"\d+(\.\d+)?")
_MAX_REASONS = 20  # of one state: texts of a foreign server may differ each time


class RecordedState:
    """The last state that became an event, since when it lasts, and the reasons that are on record for it.

    Reasons may alternate with each attempt to connect, or differ in a number: each is recorded once.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Record the next state, whatever it is."""
        self.state: SourceState = "starting"
        self._since = 0  # µs
        self._reasons: set[str] = set()

    def event(self, state: SourceState, reason: str, now: Callable[[], int]) -> Event | None:
        """The event at ``now`` (µs) of a state that has changed, or has another reason. None: it is on record."""
        key = _NUMBER.sub("", reason)
        if state != self.state:
            self.state, self._since, self._reasons = state, now(), {key}
            return Event("source_state", self._since, text=state, detail={"reason": reason})
        if key in self._reasons or len(self._reasons) >= _MAX_REASONS:
            return None
        self._reasons.add(key)
        return Event("source_state", now(), text=state, detail={"reason": reason, "since": self._since})
