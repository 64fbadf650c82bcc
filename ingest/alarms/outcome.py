"""Outcome of an operator command, in one collector or in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from core.errors import NotAllDone, OperationError
from ingest.alarms.limits import LIMITS

_SHOWN = 5  # alarms in a message


@dataclass(slots=True)
class Outcome:
    """One line an alarm. All lists are empty where no alarm matches."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    inapplicable: list[str] = field(default_factory=list)  # such as an alarm to acknowledge that is normal

    @property
    def matches(self) -> bool:
        """Whether an alarm matches."""
        return bool(self.done or self.failed or self.inapplicable)

    def add(self, other: Outcome) -> None:
        """Add that of another collector."""
        self.done += other.done
        self.failed += other.failed
        self.inapplicable += other.inapplicable

    def lines(self, action: str, channel: str, limit: str | None) -> list[str]:
        """Actions done. Raises NotAllDone if an alarm is not as asked, OperationError if there was nothing to do."""
        if self.failed:
            raise NotAllDone(self.done, _shown(self.failed))
        if self.done:
            return self.done
        if self.inapplicable:
            raise OperationError(f"nothing to {action}: {_shown(self.inapplicable)}")
        if limit is None:
            raise OperationError(f"no channel matches {channel} with alarm limits")
        unknown = "" if limit in LIMITS else f"; legal: {', '.join(LIMITS)}, or a condition that is not normal"
        raise OperationError(f"no channel matches {channel} with alarm limit {limit}{unknown}")


def _shown(lines: Sequence[str]) -> str:
    return "; ".join(lines[:_SHOWN]) + (" ..." if len(lines) > _SHOWN else "")
