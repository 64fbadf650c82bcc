"""A wall clock that a test can set; the monotonic clock is the machine's."""

from __future__ import annotations

from core.clock import machine_clocks


class ManualClock:
    """Looks at both clocks, as ``core.clock.machine_clocks`` does."""

    def __init__(self) -> None:
        self.ahead = 0  # µs

    def __call__(self) -> tuple[int, int]:
        wall, steady = machine_clocks()
        return wall + self.ahead, steady

    def set(self, seconds: float) -> None:
        """Set the wall clock by so many seconds."""
        self.ahead += round(seconds * 1e6)
