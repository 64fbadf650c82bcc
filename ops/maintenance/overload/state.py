"""Start and end of overload. Pure logic without a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

# CPU pressure from which on the machine is short of processors, and below which it no longer is
PRESSURE_THRESHOLDS = (0.8, 0.5)
# Seconds that the oldest batch waits, from which on ingest is behind, and below which it no longer is
LAG_THRESHOLDS = (5.0, 1.5)


@dataclass(frozen=True, slots=True)
class Indicators:
    """Measurements at a time (s since 1970)."""

    at: float
    pressure: float = 0.0  # share of time in which somebody waited for a processor
    lag: float = 0.0  # s that the oldest batch has waited for the database
    pace: float = 0.0  # s between two polls of the source whose polls are furthest apart; 0: as configured
    spool_bytes: int = 0


@dataclass(slots=True)
class Threshold:
    """Begins after ``begins`` measurements in a row of ``upper`` or more; ends after ``ends`` in a row below ``lower``.

    ``since``: the time (s since 1970) of the first look of those with which it began; None: it is not so.
    """

    upper: float
    lower: float
    begins: int
    ends: int
    since: float | None = None
    _in_a_row: int = 0
    _first: float = 0.0

    def update(self, value: float, at: float) -> bool:
        """Take a measurement; return whether the state has changed."""
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

    worst: Indicators = field(default_factory=lambda: Indicators(0.0))  # the largest of each figure since it began
    last: Indicators = field(default_factory=lambda: Indicators(0.0))
    _overloaded: Threshold = field(default_factory=lambda: Threshold(1.0, 0.5, 3, 5))
    _behind: Threshold = field(default_factory=lambda: Threshold(*LAG_THRESHOLDS, 1, 1))
    _pressed: Threshold = field(default_factory=lambda: Threshold(*PRESSURE_THRESHOLDS, 3, 3))

    @property
    def since(self) -> float | None:
        """Time when it began, s since 1970; None: there is none."""
        return self._overloaded.since

    def resume(self, since: float) -> None:
        """Resume overload that had begun before this process did, and is not known to have ended."""
        if self._overloaded.since is None:
            self._overloaded.since = since

    def update(self, indicators: Indicators, reachable: bool = True) -> bool:
        """Take a measurement, a second after the one before; return whether overload begins or ends with it.

        Where the database is away what waits is no sign of overload (``reachable``).
        """
        self.last = indicators
        self._behind.update(indicators.lag if reachable else 0.0, indicators.at)
        self._pressed.update(indicators.pressure, indicators.at)
        overloaded = self._behind.since is not None or (self._pressed.since is not None and indicators.pace > 0)
        changed = self._overloaded.update(float(overloaded), indicators.at)
        if changed and self.since is not None:
            self.worst = indicators
        self.worst = replace(
            indicators,
            pressure=max(indicators.pressure, self.worst.pressure),
            lag=max(indicators.lag, self.worst.lag),
            pace=max(indicators.pace, self.worst.pace),
            spool_bytes=max(indicators.spool_bytes, self.worst.spool_bytes),
        )
        return changed

    def report(self) -> dict[str, Any]:
        """Report for ``/health`` and ``status``."""
        return {"since": self.since, **to_json(self.last)}


def to_json(indicators: Indicators) -> dict[str, Any]:
    """Convert indicators to JSON, by the names that they have on record."""
    return {
        "cpu_pressure": round(indicators.pressure, 2),
        "lag_seconds": round(indicators.lag, 1),
        "pace_seconds": round(indicators.pace, 2),
        "spool_bytes": indicators.spool_bytes,
    }


def format_time(at: float) -> str:
    """A time (s since 1970) as it is said to people."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"


def describe(report: dict[str, Any] | None, waiting: Sequence[str] = ()) -> str:
    """``overloaded since 12:03:10 UTC, polls every 2.4 s, lag 8.0 s, CPU pressure 97 %; waiting: rollups, seal``.

    Empty where it is not. ``waiting``: the jobs that give way.
    """
    if report is None or report["since"] is None:
        return ""
    parts = [f"overloaded since {format_time(report['since'])}"]
    parts += [f"polls every {report['pace_seconds']:.3g} s"] if report["pace_seconds"] else []
    parts += [f"lag {report['lag_seconds']:.1f} s", f"CPU pressure {100 * report['cpu_pressure']:.0f} %"]
    return ", ".join(parts) + (f"; waiting: {', '.join(waiting)}" if waiting else "")
