"""Durations of the steps, and the amount of data written before."""

from __future__ import annotations

from dataclasses import dataclass

from lab.bench.data import SECOND, START

_AROUND_SECONDS = 15  # for a contestant's start, settling and end, and rates that do not hold


@dataclass(frozen=True, slots=True)
class Plan:
    """Amounts and durations for each contestant and repeat."""

    channels: int
    history_seconds: int  # at 1 Hz
    cell_seconds: float  # of each batch size and number of clients
    hold_seconds: float
    query_seconds: float
    live_rate: int  # samples/s that come in while it is asked
    repeats: int

    @property
    def interval(self) -> int:
        """Length of the intervals that are asked, µs: an hour of two."""
        return self.history_seconds // 2 * SECOND

    @property
    def oddities(self) -> int:
        """A time within the history, µs."""
        return START + self.history_seconds // 3 * SECOND


def plan(minutes: float, contestants: int, repeats: int, hours: float | None) -> Plan:
    """Plan of about ``minutes`` in all. ``hours``: the hold of the sustained rate, which comes on top."""
    each = minutes * 60 / contestants / repeats  # s
    steps = max(each - _AROUND_SECONDS, each * 0.4)
    return Plan(
        channels=200 if each >= 30 else 40,
        history_seconds=int(min(max(steps * 70, 1200), 43_200)),
        cell_seconds=steps * 0.04,
        hold_seconds=steps * 0.15 if hours is None else hours * 3600,
        query_seconds=steps * 0.15,
        live_rate=10_000 if each >= 30 else 2_000,
        repeats=repeats,
    )
