"""When overload begins and ends: decisions without a clock of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

PRESSED = (0.8, 0.5)  # CPU pressure from which on the machine is short of processors, and below which it no longer is
BEHIND = (5.0, 1.5)  # s that the oldest batch waits: from which on ingest is behind, and below which it no longer is


@dataclass(frozen=True, slots=True)
class Look:
    """What was measured at a time (s since 1970)."""

    at: float
    pressure: float = 0.0  # share of time in which somebody waited for a processor
    lag: float = 0.0  # s that the oldest batch has waited for the database
    pace: float = 0.0  # s between two polls of the source whose polls are furthest apart; 0: as configured
    spool_bytes: int = 0


@dataclass(slots=True)
class Threshold:
    """Begins after ``begins`` looks in a row with ``upper`` or more, and ends after ``ends`` in a row below ``lower``.

    ``since``: the time (s since 1970) of the first look of those with which it began; None: it is not so.
    """

    upper: float
    lower: float
    begins: int
    ends: int
    since: float | None = None
    _in_a_row: int = 0
    _first: float = 0.0

    def take(self, value: float, at: float) -> bool:
        """A look; returns whether the state is another one now."""
        if not (value >= self.upper if self.since is None else value < self.lower):
            self._in_a_row = 0
            return False
        self._first = at if self._in_a_row == 0 else self._first
        self._in_a_row += 1
        if self._in_a_row < (self.begins if self.since is None else self.ends):
            return False
        self.since = self._first if self.since is None else None
        self._in_a_row = 0
        return True


@dataclass(slots=True)
class Overload:
    """Ingest is behind, or polls are late while the machine is short of processors."""

    worst: Look = field(default_factory=lambda: Look(0.0))  # the largest of each figure since it began
    last: Look = field(default_factory=lambda: Look(0.0))
    _is: Threshold = field(default_factory=lambda: Threshold(1.0, 0.5, 3, 5))
    _behind: Threshold = field(default_factory=lambda: Threshold(*BEHIND, 1, 1))
    _pressed: Threshold = field(default_factory=lambda: Threshold(*PRESSED, 3, 3))

    @property
    def since(self) -> float | None:
        """When it began, s since 1970; None: there is none."""
        return self._is.since

    def resume(self, since: float) -> None:
        """It had begun before this process did, and is not known to have ended."""
        if self._is.since is None:
            self._is.since = since

    def take(self, look: Look, reachable: bool = True) -> bool:
        """A look, a second after the one before; returns whether overload begins or ends with it.

        Where the database is away what waits is no sign of overload (``reachable``).
        """
        self.last = look
        self._behind.take(look.lag if reachable else 0.0, look.at)
        self._pressed.take(look.pressure, look.at)
        short = self._behind.since is not None or (self._pressed.since is not None and look.pace > 0)
        changed = self._is.take(float(short), look.at)
        if changed and self.since is not None:
            self.worst = look
        self.worst = replace(
            look,
            pressure=max(look.pressure, self.worst.pressure),
            lag=max(look.lag, self.worst.lag),
            pace=max(look.pace, self.worst.pace),
            spool_bytes=max(look.spool_bytes, self.worst.spool_bytes),
        )
        return changed

    def report(self) -> dict[str, Any]:
        """As ``/health`` and ``status`` show it."""
        return {"since": self.since, **figures(self.last)}


def figures(look: Look) -> dict[str, Any]:
    """Of a look, by the names that they have on record."""
    return {
        "cpu_pressure": round(look.pressure, 2),
        "lag_seconds": round(look.lag, 1),
        "pace_seconds": round(look.pace, 2),
        "spool_bytes": look.spool_bytes,
    }


def clock(at: float) -> str:
    """A time (s since 1970) as it is said to people."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"


def words(report: dict[str, Any] | None, waiting: Sequence[str] = ()) -> str:
    """``overloaded since 12:03:10 UTC, polls every 2.4 s, lag 8.0 s, CPU pressure 97 %; waiting: rollups, seal``.

    Empty where it is not. ``waiting``: the jobs that give way.
    """
    if report is None or report["since"] is None:
        return ""
    parts = [f"overloaded since {clock(report['since'])}"]
    parts += [f"polls every {report['pace_seconds']:.3g} s"] if report["pace_seconds"] else []
    parts += [f"lag {report['lag_seconds']:.1f} s", f"CPU pressure {100 * report['cpu_pressure']:.0f} %"]
    return ", ".join(parts) + (f"; waiting: {', '.join(waiting)}" if waiting else "")
